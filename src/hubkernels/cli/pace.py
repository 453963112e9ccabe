"""How often to tell of what goes on: who looks at a terminal wants to see it move, and a log keeps every line."""

from __future__ import annotations

import sys
import time

_TERMINAL_S, _LOG_S = 5.0, 30.0


class Pace:
    """every_s: between two lines."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for another line, which is then taken as told. The first is due like any other."""
        now = time.monotonic()
        if now - self._told < self._every_s:
            return False
        self._told = now
        return True


def usual_pace() -> Pace:
    """What fits standard error, where progress goes."""
    return Pace(_TERMINAL_S if sys.stderr.isatty() else _LOG_S)
