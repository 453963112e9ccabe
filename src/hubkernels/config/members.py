"""The members of a workspace: folders with an upstream-form build.toml, by name or by pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from hubkernels.errors import nearest

BUILD_TOML = "build.toml"
KEYS = ("members", "exclude")

Pattern = tuple[str, int, str]
"""A key of [workspace], the index of an entry, and the entry: a folder, or a pattern of folders."""


@dataclass(frozen=True)
class Member:
    """A folder, relative to the workspace, and the entry that named it; none where no file lists the members."""

    folder: str
    entry: Pattern | None = None


@dataclass(frozen=True)
class Unmatched:
    """An entry that stands for no folder."""

    entry: Pattern
    what: str
    hint: str | None


def find_members(root: Path, patterns: Iterable[Pattern]) -> tuple[tuple[Member, ...], tuple[Unmatched, ...]]:
    """The members in the order of their entries, those of one pattern sorted, each once; and entries without a match.

    A folder that is named outright is a member whether it has a build.toml or not: who reads it says so.
    """
    entries = tuple(patterns)
    found: dict[str, Member] = {}
    unmatched: list[Unmatched] = []
    for entry in entries:
        key, _, text = entry
        if key != "members":
            continue
        if os.path.normpath(text) == os.curdir:
            unmatched.append(Unmatched(entry, "a workspace is no member of itself", "name the folders of its packages"))
            continue
        folders = tuple(_matches(root, text)) if glob.has_magic(text) else (text,)
        for folder in folders:
            found.setdefault(os.path.normpath(folder), Member(folder, entry))
        if not folders:
            unmatched.append(Unmatched(entry, f"no folder with a {BUILD_TOML} matches {text}", "drop the pattern"))
    for entry in entries:
        if entry[0] == "exclude":
            dropped = [folder for folder in found if _is_excluded(folder, entry[2])]
            if not dropped:
                unmatched.append(
                    Unmatched(entry, f"no member matches {entry[2]}", nearest(entry[2], found) or "drop it")
                )
            for folder in dropped:
                del found[folder]
    return tuple(found.values()), tuple(unmatched)


def subfolders(root: Path) -> tuple[Member, ...]:
    """The members of a folder without a build.toml of its own: those right below it that have one."""
    return tuple(Member(folder) for folder in _matches(root, "*"))


def is_project(folder: Path) -> bool:
    """Whether the folder, or one right below it, has a build.toml."""
    return (folder / BUILD_TOML).is_file() or any(True for _ in _matches(folder, "*"))


def _matches(root: Path, pattern: str) -> Iterator[str]:
    """Folders with a build.toml, sorted; the workspace's own is none of them, nor is one that is hidden."""
    for folder in sorted(glob.glob(pattern, root_dir=root, recursive=True)):  # noqa: PTH207 - Path.glob takes hidden ones
        if os.path.normpath(folder) != os.curdir and (root / folder / BUILD_TOML).is_file():
            yield folder.rstrip(os.sep)


def _is_excluded(folder: str, pattern: str) -> bool:
    return fnmatchcase(folder, os.path.normpath(pattern))
