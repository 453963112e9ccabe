"""Where the compiler looks for headers, and what it would read instead of those it found if it were there."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

SEARCH_FLAGS = ("-I", "-isystem", "-iquote", "-idirafter")
PRECOMPILED = (".gch", ".pch")
"""Ends of what a compiler reads in the stead of a header beside it."""

_SEARCH_FLAG = re.compile(rf"({'|'.join(SEARCH_FLAGS)})(.*)", re.DOTALL)


def search_folders(flags: Sequence[str]) -> Iterator[str]:
    """The folders that flags name for headers, in either spelling: ``-Ia``, ``-isystem b``."""
    return (folder for _, folder in _searches(flags))


def _folders_of(wanted: str, flags: Sequence[str]) -> Iterator[str]:
    return (folder for flag, folder in _searches(flags) if flag == wanted)


def _searches(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Flags of the search, each with its folder."""
    words = iter(flags)
    for word in words:
        found = _SEARCH_FLAG.fullmatch(word)
        if found and (folder := found[2] or next(words, "")):
            yield found[1], folder.rstrip("/") or "/"


@dataclass(frozen=True)
class Around:
    """What lies where headers are looked for.

    there: files. absent: where no file is, as `is_absent` has it; the topmost missing folder stands for all below it.
    folders: those that were looked into, whose time tells whether something came since.
    """

    there: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def __or__(self, other: Around) -> Around:
        return Around(self.there | other.there, self.absent | other.absent, self.folders | other.folders)


def is_absent(path: str) -> bool:
    """Whether nothing is at a path; at ``path/`` a folder still, since the compiler passes over one of that name."""
    return os.path.isdir(path) if path.endswith("/") else not os.path.exists(path)  # noqa: PTH110, PTH112 - thousands


def look(root: Path, places: Iterable[tuple[str, str]]) -> Around:
    """What lies below folders, given as (folder, name of a file): ``("include", "hk/x.h")``."""
    by_folder: dict[str, list[str]] = {}
    for base, name in places:
        below, _, last = name.rpartition("/")
        folder = os.path.join(base, below) if below else base  # noqa: PTH118 - keeps the spelling
        by_folder.setdefault(folder, []).append(last)
    there, absent, folders = set[str](), set[str](), set[str]()
    for folder, files in by_folder.items():
        missing, standing = _topmost_missing(root, folder)
        folders.add(standing)
        if missing is not None:
            absent.add(missing)
            continue
        for path in (file if folder == "." else f"{folder}/{file}" for file in files):
            full = os.path.join(root, path)  # noqa: PTH118 - thousands a source
            if os.path.isfile(full):  # noqa: PTH113
                there.add(path)
            else:
                absent.add(f"{path}/" if os.path.exists(full) else path)  # noqa: PTH110
    return Around(frozenset(there), frozenset(absent), frozenset(folders))


def _topmost_missing(root: Path, folder: str) -> tuple[str | None, str]:
    """The topmost folder that is not there on the way to one, if any is not; and the one that it would be in."""
    missing = None
    while folder and not os.path.exists(os.path.join(root, folder)):  # noqa: PTH110, PTH118
        missing, folder = folder, os.path.dirname(folder)  # noqa: PTH120
    return missing, folder or "."


@dataclass(frozen=True)
class Search:
    """The search of one source. root: where the compiler runs. flags: the source's own.

    given: the folders of the toolchain, looked through after those of flags, in order.
    """

    root: Path
    flags: tuple[str, ...]
    given: tuple[str, ...]

    def roots(self, own: Iterable[str]) -> set[str]:
        """Folders where files of the project are looked for: named in flags, or of a file, where quoted names are.

        A header found as ``<root>/hk/x.h`` would be found earlier in ``hk`` below another root.
        """
        roots = {os.path.dirname(path) or "." for path in own} | set(search_folders(self.flags))  # noqa: PTH120 - keeps the spelling
        if any(flag.startswith(("-include", "-imacros")) for flag in self.flags):
            roots.add(".")  # where the compiler runs: it looks there first for what flags include
        return roots

    def names(self, paths: Iterable[str], roots: Iterable[str]) -> set[str]:
        """By which names files may have been found."""
        known = self._spellings((*roots, *self.given))
        return {name for path in paths for name in _below(path, known).values()}

    def near(self, roots: Iterable[str], names: Iterable[str]) -> Around:
        """What lies in the roots under these names: files, and precompiled headers."""
        return look(self.root, product(roots, {*names, *(f"{name}{end}" for name in names for end in PRECOMPILED)}))

    def far(self, paths: Iterable[str]) -> Around:
        """What would come first in a folder of the toolchain.

        What is found below a folder that flags name may have been looked for in all of them: flags can put it last.
        """
        last = len(self.given)
        places = dict.fromkeys(self._spellings(search_folders(self.flags)), last)
        for place, folder in enumerate(self.given):
            places |= dict.fromkeys(self._spellings([folder]), place)
        names: dict[str, int] = {}
        for path in paths:
            for root, name in _below(path, places).items():
                names[name] = max(names.get(name, 0), places[root])
        earlier = [
            (folder, name) for place, folder in enumerate(self.given) for name, at in names.items() if at > place
        ]
        return look(self.root, earlier)

    def named(self, names: Collection[tuple[str, str]], *, every: bool) -> Around:
        """What files of the project may mean by names, each given with the file that has it, and by those of flags.

        there: the first of each, looked for as the compiler may; with ``every`` those behind it too: ``include_next``.
        """
        beside = {(os.path.dirname(path) or ".", name) for name, path in names}  # noqa: PTH120 - as it is spelled
        beside |= {(".", name) for name in _included(self.flags)}
        wanted = {name for _, name in beside}
        quoted, angled = self._order()
        around = look(self.root, {*product(quoted, wanted), *beside})
        if every:
            return around
        found = {self._first((place, *quoted), name, around) for place, name in beside}
        found |= {self._first(order, name, around) for order in (quoted, angled) for name in wanted}
        return Around(frozenset(path for path in found if path), around.absent, around.folders)

    def _order(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The folders of the search, in order: for names in quotes, and for those in angles."""
        by_flag = {flag: tuple(_folders_of(flag, self.flags)) for flag in SEARCH_FLAGS}
        angled = (*by_flag["-I"], *by_flag["-isystem"], *self.given, *by_flag["-idirafter"])
        return (*by_flag["-iquote"], *angled), angled

    @staticmethod
    def _first(folders: Iterable[str], name: str, around: Around) -> str | None:
        places = (name if folder == "." and "/" not in name else f"{folder}/{name}" for folder in folders)
        return next((place for place in places if place in around.there), None)

    def asked(self, roots: Iterable[str], names: Iterable[str], nearby: Iterable[tuple[str, str]]) -> Around:
        """What lies where names are asked for, each folder counting: which one answers depends on who asks.

        nearby: names that are looked for beside a file, and that file.
        """
        beside = ((os.path.dirname(path) or ".", name) for name, path in nearby)  # noqa: PTH120 - as it is spelled
        return look(self.root, {*product((*roots, *self.given), names), *beside})

    def _spellings(self, folders: Iterable[str]) -> dict[str, None]:
        """Folders, and where links lead: g++ tells a header of the system by either, whichever is shorter."""
        full = ((folder, os.path.join(self.root, folder)) for folder in folders)  # noqa: PTH118
        return dict.fromkeys(each for folder, place in full for each in (folder, os.path.realpath(place)))


def _included(flags: Sequence[str]) -> Iterator[str]:
    """The files that flags include."""
    for before, word in zip(("", *flags), flags, strict=False):
        if before in {"-include", "-imacros"}:
            yield word
        elif found := re.fullmatch(r"-(?:include|imacros)(.+)", word):
            yield found[1]


def _below(path: str, roots: Iterable[str]) -> dict[str, str]:
    """The roots that a path is below, and its name there, as it is spelled: ``a/../x.h`` needs a folder a."""
    found = {root: path[len(root) + 1 :].lstrip("/") for root in roots if path.startswith(f"{root}/")}
    if "." in roots and not path.startswith(("/", "..")):
        found["."] = path.removeprefix("./").lstrip("/")
    return found
