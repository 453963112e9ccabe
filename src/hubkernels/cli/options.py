"""Options that several verbs share, and what they lead to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import warnings
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
HERE = Path()


def open_project(
    folder: Path, packages: Sequence[str] | None, jobs: int | None = None
) -> tuple[Builder, tuple[Package, ...]]:
    """The builder of a project on this machine, and the packages that were named."""
    from hubkernels.build.pipeline import Builder, find_packages  # noqa: PLC0415 - `--help` does without
    from hubkernels.config import load_project  # noqa: PLC0415

    project = load_project(folder)
    builder, chosen = Builder(project, os.environ, jobs or usable_cores()), find_packages(project, packages or ())
    warnings(dict.fromkeys(warning for package in chosen for warning in package.warnings))
    return builder, chosen
