"""What a running build tells its caller."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LONG_S = 1.0
"""Who waits for longer is told for what."""


@dataclass(frozen=True)
class Progress:
    """A step that ended, well or not."""

    finished: int
    total: int
    label: str


@dataclass(frozen=True)
class Begun:
    """What goes on now, in words; `Going` where they are of how far it is."""

    what: str


Event = Progress | Begun | str
Report = Callable[[Event], None]
"""Hears of progress, of what begins, and of what succeeding commands print: warnings."""


def texts_alone(report: Report) -> Report:
    """Pass on what a running build tells, but for what begins and its progress."""

    def hear(event: Event) -> None:
        if isinstance(event, str):
            report(event)

    return hear


@contextmanager
def told_if_long(what: str, report: Report) -> Iterator[None]:
    """Around work that may take long or no time: where it takes long, say meanwhile what goes on."""

    def tell() -> None:
        with contextlib.suppress(BrokenPipeError):  # the thread of the work meets it too
            report(Begun(what))

    timer = threading.Timer(LONG_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
