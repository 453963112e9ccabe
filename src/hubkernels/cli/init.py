"""`kernel-builder init`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from hubkernels.cli.console import say
from hubkernels.cli.options import HERE
from hubkernels.errors import InputError, Problem

_TESTS_NEED = {"torch": "torch", "kernels": "'hubkernels[client]'", "pytest": "pytest"}
"""What the tests of a new project import, and what brings it; a build needs none of it."""


def init(  # noqa: PLR0913, PLR0917 - typer makes options of parameters
    path: Annotated[Path, typer.Argument(help="Folder of the new project; it is made when it does not exist.")] = HERE,
    name: Annotated[
        str | None, typer.Option(metavar="[OWNER/]NAME", help="Name on the Hub; the folder's name by default.")
    ] = None,
    license_id: Annotated[str, typer.Option("--license", metavar="ID", help="SPDX id.")] = "Apache-2.0",
    backends: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME...",
            help="Backends to start with: cpu, cuda, rocm, xpu or all; default: cpu, with --noarch all.",
        ),
    ] = None,
    workspace: Annotated[bool, typer.Option("--workspace", help="Start a workspace, with a parity case.")] = False,
    noarch: Annotated[bool, typer.Option("--noarch", help="Start with Python files alone: Triton and torch.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are in the way.")] = False,
) -> None:
    """Start a project that builds: build.toml, sources for each backend, layers, tests, a benchmark and a card."""
    from hubkernels.host.tree import write_tree  # noqa: PLC0415 - `--help` does without
    from hubkernels.init.scaffold import choose_backends, parse_start, render  # noqa: PLC0415
    from hubkernels.model.project import NAME_RULE, PACKAGE_NAME  # noqa: PLC0415

    if workspace and noarch:
        raise InputError(Problem("a workspace starts with a compiled package", hint="--workspace or --noarch"))
    form = "workspace" if workspace else "noarch" if noarch else "upstream"
    folder = Path(os.path.realpath(path)).name
    text = folder.replace("_", "-") if name is None else name
    if name is None and not PACKAGE_NAME.fullmatch(text):
        raise InputError(Problem(f"the folder's name, {folder}, is no package name", hint=f"--name: {NAME_RULE}"))
    start = parse_start(text, license_id, choose_backends(backends or (), form), form)
    files = render(start)
    write_tree(files, path, overwrite=overwrite, hint="choose another folder, or --overwrite them")
    say(f"started {start.name} in {path}: {len(files)} files")
    there = "" if path == HERE else f"cd {path} && "
    builds = noarch or "cpu" in start.backends
    say(f"next: {there}kernel-builder {'build && pytest tests' if builds else 'list-variants # what is not built yet'}")
    if lacking := [what for module, what in _TESTS_NEED.items() if builds and find_spec(module) is None]:
        say(f"      the tests need what is not here: pip install {' '.join(lacking)}")
    if not any(path.glob("LICEN[CS]E*")):
        say(f"      write the text of {start.license} to LICENSE: it goes along with what is exported")


def spread_backends(arguments: Sequence[str]) -> list[str]:
    """Spell ``--backends a b`` as ``--backends a --backends b``: upstream's option takes what follows it."""
    found: list[str] = []
    open_option = False
    for word in arguments:
        if open_option and not word.startswith("-") and found[-1] != "--backends":
            found.append("--backends")
        open_option = word == "--backends" or (open_option and not word.startswith("-"))
        found.append(word)
    return found
