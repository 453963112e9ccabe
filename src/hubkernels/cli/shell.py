"""`kernel-builder devshell` and `testshell`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import note, report, say, say_json
from hubkernels.cli.options import (
    HERE,
    Cores,
    Debug,
    Jobs,
    Json,
    MaxJobs,
    Memory,
    Packages,
    ProjectFolder,
    Verbose,
    open_target,
    settings,
    settle,
)
from hubkernels.cli.target import lone_package
from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder

OneVariant = Annotated[
    str | None,
    typer.Option("--variant", metavar="TAG", help="Its variant; by default the first one built here."),
]
Command = Annotated[
    str | None, typer.Option("--command", "-c", help="Run this command by sh and end, instead of a shell.")
]
PrintEnv = Annotated[
    bool, typer.Option("--print-env", help="Print the variables as `export` lines, or as JSON, and start nothing.")
]


def devshell(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: OneVariant = None,
    project: ProjectFolder = HERE,
    command: Command = None,
    print_env: PrintEnv = False,
    json: Json = False,
    _max_jobs: MaxJobs = None,
    _cores: Cores = None,
    _verbose: Annotated[bool, typer.Option("--print-build-logs", "-L", hidden=True)] = False,
) -> None:
    """Start a shell with the compiler, flags and search paths of a variant, and its artifact if it is built."""
    from hubkernels.build.select import choose  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.shell import compiler_variables, importable, python_variables  # noqa: PLC0415
    from hubkernels.model.variant import Variant  # noqa: PLC0415

    builder, target = open_target(project, packages)
    package = lone_package(target, "a shell")
    chosen = choose(builder.decide(package), package, [variant] if variant else ())[0]
    if not isinstance(chosen, Variant):
        raise InputError(
            Problem(f"{package.name} is of Python files alone: there is nothing to compile", hint="`testshell`")
        )
    folder = importable(package, chosen.tag, builder.places)
    variables = {
        **compiler_variables(package, chosen, builder.tools(chosen), os.environ),
        **python_variables([folder] if folder else [], os.environ),
    }
    _enter(builder, variables, command, print_env=print_env, json=json)


def serve(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: OneVariant = None,
    project: ProjectFolder = HERE,
    command: Command = None,
    print_env: PrintEnv = False,
    jobs: Jobs = None,
    memory: Memory = None,
    verbose: Verbose = False,
    debug: Debug = False,
    json: Json = False,
    _max_jobs: MaxJobs = None,
    cores: Cores = None,
) -> None:
    """Build what has changed, then start a shell where kernels are found: by import, and by the client's get_kernel."""
    from hubkernels.build.shell import client_variables, importable, python_variables  # noqa: PLC0415

    builder, target = open_target(project, packages, settings(jobs or cores, memory, verbose=verbose, debug=debug))
    tags = [variant] if variant else []
    first: dict[str, str] = {}
    for artifact in builder.build_all(target.packages, tags, report, leave_out=not target.named):
        first.setdefault(artifact.package, artifact.variant)
    built = [package for package in target.packages if package.name in first]
    folders = [importable(package, first[package.name], builder.places) for package in built]
    for_client, without = client_variables(built, builder.places, os.environ)
    for line in without:
        report(line)
    variables = {**python_variables([folder for folder in folders if folder], os.environ), **for_client}
    _enter(builder, variables, command, print_env=print_env, json=json)


def _enter(builder: Builder, variables: Mapping[str, str], command: str | None, *, print_env: bool, json: bool) -> None:
    """Print the variables, or go on as a shell that has them."""
    from hubkernels.build.shell import cut_by_a_colon  # noqa: PLC0415 - `--help` does without

    if why := cut_by_a_colon(builder.project.root):
        report(why)
    if print_env:
        import shlex  # noqa: PLC0415 - `--help` does without

        lines = (f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        say_json(dict(variables)) if json else say("\n".join(lines))
        return
    from hubkernels.host.process import become  # noqa: PLC0415 - `--help` does without

    settle()  # this process is the shell from here on

    environment = {**os.environ, **variables}
    shell = ("/bin/sh", "-c", command) if command is not None else (environment.get("SHELL") or "/bin/sh",)
    if command is None:
        note(f"{' '.join(variables)} are set; `exit` leaves this shell")
    sys.stdout.flush()
    become(shell, env=environment)
