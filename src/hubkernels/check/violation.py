"""What a check finds: every violation as a value, for the caller to count, print or fail on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Violation:
    """One rule that one file of one variant breaks. place: file, with a line where there is one."""

    variant: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.variant}: {self.place}: {self.what}"


def collect(variant: str, found: Iterable[tuple[str, str]]) -> tuple[Violation, ...]:
    """Violations of one variant from (place, what) pairs, sorted."""
    return tuple(sorted(Violation(variant, place, what) for place, what in found))
