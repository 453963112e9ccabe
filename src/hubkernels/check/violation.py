"""What a check finds: every violation as a value, for the caller to count, print or fail on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from hubkernels.errors import Problem


@dataclass(frozen=True, order=True)
class Violation:
    """One rule that one artifact breaks.

    place: file in it, with a line where there is one; empty for the artifact itself. hint: the way out, if known.
    """

    variant: str
    place: str
    what: str
    hint: str = ""

    def problem(self) -> Problem:
        hint = self.hint or None
        if not self.place:
            return Problem(f"{self.variant} {self.what}", hint=hint)
        return Problem(f"{self.place}: {self.what}", self.variant, hint)

    def to_json(self) -> dict[str, str]:
        return {name: text for name, text in asdict(self).items() if text or name != "hint"}


def collect(variant: str, found: Iterable[tuple[str, str] | tuple[str, str, str]]) -> tuple[Violation, ...]:
    """Violations of one variant from (place, what) or (place, what, hint), sorted."""
    return tuple(sorted(Violation(variant, *each) for each in found))
