"""Options that several verbs share, and what they lead to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import report, warnings
from hubkernels.cli.since import only_affected, unreadable_since
from hubkernels.host.cpu import usable_cores

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.model.project import Package

Packages = Annotated[
    list[str] | None, typer.Argument(metavar="[PACKAGE]...", help="Packages of the build.toml; all when none is named.")
]
ProjectFolder = Annotated[Path, typer.Option("--project", "-C", help="Folder of the build.toml.")]
Variants = Annotated[list[str] | None, typer.Option("--variant", help="Only this variant; may be given again.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Commands at a time; one a core by default.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="REF", help="Only packages that a change since this commit affects."),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first package that fails.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HERE = Path()


def open_project(
    folder: Path, packages: Sequence[str] | None, since: str | None = None
) -> tuple[Builder, tuple[Package, ...]]:
    """The builder of a project on this machine, and the packages that were named, or all; since: those affected."""
    from hubkernels.build.many import refuse_unreadable  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_readable(folder, packages)
    if not packages:
        refuse_unreadable(unreadable_since(builder, since))
    return builder, only_affected(builder, chosen, since)


def open_readable(
    folder: Path, packages: Sequence[str] | None, jobs: int | None = None
) -> tuple[Builder, tuple[Package, ...]]:
    """As `open_project`, for verbs that do what they can before they tell of members that cannot be read."""
    from hubkernels.build.many import find_packages  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.pipeline import Builder  # noqa: PLC0415
    from hubkernels.config import read_project  # noqa: PLC0415

    project = read_project(folder)
    builder, chosen = Builder(project, os.environ, jobs or usable_cores()), find_packages(project, packages or ())
    warnings(dict.fromkeys(warning for package in chosen for warning in package.warnings))
    return builder, chosen


def built_here(builder: Builder, packages: Sequence[Package]) -> tuple[Package, ...]:
    """Those with a variant that can be built here; tells of the others."""
    found = []
    for package in packages:
        if builder.decide(package).accepted:
            found.append(package)
        else:
            report(f"{package.name}: no variant can be built here; `kernel-builder list-variants` tells why")
    return tuple(found)
