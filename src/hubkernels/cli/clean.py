"""`kernel-builder clean`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hubkernels.cli.console import columns, report, say
from hubkernels.cli.options import HERE, Packages, ProjectFolder
from hubkernels.cli.target import find_target
from hubkernels.errors import InputError, Problem
from hubkernels.model.project import PACKAGE_NAME
from hubkernels.model.size import size_text

Cache = Annotated[bool, typer.Option("--cache", help="Empty the cache of all projects instead.")]


def clean(packages: Packages = None, project: ProjectFolder = HERE, cache: Cache = False) -> None:
    """Remove what builds made in build/PACKAGE and, unless packages are named, in build/.hubkernels; nothing else."""
    if cache:
        _empty_cache(project, packages)
        return
    from hubkernels.build.clean import clean  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.places import Places  # noqa: PLC0415

    target = find_target(project, packages or ())
    names = [package.name for package in target.packages]
    if not target.named:
        names += [member.name for member in target.project.unreadable if PACKAGE_NAME.fullmatch(member.name)]
    removed = clean(Places(target.project.root), names, report, work=not target.named)
    if not removed:
        say("nothing to remove")
        return
    columns([(_what_became_of(item.path), os.path.relpath(item.path), size_text(item.size)) for item in removed])
    say(f"freed {size_text(sum(item.size for item in removed))}")


def _what_became_of(path: Path) -> str:
    """The work folder stays, with the lock that another build may be waiting for."""
    return "emptied" if os.path.lexists(path) else "removed"


def _empty_cache(project: Path, packages: list[str] | None) -> None:
    from hubkernels.build.cache import find_cache  # noqa: PLC0415
    from hubkernels.build.places import Places  # noqa: PLC0415

    if packages:
        raise InputError(Problem("the cache is of all projects: --cache takes no packages"))
    found = find_cache(os.environ, Places(project).cache)
    found.require()
    held = found.store.clear()
    say(f"freed {size_text(held.size)}: {held.entries} entries of {found.store.folder}")
