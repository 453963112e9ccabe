"""Commands that failed, and whose fault that is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.disk import says_full

_KILLED = re.compile(
    r"Killed signal terminated program|unable to execute command: Killed|died due to signal 9"
    r"|^Killed$|: line \d+: +\d+ Killed\b",
    re.MULTILINE,
)
"""In the words of g++, of clang, of nvcc, and of the shells that they are started by."""
_EXHAUSTED = re.compile(
    r"^virtual memory exhausted|: out of memory allocating \d+ bytes|^LLVM ERROR: out of memory"
    r"|instance of 'std::bad_alloc'|^ptxas fatal *: Memory allocation failure|catastrophic error: out of memory",
    re.MULTILINE | re.IGNORECASE,
)
"""In the words of compilers that a limit leaves alive."""


@dataclass(frozen=True)
class Failure:
    """One command that failed. verb: what it was to do with the subject. diagnostics: all that it printed."""

    verb: str
    subject: str
    variant: str
    diagnostics: str

    def problem(self) -> Problem:
        what = f"{self.diagnostics.rstrip()}\n{self.subject} does not {self.verb} for {self.variant}"
        return Problem(what.lstrip(), hint=disk_hint(self.diagnostics) or memory_hint(self.diagnostics))


def memory_hint(text: str) -> str | None:
    """What to do about a compiler that was killed, or that found no more memory."""
    if _KILLED.search(text):
        return "the compiler was killed, most likely for want of memory: run again with --jobs 1, or give --memory"
    return (
        "there was not enough memory: run again with --jobs 1, or raise the limit" if _EXHAUSTED.search(text) else None
    )


def disk_hint(text: str) -> str | None:
    """What to do about a command that failed with these words, where a full disk was the reason."""
    return "the disk is full: free some space and run again" if says_full(text) else None


def explain_failures(failures: Iterable[Failure]) -> HubkernelsError:
    """The error for failed commands, with their diagnostics whole: a full disk or memory is not the source's fault."""
    found = tuple(failures)
    texts = [failure.diagnostics for failure in found]
    kind = EnvironmentLacksError if any(disk_hint(text) or memory_hint(text) for text in texts) else InputError
    return kind(*(failure.problem() for failure in found))
