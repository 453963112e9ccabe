"""The files that belong to a package, for every backend: what its tables name, and its licences."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

from hubkernels.build.report import Report
from hubkernels.build.search import search_folders
from hubkernels.build.sources import USUAL_FOLDERS, Key, refuse_missing
from hubkernels.model.project import Package

_LICENCES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")


def named_sources(package: Package) -> Mapping[Key, tuple[str, ...]]:
    """The files that each table names as sources. Raises InputError for those that do not exist."""
    named = {key: group.sources for key, group in package.tables.items()}
    refuse_missing(package, named)
    return named


def search_of(package: Package) -> tuple[str, ...]:
    """Folders of the project where any source of the package looks for headers."""
    own = [folder for group in package.tables.values() for folder in (*group.include, *search_folders(group.cxx_flags))]
    usual = (folder for folder in USUAL_FOLDERS if (package.root / folder).is_dir())
    return tuple(dict.fromkeys(posixpath.normpath(folder) for folder in (*own, *usual)))


def licences(package: Package, root: Path, report: Report) -> dict[str, Path]:
    """The licence files that lie nearest: in the package's folder, or in that of its project, ``root``."""
    for folder in (package.root, root):
        found = {path.name: path for pattern in _LICENCES for path in sorted(folder.glob(pattern)) if path.is_file()}
        if found:
            return found
    report(f"{package.name}: there is no licence file in {package.root} to go along: no {', '.join(_LICENCES)}")
    return {}
