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


def use_sanitizers(builder: Builder, names: str | None) -> None:
    """Make the builder build with sanitizers, where they were asked for, and say how to run the result."""
    if names is None:
        return
    from hubkernels.toolchain.sanitizer import parse_sanitizers, sanitizer_environment  # noqa: PLC0415

    chosen = parse_sanitizers(names)
    builder.sanitize(chosen)
    variables = sanitizer_environment(builder.tools().compiler, chosen, builder.environment)
    report("programs that load it need: " + " ".join(f"{name}={shlex.quote(text)}" for name, text in variables.items()))
