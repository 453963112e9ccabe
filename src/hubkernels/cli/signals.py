"""What a signal does to a verb."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM unwinds a verb as Ctrl-C does: what was done by then is told. The second one ends the process at once.

    Where it is ignored, or another has a handler for it, all stays as it is.
    """
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    try:
        signal.signal(signal.SIGTERM, _leave)
    except ValueError:  # not the main thread, which alone may say so
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
