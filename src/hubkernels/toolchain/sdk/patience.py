"""How long an index is waited for, and that it is told meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hubkernels.model.going import Going

_TOLD_S = 1.0


@dataclass(frozen=True)
class Patience:
    """question_s: for one question, whatever of pip it takes. retries: of pip. busy: those at a server that is busy.

    answer_s: for a server to say anything; pip as it is configured, and whoever fetches as ever, if None.
    broken: retries of a transfer that breaks off. least_bytes_s: see `is_enough`.
    """

    question_s: float
    retries: int
    busy: int
    answer_s: int | None = None
    broken: int = 1
    least_bytes_s: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """Options of pip."""
        timeout = () if self.answer_s is None else ("--timeout", str(self.answer_s))
        return ("--retries", str(self.retries), *timeout)

    def is_enough(self, received: int, waited_s: float) -> bool:
        """Whether a server has sent enough by now to be waited for: one that drips is never silent.

        It has the time of a question, and more only for what it sends.
        """
        return (waited_s - self.question_s) * self.least_bytes_s <= received


PATIENT = Patience(900.0, 2, 3)
"""For whoever asked for it: where an index gives neither metadata nor parts, pip downloads a torch to tell of it."""

HURRIED = Patience(30.0, 0, 0, 5, broken=0, least_bytes_s=100_000)
"""For a build that has another way."""


@contextlib.contextmanager
def told_while(what: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Around a wait: says each second for what, and how long by now."""
    ended, began = threading.Event(), time.monotonic()

    def go_on() -> None:
        with contextlib.suppress(BrokenPipeError):  # who waits meets it too
            while not ended.wait(_TOLD_S):
                tell(Going(f"{what}: {time.monotonic() - began:.0f} s"))

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
