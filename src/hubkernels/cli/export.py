"""`kernel-builder export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import report, say, say_warnings
from hubkernels.cli.options import HERE, ProjectFolder, Variants, open_target
from hubkernels.cli.target import lone_package
from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.model.project import Package

_NEEDS = "export needs a folder to write to, and takes --variant and --output with --wheel only"


def export(  # noqa: PLR0913, PLR0917 - typer makes options of parameters
    package: Annotated[
        str | None,
        typer.Argument(
            metavar="[KERNEL_DIR|PACKAGE]", help="Folder of the build.toml, or a package of it; --wheel does without."
        ),
    ] = None,
    folder: Annotated[Path | None, typer.Argument(metavar="[DEST]", help="Folder of the new project.")] = None,
    wheel: Annotated[bool, typer.Option("--wheel", help="Write a pip wheel of each built variant instead.")] = False,
    variant: Variants = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="With --wheel: folder of the wheels.")] = HERE,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an earlier export.")] = False,
    project: ProjectFolder = HERE,
) -> None:
    """Write one package as a project of its own in upstream's form, or its artifacts as pip wheels."""
    if wheel:
        if folder is not None or force:
            raise InputError(Problem("--wheel takes no DEST and no --force", hint="name the folder with --output"))
        builder, target = open_target(project, [package] if package else ())
        _wheels(builder, lone_package(target, "a wheel"), variant or [], output)
        return
    from hubkernels.export.project import export_project  # noqa: PLC0415 - `--help` does without

    if package is None or folder is None or variant or output != HERE:
        raise InputError(Problem(_NEEDS, hint=f"kernel-builder export {package or 'PACKAGE'} FOLDER, or --wheel"))
    builder, target = open_target(project, [package])
    chosen = lone_package(target, "an export")
    done = export_project(chosen, builder, folder, report, force=force)
    say(f"exported {chosen.name} to {folder}: {len(done.files)} files")
    if done.checked:
        say(f"compared what the compiler reads: {', '.join(done.checked)}")


def _wheels(builder: Builder, package: Package, tags: Sequence[str], output: Path) -> None:
    from hubkernels.build.state import stale  # noqa: PLC0415 - `--help` does without
    from hubkernels.export.files import licences  # noqa: PLC0415
    from hubkernels.export.variants import built_variants, refuse_rivals  # noqa: PLC0415
    from hubkernels.export.wheel import plan_wheel, write_wheel  # noqa: PLC0415

    built = built_variants(package, builder.places.package(package.name), tags)
    if not tags:
        refuse_rivals(package, built.values())
    say_warnings(stale(builder, package, tags))
    terms = licences(package, builder.project.root, report)
    wheels = [plan_wheel(package, variant, folder, terms) for folder, variant in built.items()]
    for wheel in wheels:
        say(str(write_wheel(wheel, output, _epoch(os.environ.get("SOURCE_DATE_EPOCH")))))


def _epoch(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        where = "environment: SOURCE_DATE_EPOCH"
        raise InputError(Problem(f"{text!r} is not a time in seconds since 1970", where=where))
    return None if text is None else int(text)
