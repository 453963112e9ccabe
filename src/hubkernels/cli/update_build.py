"""`kernel-builder update-build`."""

from __future__ import annotations

import difflib
from pathlib import Path
from stat import S_IMODE
from typing import Annotated

import typer

from hubkernels.cli.console import say
from hubkernels.cli.options import HERE
from hubkernels.errors import CheckFailedError, Problem
from hubkernels.host.files import write_atomically


def update_build(
    kernel_dir: Annotated[Path, typer.Argument(help="Folder of the build.toml, or of several such folders.")] = HERE,
    license_id: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="SPDX id, for files of an edition that asked for none."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 1 if a file is older.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print what changes, and write nothing.")] = False,
) -> None:
    """Bring a build.toml of any older edition to edition 5, in place; comments, order and form stay."""
    from hubkernels.config.edition import MIGRATE, NEWEST_EDITION  # noqa: PLC0415 - `--help` does without
    from hubkernels.config.migrate import migrate_all  # noqa: PLC0415

    older: list[Problem] = []
    for migration in migrate_all(kernel_dir, license_id):
        path = migration.path
        if migration.edition == NEWEST_EDITION:
            say(f"{path} is of edition {NEWEST_EDITION}")
            continue
        older.append(Problem(f"{path} is of edition {migration.edition}", hint=f"`{MIGRATE} {path.parent}`"))
        if diff:
            old, new = migration.old.splitlines(), migration.text.splitlines()
            name = f"{path} (edition {NEWEST_EDITION})"
            say("\n".join(difflib.unified_diff(old, new, str(path), name, lineterm="")))
        elif not check:
            write_atomically(path.resolve(), migration.text.encode(), S_IMODE(path.stat().st_mode))
            say(f"{path}: edition {migration.edition} is now edition {NEWEST_EDITION}")
    if check and older:
        raise CheckFailedError(*older)
