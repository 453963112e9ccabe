"""The headers that sources name, in every branch of their conditions, and the same names after a move.

The compiler's list is what one variant reads on one machine; a copy of a project must serve them all.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import read_errors

_DIRECTIVE = re.compile(
    r'^(?P<start>[ \t]*#[ \t]*(?:include|import)[ \t]*)(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)', re.MULTILINE
)


def read_source(path: Path) -> str:
    """The text of a source, whatever its encoding: `write_source` gives the same bytes."""
    with read_errors(path):
        return path.read_bytes().decode("utf-8", "surrogateescape")


def write_source(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Tree:
    """Files below one folder. search: folders for headers, relative to it, the first found wins."""

    root: Path
    search: Sequence[str]

    def reach(self, sources: Collection[str]) -> tuple[str, ...]:
        """The sources and every file of the tree that they include, through one another.

        Raises InputError for a file outside the tree.
        """
        found = dict.fromkeys(posixpath.normpath(path) for path in sources)
        waiting = list(found)
        while waiting:
            path = waiting.pop()
            for header in self._headers(path):
                if header not in found:
                    found[header] = None
                    waiting.append(header)
        return tuple(found)

    def _headers(self, path: str) -> Iterator[str]:
        for directive in _DIRECTIVE.finditer(read_source(self.root / path)):
            header = self.resolve(path, directive)
            if header is not None:
                self.refuse_outside(header, path)
                yield header

    def refuse_outside(self, header: str, reader: str) -> None:
        """Raise InputError for a path that leaves the tree."""
        if header.startswith("../") or os.path.isabs(header):  # noqa: PTH117 - a string from a list
            what = f"{reader} reads a file outside the project: {header}"
            raise InputError(Problem(what, where=str(self.root), hint="copy it into the project first"))

    def resolve(self, path: str, directive: re.Match[str]) -> str | None:
        """The file of the tree that an include directive of the file ``path`` means; None for one of an SDK."""
        found, _ = _first(directive, posixpath.dirname(path), self.search, lambda name: (self.root / name).is_file())
        return found


@dataclass(frozen=True)
class Move:
    """Files of a tree under new paths. search: the folders for headers, which keep their paths."""

    tree: Tree
    paths: Mapping[str, str]

    def rewrite(self, path: str) -> tuple[str, frozenset[str]]:
        """The text of a moved file whose includes mean the same files, and the search folders that it needs for it."""
        needed: set[str] = set()

        def spell(directive: re.Match[str]) -> str:
            header = self.tree.resolve(path, directive)
            if header is None:
                return directive[0]
            target = self.paths[header]
            here = posixpath.dirname(self.paths[path])
            found, folder = self._find(directive, here)
            if found == target:
                needed.update(() if folder is None else (folder,))
                return directive[0]
            return f'{directive["start"]}"{posixpath.relpath(target, here or ".")}"'

        text = _DIRECTIVE.sub(spell, read_source(self.tree.root / path))
        return text, frozenset(needed)

    def _find(self, directive: re.Match[str], here: str) -> tuple[str | None, str | None]:
        """What a directive means at the new place: the file, and the search folder that it was found through."""
        there = frozenset(self.paths.values())
        return _first(directive, here, self.tree.search, there.__contains__)


def _first(
    directive: re.Match[str], here: str, search: Sequence[str], exists: Callable[[str], bool]
) -> tuple[str | None, str | None]:
    """The first place where a directive finds its file: beside its own when quoted, then in ``search``."""
    name = directive["quoted"] or directive["angled"]
    beside = [None] if directive["quoted"] else []
    for folder in (*beside, *search):
        candidate = posixpath.normpath(posixpath.join(here if folder is None else folder, name))
        if exists(candidate):
            return candidate, folder
    return None, None
