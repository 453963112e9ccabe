"""How verbs print: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from hubkernels.errors import Problem

if TYPE_CHECKING:
    from hubkernels.build.report import Progress


def say(text: str = "") -> None:
    typer.echo(text)


def say_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def error(text: str) -> None:
    typer.echo(f"error: {text}", err=True)


def warnings(found: Iterable[Problem]) -> None:
    for problem in found:
        typer.echo(f"warning: {problem}", err=True)


def report(event: Progress | str) -> None:
    """Print what a running build tells."""
    line = event if isinstance(event, str) else f"[{event.finished}/{event.total}] {event.label}"
    typer.echo(line, err=True)


def columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with aligned columns, the last one ragged."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        say("  ".join((*cells, row[-1])).rstrip())


def facts(values: Mapping[str, Any]) -> None:
    """Print names and values as two columns."""
    columns([(name, str(value)) for name, value in values.items()])


def size_text(size: int) -> str:
    """Spell a number of bytes for people: ``1.2 MB``."""
    if size < 1000:  # noqa: PLR2004 - the step between units
        return f"{size} B"
    unit, name = next((10**power, name) for power, name in ((9, "GB"), (6, "MB"), (3, "kB")) if size >= 10**power)
    return f"{size / unit:.1f} {name}"
