"""Commands that failed, and whose fault that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem

_DISK_FULL = "No space left on device"


@dataclass(frozen=True)
class Failure:
    """One command that failed. verb: what it was to do with the subject. diagnostics: all that it printed."""

    verb: str
    subject: str
    variant: str
    diagnostics: str

    def problem(self) -> Problem:
        what = f"{self.diagnostics.rstrip()}\n{self.subject} does not {self.verb} for {self.variant}"
        return Problem(what.lstrip(), hint=disk_hint(self.diagnostics))


def disk_hint(text: str) -> str | None:
    """What to do about a command that failed with these words, where a full disk was the reason."""
    return "the disk is full: free some space and run again" if _DISK_FULL in text else None


def explain_failures(failures: Iterable[Failure]) -> HubkernelsError:
    """The error for failed commands, with their diagnostics whole: a full disk is not the source's fault."""
    found = tuple(failures)
    kind = EnvironmentLacksError if any(disk_hint(failure.diagnostics) for failure in found) else InputError
    return kind(*(failure.problem() for failure in found))
