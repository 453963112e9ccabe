"""The verbs, and what becomes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hubkernels import __version__
from hubkernels.cli import (
    bench,
    build,
    check,
    clean,
    create_pyproject,
    doctor,
    explain,
    export,
    init,
    list_variants,
    plan,
    update_build,
)
from hubkernels.cli.console import error
from hubkernels.errors import ENVIRONMENT_LACKS, HubkernelsError

app = typer.Typer(
    name="kernel-builder",
    help="Build, check and run PyTorch kernels from one build.toml.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("build")(build.build)
app.command("plan")(plan.plan)
app.command("explain")(explain.explain)
app.command("list-variants")(list_variants.list_variants)
app.add_typer(check.app, name="check")
app.add_typer(bench.app, name="bench")
app.command("init")(init.init)
app.command("export")(export.export)
app.command("update-build")(update_build.update_build)
app.command("create-pyproject")(create_pyproject.create_pyproject)
app.command("clean")(clean.clean)
app.command("doctor")(doctor.doctor)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"hubkernels {__version__}: kernel-builder and hubkernels are the same command")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print whose command this is.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; that of an interrupt, 130, is typer's."""
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        status = app(args=init.spread_backends(words) if words[:1] == ["init"] else words, standalone_mode=False)
    except OSError as failure:  # the safety net: where one is expected, the error names the way out
        error(f"{failure.strerror or failure}: {failure.filename or 'input or output'}")
        return ENVIRONMENT_LACKS
    except HubkernelsError as failure:
        for problem in failure.problems:
            error(str(problem))
        return failure.exit_code
    except Exception as failure:
        show = getattr(failure, "show", None)  # a usage error of the parser; anything else is a bug and is shown whole
        if show is None:
            raise
        show()
        return int(getattr(failure, "exit_code", 2))
    return status if isinstance(status, int) else 0
