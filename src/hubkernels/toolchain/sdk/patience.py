"""How long an index is waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """question_s: for one question, whatever of pip it takes. retries: of pip. busy: those at a server that is busy.

    answer_s: for a server to say anything; pip as it is configured, and whoever fetches as ever, if None.
    """

    question_s: float
    retries: int
    busy: int
    answer_s: int | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Options of pip."""
        timeout = () if self.answer_s is None else ("--timeout", str(self.answer_s))
        return ("--retries", str(self.retries), *timeout)


PATIENT = Patience(900.0, 2, 3)
"""For whoever asked for it: where an index gives neither metadata nor parts, pip downloads a torch to tell of it."""

HURRIED = Patience(30.0, 0, 0, 5)
"""For a build that has another way."""
