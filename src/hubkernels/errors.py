"""The errors that a user meets: what happened, where, what to do next. The class decides the exit code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import ClassVar, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

CHECK_FAILED, INPUT_WRONG, ENVIRONMENT_LACKS, HUB_REFUSED = 1, 2, 3, 4


@dataclass(frozen=True)
class Problem:
    """One fact for the user, in the user's own spelling."""

    what: str
    where: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  --> {self.where}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, str]:
        """What is known of it."""
        return {name: text for name, text in asdict(self).items() if text}


class HubkernelsError(Exception):
    """Base of every error that is the user's to act on; anything else is a bug of ours."""

    exit_code: ClassVar[int] = CHECK_FAILED

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(Problem(p) if isinstance(p, str) else p for p in problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CheckFailedError(HubkernelsError):
    """A check looked at a finished thing and found it wanting."""

    exit_code = CHECK_FAILED


class InputError(HubkernelsError):
    """What the user wrote is wrong: build.toml, a source, an argument."""

    exit_code = INPUT_WRONG


class EnvironmentLacksError(HubkernelsError):
    """The machine lacks something: a compiler, a package, disk space."""

    exit_code = ENVIRONMENT_LACKS


class HubRefusedError(HubkernelsError):
    """The Hub said no."""

    exit_code = HUB_REFUSED


def combined(errors: Iterable[HubkernelsError]) -> HubkernelsError:
    """One error for several: the problems of all, each once, and the class with the highest exit code."""
    found = tuple(errors)
    if len(found) == 1:
        return found[0]
    worst = max(found, key=lambda error: error.exit_code)
    return type(worst)(*dict.fromkeys(problem for error in found for problem in error.problems))


def gathered(call: Callable[[Item], Found], items: Iterable[Item]) -> tuple[Found, ...]:
    """What a call makes of each. Where it refuses some, what is wrong with all of these is told at once."""
    tried = [_try(call, item) for item in items]
    errors = [each for each in tried if isinstance(each, HubkernelsError)]
    if errors:
        raise combined(errors)
    return tuple(each for each in tried if not isinstance(each, HubkernelsError))


def _try(call: Callable[[Item], Found], item: Item) -> Found | HubkernelsError:
    try:
        return call(item)
    except HubkernelsError as error:
        return error


def similar(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one looks like, if there is one."""
    return next(iter(difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)), None)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word that this one looks like, if there is one."""
    found = similar(word, known)
    return f"did you mean {found}?" if found else None


def did_you_mean(word: str, allowed: Iterable[str]) -> str | None:
    """A hint that names the nearest allowed word, or all of them when none is near."""
    words = sorted(allowed)
    return nearest(word, words) or (f"allowed: {', '.join(words)}" if words else None)
