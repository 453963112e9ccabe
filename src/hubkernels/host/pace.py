"""How often to tell of what is under way: a terminal shows the last line, a log keeps all."""

from __future__ import annotations

import sys
import time

TERMINAL_S, LOG_S = 5.0, 30.0


class Pace:
    """every_s: between two lines; by default what fits standard error, where progress goes."""

    def __init__(self, every_s: float | None = None) -> None:
        self._every_s = (TERMINAL_S if sys.stderr.isatty() else LOG_S) if every_s is None else every_s
        self._told = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for another line, which is then taken as told. The first is due like any other."""
        now = time.monotonic()
        if now - self._told < self._every_s:
            return False
        self._told = now
        return True
