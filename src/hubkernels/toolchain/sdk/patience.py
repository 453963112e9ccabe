"""How long an index is waited for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """pip_s: for one pip. answer_s: for one answer of the server; as pip is configured if None."""

    pip_s: float
    retries: int
    answer_s: int | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Options of pip."""
        timeout = () if self.answer_s is None else ("--timeout", str(self.answer_s))
        return ("--retries", str(self.retries), *timeout)


PATIENT = Patience(900.0, 2)
"""For whoever asked for it: where an index gives neither metadata nor parts, pip downloads a torch to tell of it."""

HURRIED = Patience(60.0, 0, 5)
"""For a build that has another way."""
