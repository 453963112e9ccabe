"""`kernel-builder build --sanitize`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import report

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder

Sanitize = Annotated[
    str | None,
    typer.Option(
        "--sanitize",
        metavar="address,undefined",
        help="Build for tests, below build/.hubkernels/sanitized: stop at the first bad access or undefined operation.",
    ),
]


def chosen_sanitizers(names: str | None) -> tuple[str, ...]:
    from hubkernels.toolchain.sanitizer import parse_sanitizers  # noqa: PLC0415 - `--help` does without

    return () if names is None else parse_sanitizers(names)


def tell_how_to_run(builder: Builder) -> None:
    """Say what programs need that load what is built with sanitizers."""
    from hubkernels.toolchain.sanitizer import sanitizer_environment  # noqa: PLC0415 - `--help` does without

    chosen = builder.settings.sanitizers
    variables = sanitizer_environment(builder.tools().compiler, chosen, builder.environment)
    report("programs that load it need: " + " ".join(f"{name}={shlex.quote(text)}" for name, text in variables.items()))
