"""`kernel-builder bench`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hubkernels.cli.console import report, say, say_json
from hubkernels.cli.options import HERE, Json, ProjectFolder, Variants, open_project
from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.bench.record import Record
    from hubkernels.bench.run import BenchCell, CellResult, Settings

app = typer.Typer(help="Time artifacts beside their peers.", no_args_is_help=True, rich_markup_mode=None)

ALL = "all"
_DIRECTIONS = {"fwd": ("fwd",), "f+b": ("f+b",), "both": ("fwd", "f+b")}


@app.callback()
def _only_verb() -> None:
    """Keep `run` a verb of its own: typer drops the name of a lone one."""


@app.command("run")
def run(  # noqa: PLR0913, PLR0917 - one parameter an option
    op: Annotated[str, typer.Argument(metavar="[OP]", help="Op to time.")] = ALL,
    package: Annotated[list[str] | None, typer.Option("--package", help="Only this package.")] = None,
    variant: Variants = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="Only this dtype, as in bfloat16 or bf16.")] = None,
    shape: Annotated[str | None, typer.Option("--shape", help="Only this shape of the case, by name.")] = None,
    direction: Annotated[
        Literal["fwd", "f+b", "both"], typer.Option("--direction", help="What one call does.")
    ] = "both",
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads; one a core by default.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Per candidate of a cell.")] = 1.0,
    page_faults: Annotated[
        Literal["default", "pretouched"],
        typer.Option("--page-faults", help="Outputs from malloc as it is, or from memory already touched."),
    ] = "pretouched",
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Time the peers of the case too.")] = True,
    peer_file: Annotated[
        Path | None, typer.Option("--peer-file", help="Python file with PEERS: more peers, of one op.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Folder to write the records to.")] = None,
    project: ProjectFolder = HERE,
    json: Json = False,
) -> None:
    """Build what has changed, compare it with float64, then time it beside its peers and a copy."""
    from hubkernels.bench.line import DTYPES, line  # noqa: PLC0415 - `--help` does without
    from hubkernels.bench.run import Settings, Wanted, choose_cells  # noqa: PLC0415
    from hubkernels.host.cpu import usable_cores  # noqa: PLC0415

    wanted = Wanted(None if op == ALL else op, DTYPES.get(dtype or "", dtype), shape, _DIRECTIONS[direction])
    cells = choose_cells(_cells(project, package, variant), wanted)
    if peer_file and len({cell.op for cell in cells}) > 1:
        raise InputError(Problem("--peer-file holds the peers of one op", hint="name the op: `bench run OP`"))
    settings = Settings(threads or usable_cores(), seconds, page_faults, peers, peer_file)
    results = []
    for result in _results(cells, settings):
        results.append(result)
        for record in result.records:
            if not json:
                say(line(record))
            if output:
                _write(record, output)
    _finish(results, json=json)


def _cells(project: Path, packages: Sequence[str] | None, variants: Sequence[str] | None) -> list[BenchCell]:
    """Cells of artifacts that are up to date, so that a record's commit tells what was timed."""
    from hubkernels.bench.run import list_cells  # noqa: PLC0415
    from hubkernels.check.runnable import find_runnable  # noqa: PLC0415

    builder, chosen = open_project(project, packages)
    if not packages:  # those that are named must have cases; of the others, those that have them
        chosen = tuple(package for package in chosen if package.parity) or chosen
    by_name = {package.name: package for package in chosen}
    made = {a.package for a in builder.build_all(chosen, variants or (), report, leave_out=not packages)}
    runnable = [find_runnable(builder, by_name[name], variants or ()) for name in by_name if name in made]
    if not any(each.found for each in runnable):
        raise EnvironmentLacksError(*(each.problem() for each in runnable))
    for each in runnable:
        for why in each.passed_over:
            report(f"not timed: {each.package} {why}")
    return [
        cell
        for each in runnable
        for folder in each.found
        for cell in list_cells(by_name[each.package], folder, os.environ)
    ]


def _results(cells: Sequence[BenchCell], settings: Settings) -> Iterator[CellResult]:
    from hubkernels.bench.run import run_cell  # noqa: PLC0415

    for number, cell in enumerate(cells, start=1):
        report(f"[{number}/{len(cells)}] {cell}")
        yield run_cell(cell, settings, os.environ, datetime.now(timezone.utc).replace(microsecond=0))


def _write(record: Record, folder: Path) -> None:
    from hubkernels.host.files import write_atomically  # noqa: PLC0415

    write_atomically(folder / record.file_name, record.text().encode())


def _finish(results: Sequence[CellResult], *, json: bool) -> None:
    records = [record for result in results for record in result.records]
    if json:
        say_json([record.to_json() for record in records])
    problems = [problem for result in results for problem in result.problems]
    if problems:
        raise CheckFailedError(*problems)
