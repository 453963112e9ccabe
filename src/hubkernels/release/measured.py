"""What leaves a record beside each artifact: parity, checked alone or in a release, and the times of its ops."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from hubkernels.bench.line import line
from hubkernels.bench.record import Record
from hubkernels.bench.run import CellResult, Settings, Wanted, choose_cells, list_cells, run_cell
from hubkernels.build.artifacts import built
from hubkernels.check.checks import CHECKS, Check
from hubkernels.check.runnable import find_runnable
from hubkernels.check.verdict import Outcome, Subject, Verdict
from hubkernels.check.verdict import judge as judge_alone
from hubkernels.errors import Problem
from hubkernels.host.cpu import usable_cores
from hubkernels.hub.records import digest_in, write_bench, write_parity


def judge(each: Check, subject: Subject) -> Verdict:
    """With the record of what was found, where the check is of parity."""
    return _with_record(each, subject) if each.name == PARITY else judge_alone(each, subject)


def _with_record(each: Check, subject: Subject) -> Verdict:
    """Of the bytes that were there before and after.

    One a variant, of the machine that compared it last: what another left beside what cannot run here stays.
    """
    before = {folder: digest_in(folder) for folder in built(subject.folder).values()}
    verdict = judge_alone(each, subject)
    if verdict.state == "ok":
        found = {subject.folder / result["variant"]: result for result in verdict.outcome.results}
        for folder in before.keys() & found.keys():
            write_parity(folder, before[folder], found[folder])
    return verdict


def parity(subject: Subject) -> Verdict:
    return judge(CHECKS[PARITY], subject)


def bench(subject: Subject) -> Verdict:
    return judge_alone(BENCH, subject)


def _bench(subject: Subject) -> Outcome:
    """Every cell that cases offer for benchmarks, of each artifact that runs here."""
    if not subject.package.parity:
        return Outcome(inapplicable=(Problem(f"{subject.package.name} names no case file"),))
    runnable = find_runnable(subject.builder, subject.package, ())
    if not runnable.found:
        return Outcome(inapplicable=(runnable.problem(),))
    results = [result for folder in runnable.found for result in _timed(subject, folder)]
    return Outcome(
        good=tuple(line(record) for result in results for record in result.records),
        problems=tuple(problem for result in results for problem in result.problems),
        passed_over=runnable.passed_over,
    )


def _timed(subject: Subject, folder: Path) -> list[CellResult]:
    """Of one artifact. Its record is written once all of it is timed, and nothing was wrong."""
    digest, surroundings = digest_in(folder), subject.builder.surroundings
    cells = choose_cells(list_cells(subject.package, folder, surroundings), Wanted())
    results: list[CellResult] = []
    for number, cell in enumerate(cells, start=1):
        subject.report(f"[{number}/{len(cells)}] {cell}")
        now = datetime.now(timezone.utc).replace(microsecond=0)
        results.append(run_cell(cell, Settings(usable_cores(), 1.0, "pretouched"), surroundings, now))
    if not any(result.problems for result in results):
        records: list[Record] = [record for result in results for record in result.records]
        write_bench(folder, digest, records)
    return results


PARITY = "parity"
BENCH = Check("bench", "times beside peers, as records", "timing the ops of {}", _bench)
