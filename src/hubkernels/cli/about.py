"""`kernel-builder completions` and `generate-docs`: verbs about the command line itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hubkernels.check.checks import CHECKS
from hubkernels.cli.console import say

if TYPE_CHECKING:
    from hubkernels.cli.tree import Verb

Shell = Annotated[Literal["bash", "zsh", "fish", "powershell"], typer.Argument(metavar="SHELL", help="The shell.")]


def completions(shell: Shell) -> None:
    """Print what makes a shell complete verbs and options: bash, zsh, fish or powershell."""
    from hubkernels.cli.completions import script  # noqa: PLC0415 - `--help` does without

    say(script(shell, _verbs()).rstrip("\n"))


def generate_docs() -> None:
    """Print the reference of the command line as Markdown: docs/cli-reference.md."""
    from hubkernels.cli.reference import render  # noqa: PLC0415 - `--help` does without

    say(render(_verbs()).rstrip("\n"))


def _verbs() -> tuple[Verb, ...]:
    from dataclasses import replace  # noqa: PLC0415 - `--help` does without

    from hubkernels.cli.app import app  # noqa: PLC0415 - it imports this module
    from hubkernels.cli.tree import verbs  # noqa: PLC0415

    return tuple(replace(verb, known=tuple(CHECKS)) if verb.words == ("check",) else verb for verb in verbs(app))
