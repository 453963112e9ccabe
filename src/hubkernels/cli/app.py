"""The verbs, and what becomes of their errors."""

from __future__ import annotations

import copy
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hubkernels import __version__
from hubkernels.cli import (
    about,
    bench,
    build,
    check,
    check_abi,
    clean,
    create_pyproject,
    doctor,
    explain,
    export,
    hub,
    init,
    keygen,
    list_variants,
    pins,
    plan,
    publish,
    release,
    shell,
    toolchain,
    update_build,
    verify,
    verify_signature,
)
from hubkernels.cli.console import fail, note
from hubkernels.cli.hash import hash_artifacts
from hubkernels.cli.options import settle
from hubkernels.cli.signals import terminable
from hubkernels.errors import ENVIRONMENT_LACKS, INPUT_WRONG, HubkernelsError, Problem

app = typer.Typer(
    name="kernel-builder",
    help="Build, check and run PyTorch kernels from one build.toml.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("build", short_help="Build artifacts; what has not changed stays.")(build.build)
app.command("build-and-copy", hidden=True, help="The same as `build`.")(build.build)
app.command("plan", short_help="Print every command of a build, as JSON.")(plan.plan)
app.command("explain", short_help="Tell what a build would make, and why.")(explain.explain)
app.command("list-variants", short_help="Print every variant, and why some are not built.")(list_variants.list_variants)
app.command("check", short_help="Check what is built: all checks, or those named.")(check.check)
for name in check.ALIASES:
    app.command(f"check-{name}", hidden=True)(check_abi.check_abi if name == "abi" else check.alias(name))
app.add_typer(bench.app, name="bench")
app.add_typer(hub.app, name="hub")
app.add_typer(toolchain.app, name="toolchain")
app.command("publish", short_help="Publish what is built to a Hub, and read it back.")(publish.publish)
app.command("build-and-upload", hidden=True, help="Build what has changed, then publish it.")(publish.build_and_publish)
app.command("upload", hidden=True, help="The same as `publish`.")(publish.publish)
app.command("lock", short_help="Pin kernels to commits and hashes.")(pins.lock)
app.command("prefetch", short_help="Fetch pinned kernels, to load without a network.")(pins.prefetch)
app.command("audit", short_help="Tell what is known of each pinned kernel.")(pins.audit)
app.command("verify", short_help="Rebuild what was published, and compare.")(verify.verify)
app.command("verify-signature", short_help="Check who signed a kernel, and its files.")(
    verify_signature.verify_signature
)
app.command("keygen", short_help="Make a key to sign with where there is no network.")(keygen.keygen)
app.command("release", short_help="Build, check, publish and load back, gate by gate.")(release.release)
app.command("hash", short_help="Write digests into metadata.json.")(hash_artifacts)
app.command("devshell", short_help="Start a shell with a variant's compiler and flags.")(shell.devshell)
app.command("testshell", short_help="Build, then start a shell where kernels load.")(shell.serve)
app.command("init", short_help="Start a project that builds.")(init.init)
app.command("export", short_help="Write a package as a project or a wheel.")(export.export)
app.command("update-build", short_help="Bring a build.toml to edition 5.")(update_build.update_build)
app.command("create-pyproject", short_help="Write setup.py and CMake files for upstream.")(
    create_pyproject.create_pyproject
)
app.command("clean", short_help="Remove what builds made.")(clean.clean)
app.command("doctor", short_help="Tell what this machine has and lacks.")(doctor.doctor)
app.command("completions", short_help="Print completions for a shell.")(about.completions)
app.command("generate-docs", hidden=True)(about.generate_docs)


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


def _parser(words: Sequence[str]) -> typer.Typer:
    """The app with the verb alone that is called: typer builds a parser for each one that it is given."""
    called = [command for command in app.registered_commands if words and command.name == words[0]]
    if not called:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = called, []
    return alone


def _hide_bars_from_logs() -> None:
    """The Hub's client, which reads this when it is imported, draws bars where nobody watches, too: a line a step."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; that of an interrupt, 130, is typer's, and 143 that of SIGTERM."""
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    wishes = words[: words.index("--")] if "--" in words else words  # known before they are parsed: that may fail too
    _hide_bars_from_logs()
    try:
        spread = init.spread_backends(words) if words[:1] == ("init",) else words
        with terminable():
            try:
                status = _parser(words)(args=list(spread), prog_name="kernel-builder", standalone_mode=False)
            finally:
                settle()
    except SystemExit as leaving:
        # typer's way out where the reader has gone, as in `| head`
        if isinstance(leaving.__context__, BrokenPipeError):
            return 128 + signal.SIGPIPE
        raise
    except OSError as failure:  # the safety net: where one is expected, the error names the way out
        if "--debug" in wishes:
            raise
        problems = (Problem(f"{failure.strerror or failure}: {failure.filename or 'input or output'}"),)
        return fail(problems, ENVIRONMENT_LACKS, json="--json" in wishes)
    except HubkernelsError as failure:
        if "--debug" in wishes:
            from hubkernels.cli.debug import describe  # noqa: PLC0415 - only then

            note(describe(failure, os.environ))
        return fail(failure.problems, failure.exit_code, json="--json" in wishes)
    except Exception as failure:
        show = getattr(failure, "show", None)  # the parser's own errors have it; anything else is a bug
        if show is None:
            raise
        if type(failure).__name__ != "NoArgsIsHelpError":
            from hubkernels.cli.usage import usage_problem  # noqa: PLC0415 - only then

            return fail((usage_problem(failure),), INPUT_WRONG, json="--json" in wishes)
        show()
        return INPUT_WRONG
    return status if isinstance(status, int) else 0
