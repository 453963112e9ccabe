"""Sources that do not compile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem

_DISK_FULL = "No space left on device"


@dataclass(frozen=True)
class Failure:
    """One command that failed. diagnostics: all that it printed."""

    what: str
    variant: str
    diagnostics: str


class CompileError(InputError):
    """Sources that the compiler refused; the message holds its diagnostics whole."""

    def __init__(self, failures: Iterable[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(
            *(
                Problem(f"{failure.diagnostics.rstrip()}\n{failure.what} does not compile for {failure.variant}")
                for failure in self.failures
            )
        )


def explain_failures(failures: Iterable[Failure]) -> HubkernelsError:
    """The error for failed commands: a full disk is not the source's fault."""
    found = tuple(failures)
    if any(_DISK_FULL in failure.diagnostics for failure in found):
        return EnvironmentLacksError(
            Problem(
                f"the disk is full: {found[0].what} could not be written for {found[0].variant}",
                hint="free some space and run again: nothing half-written was kept",
            )
        )
    return CompileError(found)
