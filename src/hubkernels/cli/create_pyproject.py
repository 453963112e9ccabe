"""`kernel-builder create-pyproject`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hubkernels.cli.console import say
from hubkernels.cli.options import HERE, open_target
from hubkernels.cli.target import is_project, lone_package
from hubkernels.errors import InputError, Problem


def create_pyproject(  # noqa: PLR0913, PLR0917 - typer makes options of parameters
    kernel_dir: Annotated[Path, typer.Argument(metavar="[KERNEL_DIR]", help="Folder of the build.toml.")] = HERE,
    target_dir: Annotated[
        Path | None, typer.Argument(metavar="[TARGET_DIR]", help="Folder of the new files; by default KERNEL_DIR.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace files that are in the way.")] = False,
    unique_id: Annotated[
        str | None, typer.Option(metavar="ID", help="End of the op namespace; by default a hash of the sources.")
    ] = None,
    kernel_sha: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Commit to note in the metadata; by default that of git.")
    ] = None,
    kernel_dirty: Annotated[bool, typer.Option("--kernel-dirty", help="Note that the sources differ from it.")] = False,
) -> None:
    """Write setup.py, pyproject.toml and CMakeLists.txt for an editable install, or for work with CMake."""
    from hubkernels.export.pyproject import render_tree, stamp  # noqa: PLC0415 - `--help` does without
    from hubkernels.host.tree import write_tree  # noqa: PLC0415

    if target_dir is None and is_project(HERE) and not is_project(kernel_dir):
        hint = f"the folder of the new files comes second: `kernel-builder create-pyproject . {kernel_dir}`"
        raise InputError(Problem(f"no build.toml in {kernel_dir}", hint=hint))
    builder, found = open_target(kernel_dir, ())
    package = lone_package(found, "a CMake tree")
    target = target_dir or kernel_dir
    mark = stamp(package, os.environ, unique_id, kernel_sha, dirty=kernel_dirty)
    files = render_tree(package, builder, target, mark)
    write_tree(files, target, overwrite=force, hint="choose another folder, or --force to replace them")
    say(f"wrote {len(files)} files to {target}")
    go = "" if target == HERE else f"cd {target} && "
    say(f"next: {go}pip install --no-build-isolation -e .")
    say(f"  or: {go}cmake -S . -B _cmake -G Ninja && ninja -C _cmake local_install")
    say("local_install writes into build/; `kernel-builder build` makes the artifact there anew")
