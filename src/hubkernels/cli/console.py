"""How verbs print: results to standard output, progress and errors to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import typer

from hubkernels.cli.pace import Pace, usual_pace
from hubkernels.errors import Problem
from hubkernels.model.going import Going

if TYPE_CHECKING:
    from hubkernels.build.report import Event


def say(text: str = "") -> None:
    typer.echo(text)


def _dumps(value: object, indent: int | None = None) -> str:
    import json  # noqa: PLC0415 - `--help` does without

    return json.dumps(value, indent=indent, ensure_ascii=False)


def say_json(value: object) -> None:
    typer.echo(_dumps(value, indent=2))


def note(text: str) -> None:
    if not isinstance(text, Going) or _pace().due():
        typer.echo(text, err=True)


@cache
def _pace() -> Pace:
    return usual_pace()


def say_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        note(f"error: {problem}")


def say_warnings(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        note(f"warning: {warning}")


def fail(problems: Sequence[Problem], code: int, *, json: bool) -> int:
    """Tell why a verb ends, and return its exit code.

    json: as one line, the last one on standard error, which progress may precede; standard output is for results.
    """
    if json:
        note(_dumps({"exit-code": code, "problems": [problem.to_json() for problem in problems]}))
    else:
        say_problems(problems)
    return code


def report(event: Event) -> None:
    """Print what a running build tells."""
    from hubkernels.build.report import Progress  # noqa: PLC0415 - `--help` does without

    if isinstance(event, Progress):
        note(f"[{event.finished}/{event.total}] {event.label}")
    else:
        note(event if isinstance(event, str) else event.what)


def columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with aligned columns, the last one ragged."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        say("  ".join((*cells, row[-1])).rstrip())
