"""What a commit would change, by variant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

from hubkernels.hub.offer import Content


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. blob: its id in git, there that of a pointer where sha256, of its content, is given."""

    path: str
    size: int
    blob: str
    sha256: str | None = None

    def holds(self, content: Content) -> bool:
        return content.sha256 == self.sha256 if self.sha256 else content.blob == self.blob


@dataclass(frozen=True)
class Changes:
    """Paths, sorted. kept: untouched files of what is published; others of the repository are not looked at."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    kept: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted)

    def lines(self) -> tuple[str, ...]:
        """A line a folder of the repository: what would be added there, changed, deleted."""
        marks = [(path, "+") for path in self.added] + [(path, "~") for path in self.changed]
        marks += [(path, "-") for path in self.deleted]
        groups = groupby(sorted(marks), key=lambda mark: folder_of(mark[0]))
        return tuple(f"{folder}: {_counts([mark for _, mark in found])}" for folder, found in groups)


_WORDS = {"+": "added", "~": "changed", "-": "deleted"}


def _counts(marks: Collection[str]) -> str:
    found = {mark: sum(mark == other for other in marks) for mark in _WORDS}
    return ", ".join(f"{count} {_WORDS[mark]}" for mark, count in found.items() if count)


def folder_of(path: str) -> str:
    """``build/<variant>`` of a file in it, and ``records/<variant>``; else the first folder, or the file at the top."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] in {"build", "records"} else 1])


def compare(offered: Mapping[str, Content], there: Mapping[str, RemoteFile], is_ours: Callable[[str], bool]) -> Changes:
    """What brings a branch to what is offered. is_ours: whether a path that is not offered is stale."""
    common = [path for path in offered if path in there]
    same = {path for path in common if there[path].holds(offered[path])}
    stale = [path for path in there if path not in offered and is_ours(path)]
    return Changes(
        added=tuple(sorted(set(offered) - set(there))),
        changed=tuple(sorted(set(common) - same)),
        deleted=tuple(sorted(stale)),
        kept=tuple(sorted(same)),
    )
