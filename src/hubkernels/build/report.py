"""What a running build tells its caller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """A step that ended, well or not."""

    finished: int
    total: int
    label: str


Report = Callable[[Progress | str], None]
"""Hears of progress, and of what succeeding commands print: warnings."""
