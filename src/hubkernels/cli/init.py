"""`kernel-builder init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hubkernels.cli.console import say
from hubkernels.cli.options import HERE


def init(
    path: Annotated[Path, typer.Argument(help="Folder of the new project; it is made when it does not exist.")] = HERE,
    name: Annotated[
        str | None, typer.Option(metavar="[OWNER/]NAME", help="Name on the Hub; the folder's name by default.")
    ] = None,
    license_id: Annotated[str, typer.Option("--license", metavar="ID", help="SPDX id.")] = "Apache-2.0",
    backends: Annotated[list[str] | None, typer.Option(help="Backends to start with: cpu. May be given again.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are in the way.")] = False,
) -> None:
    """Start a project that builds: build.toml, a stable-ABI binding, a kernel in two ISAs, layers and tests."""
    from hubkernels.init.scaffold import check_backends, parse_start, render, write  # noqa: PLC0415 - `--help` does without

    check_backends(tuple(backends or ()))
    start = parse_start(path.resolve().name.replace("_", "-") if name is None else name, license_id)
    files = render(start)
    write(files, path, overwrite=overwrite)
    say(f"started {start.name} in {path}: {len(files)} files")
    say(f"next: {'' if path == HERE else f'cd {path} && '}kernel-builder build && pytest tests")
