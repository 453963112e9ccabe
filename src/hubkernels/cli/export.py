"""`kernel-builder export`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hubkernels.cli.console import report, say
from hubkernels.cli.options import HERE, ProjectFolder, Variants, open_project
from hubkernels.errors import InputError, Problem

_NEEDS = "export needs a folder to write to, and takes --variant and --output with --wheel only"


def export(  # noqa: PLR0913, PLR0917 - typer makes options of parameters
    package: Annotated[str, typer.Argument(metavar="PACKAGE", help="A package of the build.toml.")],
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
        _wheels(package, variant or [], output, project)
        return
    from hubkernels.export.project import export_project  # noqa: PLC0415 - `--help` does without

    if folder is None or variant or output != HERE:
        raise InputError(Problem(_NEEDS, hint=f"kernel-builder export {package} FOLDER, or --wheel"))
    builder, (chosen,) = open_project(project, [package])
    done = export_project(chosen, builder, folder, report, force=force)
    say(f"exported {chosen.name} to {folder}: {len(done.files)} files")
    if done.checked:
        say(f"compared what the compiler reads: {', '.join(done.checked)}")


def _wheels(name: str, tags: Sequence[str], output: Path, project: Path) -> None:
    from hubkernels.build.many import find_packages  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.places import Places  # noqa: PLC0415
    from hubkernels.config import load_project  # noqa: PLC0415
    from hubkernels.export.project import licences  # noqa: PLC0415
    from hubkernels.export.variants import built_variants  # noqa: PLC0415
    from hubkernels.export.wheel import plan_wheel, write_wheel  # noqa: PLC0415

    found = load_project(project)
    (package,) = find_packages(found, [name])
    built = built_variants(package, Places(found.root).package(package.name), tags)
    terms = licences(package, found.root, report)
    wheels = [plan_wheel(package, variant, folder, terms) for folder, variant in built.items()]
    for wheel in wheels:
        say(str(write_wheel(wheel, output, _epoch(os.environ.get("SOURCE_DATE_EPOCH")))))


def _epoch(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        where = "environment: SOURCE_DATE_EPOCH"
        raise InputError(Problem(f"{text!r} is not a time in seconds since 1970", where=where))
    return None if text is None else int(text)
