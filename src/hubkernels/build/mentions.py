"""Files that sources name, told from their texts: what a compiler that has not been asked yet could read.

Conditions are not looked at, so that what any of them could let in counts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hubkernels.build.names import named_in
from hubkernels.build.search import search_folders
from hubkernels.build.sources import USUAL_FOLDERS
from hubkernels.host.files import read_errors, read_regular
from hubkernels.model.backend import METAL
from hubkernels.model.project import KernelSection, Package, Torch, TvmFfi

_OPAQUE = re.compile(r".*\$<|-X|--?i(?!system|quote|dirafter)", re.DOTALL)
"""Flags that bring files, or searched folders, that are not told from the flag alone."""

_DEEPEST = 100


def mentioned_files(package: Package) -> frozenset[str] | None:
    """Full paths, whether there or not, that the sources could include, and what those could in turn.

    None where a text or a flag does not tell: a name that a macro stands for, an expression of CMake.
    """
    flags = _flags(package)
    if any(map(_OPAQUE.match, flags)):
        return None
    root = os.path.realpath(package.root)
    folders = [os.path.join(root, folder) for folder in search_folders(flags)]  # noqa: PTH118 - keeps the spelling
    found: set[str] = set()
    read: set[tuple[str, str]] = set()
    waiting = [os.path.join(root, path) for table in _tables(package) for path in table.sources]  # noqa: PTH118
    while waiting:
        path = waiting.pop()
        folder = os.path.dirname(path)  # noqa: PTH120 - quoted names are looked for beside the path as it is spelled
        if path in found:
            continue
        found.add(path)
        place = (os.path.realpath(path), os.path.realpath(folder))
        if place in read or not os.path.isfile(path):  # noqa: PTH113 - thousands a package
            continue
        read.add(place)
        with read_errors(Path(path)):
            text = read_regular(path)
        for name in named_in(text):
            if not name or name.count("/") > _DEEPEST or "\0" in name:
                return None
            waiting += [os.path.join(at, name) for at in (folder, *folders)]  # noqa: PTH118
    return frozenset(found)


def _tables(package: Package) -> tuple[Torch | TvmFfi | KernelSection, ...]:
    """All but those for Metal: they include a header by a macro of upstream's builder, and are built on macOS alone."""
    tables = package.tables.values()
    return tuple(t for t in tables if not (isinstance(t, KernelSection) and t.backend is METAL))


def _flags(package: Package) -> tuple[str, ...]:
    """Those of every table: which source has which is not looked at."""
    tables = _tables(package)
    include = (*(folder for table in tables for folder in table.include), *USUAL_FOLDERS)
    return (*(f"-I{folder}" for folder in include), *(flag for table in tables for flag in table.cxx_flags))
