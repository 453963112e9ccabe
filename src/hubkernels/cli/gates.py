"""The gates of a release, in their order. A new one is a row of `GATES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import NamedTuple

from hubkernels.bench.line import line
from hubkernels.bench.record import Record
from hubkernels.bench.run import Settings, Wanted, choose_cells, list_cells, run_cell
from hubkernels.check.checks import CHECKS
from hubkernels.check.runnable import find_runnable
from hubkernels.check.verdict import Outcome, State, Subject, Verdict, judge
from hubkernels.cli.console import report
from hubkernels.errors import CHECK_FAILED, HubkernelsError, Problem
from hubkernels.host.cpu import usable_cores
from hubkernels.hub.gates_passed import cases_hash
from hubkernels.hub.records import installed, write_bench, write_parity


class Gate(NamedTuple):
    """why: what it is for. run: looks at one package.

    facts: what it looks at beside the artifacts; where none of it has changed it need not run again. None: it always
    runs, since it takes no time and looks at more than can be told.
    repeat: the command that does this alone, with the package's name in place of {}.
    """

    name: str
    why: str
    run: Callable[[Subject], Verdict]
    facts: Callable[[Subject], Mapping[str, object]] | None
    repeat: str


def _nothing(subject: Subject) -> Mapping[str, object]:  # noqa: ARG001 - as the others
    return {}


def _client(subject: Subject) -> Mapping[str, object]:
    isa = subject.builder.surroundings.get("HUBKERNELS_ISA")
    found = find_runnable(subject.builder, subject.package, ()).found  # on another machine, others
    versions = {"torch": installed("torch"), "kernels": installed("kernels")}
    return {**versions, "isa": isa, "variants": [folder.name for folder in found]}


def cases(subject: Subject) -> Mapping[str, object]:
    return {**_client(subject), "cases": cases_hash(subject.package)}


def _judge(name: str) -> Callable[[Subject], Verdict]:
    return lambda subject: judge(CHECKS[name], subject)


def _parity(subject: Subject) -> Verdict:
    """And the record of it, beside each artifact that was compared."""
    verdict = judge(CHECKS["parity"], subject)
    if verdict.state == "ok":
        for result in verdict.outcome.results:
            write_parity(subject.folder / result["variant"], result)
    return verdict


def _bench(subject: Subject) -> Verdict:
    try:
        outcome = _timed(subject) if subject.package.parity else _no_cases(subject)
    except HubkernelsError as error:
        state: State = "failed" if error.exit_code == CHECK_FAILED else "not run"
        return Verdict("bench", subject.package.name, state, Outcome(problems=error.problems), error.exit_code)
    if outcome.problems:
        return Verdict("bench", subject.package.name, "failed", outcome, CHECK_FAILED)
    return Verdict("bench", subject.package.name, "skipped" if outcome.inapplicable else "ok", outcome)


def _no_cases(subject: Subject) -> Outcome:
    return Outcome(inapplicable=(Problem(f"{subject.package.name} names no case file"),))


def _timed(subject: Subject) -> Outcome:
    """Every cell that cases offer for benchmarks, of each artifact that runs here; records are written at the end."""
    builder, runnable = subject.builder, find_runnable(subject.builder, subject.package, ())
    records: list[Record] = []
    problems: list[Problem] = []
    for folder in runnable.found:
        cells = choose_cells(list_cells(subject.package, folder, builder.surroundings), Wanted())
        for number, cell in enumerate(cells, start=1):
            report(f"[{number}/{len(cells)}] {cell}")
            now = datetime.now(timezone.utc).replace(microsecond=0)
            result = run_cell(cell, Settings(usable_cores(), 1.0, "pretouched"), builder.surroundings, now)
            records += result.records
            problems += result.problems
        if not problems:
            write_bench(folder, [record for record in records if record.variant == folder.name])
    if not runnable.found:
        return Outcome(inapplicable=(runnable.problem(),))
    return Outcome(good=tuple(map(line, records)), problems=tuple(problems), passed_over=runnable.passed_over)


GATES: Mapping[str, Gate] = {
    gate.name: gate
    for gate in (
        *(
            Gate(name, CHECKS[name].summary, _judge(name), facts, f"check {name} {{}}")
            for name, facts in (
                ("config", None),
                ("abi", _nothing),
                ("builds", _nothing),
                ("load", _client),
                ("reproducible", _nothing),
            )
        ),
        Gate("parity", CHECKS["parity"].summary, _parity, cases, "check parity {}"),
        Gate("bench", "times beside peers, as records", _bench, cases, "bench run --package {}"),
    )
}
"""By name, in the order in which they are passed; `bench` only where it is asked for."""
