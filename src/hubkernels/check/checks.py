"""The table of checks. A new one is a function from a subject to an outcome, and a row of `CHECKS`.

The function looks at one package. It imports what it calls itself, so that the other verbs start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from hubkernels.check.verdict import Outcome, Subject
    from hubkernels.check.violation import Violation


class Check(NamedTuple):  # a dataclass costs `--help` four times as much
    """doing: for who waits, with the package's name in place of {}.

    run: raises CheckFailedError for a single finding, and any other HubkernelsError where it cannot look.

    of_artifacts: whether it looks at what is built, which may be of other sources than those that are there.
    """

    name: str
    summary: str
    doing: str
    run: Callable[[Subject], Outcome]
    of_artifacts: bool = False


def _builds(subject: Subject) -> Outcome:
    from hubkernels.check.builds import check_builds  # noqa: PLC0415 - `--help` does without

    names = tuple(_built(subject))
    found = [v for v in check_builds(subject.folder) if not subject.variants or v.variant in names]
    wrong = {violation.variant for violation in found}
    return _found(found, good=(name for name in names if name not in wrong))


def _load(subject: Subject) -> Outcome:
    from hubkernels.check.load import check_load  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.runnable import find_runnable  # noqa: PLC0415
    from hubkernels.check.verdict import Outcome  # noqa: PLC0415

    runnable = find_runnable(subject.builder, subject.package, subject.variants)
    if not runnable.found:
        return Outcome(inapplicable=(runnable.problem(),))
    loaded = [check_load(folder) for folder in runnable.found]
    return Outcome(
        good=tuple(
            f"{a.variant}  {a.op_id}: {', '.join(op for op in a.ops if op not in a.incomplete)}  {a.seconds:.1f} s"
            for a in loaded
        ),
        warnings=tuple(Problem(f"{a.variant}: {op} {why}") for a in loaded for op, why in a.incomplete.items()),
        results=tuple({"variant": a.variant, "id": a.op_id, "ops": list(a.ops)} for a in loaded),
        passed_over=runnable.passed_over,
    )


def _parity(subject: Subject) -> Outcome:
    from hubkernels.check.parity import case_files, check_parity  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.runnable import find_runnable  # noqa: PLC0415
    from hubkernels.check.verdict import Outcome  # noqa: PLC0415

    runnable = find_runnable(subject.builder, subject.package, subject.variants)
    try:
        case_files(subject.package)
    except InputError as missing:
        return Outcome(inapplicable=missing.problems)
    if not runnable.found:
        return Outcome(inapplicable=(runnable.problem(),))
    reports = [check_parity(subject.package, folder, report=subject.report) for folder in runnable.found]
    return Outcome(
        good=tuple(
            f"{report.variant}: {report.passed}/{len(report.rows)} agree with the float64 reference"
            for report in reports
            if not report.violations
        ),
        results=tuple(report.to_json() for report in reports),
        problems=tuple(Problem(str(row), where=report.variant) for report in reports for row in report.violations),
        passed_over=runnable.passed_over,
    )


def _config(subject: Subject) -> Outcome:
    from hubkernels.check.config import check_package  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.verdict import Outcome  # noqa: PLC0415

    report = check_package(subject.package)
    if report.errors:
        raise InputError(*report.errors)
    told = frozenset(subject.package.warnings)  # by loading
    warnings = (warning for warning in report.warnings if warning not in told)
    return Outcome(good=("build.toml and the files that it names",), warnings=tuple(warnings))


def _abi(subject: Subject) -> Outcome:
    from hubkernels.build.artifacts import variants_by_tag  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.abi import check_abi  # noqa: PLC0415
    from hubkernels.config.abi_policy import load_abi_policy  # noqa: PLC0415

    known, policy = variants_by_tag(subject.package, subject.builder.rows), load_abi_policy()
    at_hand = subject.builder.planner.libraries
    reports = [check_abi(folder, known, policy, at_hand) for folder in _built(subject).values()]
    return _found(
        (violation for report in reports for violation in report.violations),
        good=(
            f"{each.variant}: {policy.name}, tables of {policy.date}"
            for each in reports
            if each.libraries and not each.violations
        ),
        warnings=(Problem(note, where=report.variant) for report in reports for note in report.notes),
        passed_over=(
            f"{each.variant}: no library" for each in reports if not (each.libraries or each.violations or each.notes)
        ),
    )


def _isa(subject: Subject) -> Outcome:
    from dataclasses import replace  # noqa: PLC0415 - `--help` does without

    from hubkernels.build.report import texts_alone  # noqa: PLC0415
    from hubkernels.build.select import choose  # noqa: PLC0415
    from hubkernels.check.isa import IsaReport, check_isa  # noqa: PLC0415

    builder, package = subject.builder, subject.package
    found = []
    for variant in choose(builder.decide(package), package, subject.variants):
        plan = builder.plan(package, variant)
        compile_to = partial(builder.compile, plan, package, variant, report=texts_alone(subject.report))
        found.append(check_isa(plan, compile_to, builder.environment))
    read = [report for report in found if isinstance(report, IsaReport)]
    unread = tuple(problem for problem in found if isinstance(problem, Problem))
    outcome = _found(
        (violation for report in read for violation in report.violations),
        good=(f"{report.variant}: {report.objects} objects" for report in read if not report.violations),
        warnings=(warning.problem() for report in read for warning in report.warnings),
    )
    if not read:
        return replace(outcome, inapplicable=unread)
    return replace(outcome, passed_over=tuple(problem.what for problem in unread))


def _reproducible(subject: Subject) -> Outcome:
    from hubkernels.build.artifacts import built  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.select import choose  # noqa: PLC0415
    from hubkernels.check.reproducible import check_reproducible  # noqa: PLC0415

    builder, package = subject.builder, subject.package
    decisions = builder.decide(package)
    chosen = choose(decisions, package, subject.variants)
    why = {each.variant.tag: "; ".join(each.reasons) for each in decisions.rejected}
    others = () if subject.variants else built(subject.folder).keys() - {variant.tag for variant in chosen}
    found = check_reproducible(builder, package, chosen)
    return _found(
        (violation for differing in found.values() for violation in differing),
        good=(f"{tag}: the same bytes twice" for tag, differing in found.items() if not differing),
        passed_over=(f"{tag}: {why.get(tag, 'it is no variant of build.toml now')}" for tag in sorted(others)),
    )


CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        Check("config", "build.toml, and the files that it names", "reading the files of {}", _config),
        Check(
            "abi",
            "libraries load on all systems that their variant promises",
            "reading the libraries of {}",
            _abi,
            of_artifacts=True,
        ),
        Check(
            "builds",
            "names, files and metadata of each artifact, against what the client will demand",
            "reading the artifacts of {}",
            _builds,
            of_artifacts=True,
        ),
        Check(
            "load",
            "each artifact that this machine can run loads: a fresh process, the stock client",
            "loading the artifacts of {}",
            _load,
            of_artifacts=True,
        ),
        Check(
            "parity",
            "each such artifact against its float64 reference, gradients too",
            "running the cases of {}",
            _parity,
            of_artifacts=True,
        ),
        Check(
            "isa",
            "no code of an instruction set outside the files that have its flags",
            "reading the machine code of {}",
            _isa,
        ),
        Check(
            "reproducible",
            "built again elsewhere and under other circumstances, the same bytes",
            "building {} again elsewhere",
            _reproducible,
        ),
    )
}
"""By name, in the order in which they run."""


def _built(subject: Subject) -> Mapping[str, Path]:
    """The built artifacts of the variants that were named, or all. Raises InputError for those that are not built."""
    from hubkernels.build.artifacts import choose_built  # noqa: PLC0415 - `--help` does without

    return choose_built(subject.folder, subject.variants)


def _found(
    violations: Iterable[Violation],
    good: Iterable[str],
    warnings: Iterable[Problem] = (),
    passed_over: Iterable[str] = (),
) -> Outcome:
    from hubkernels.check.verdict import Outcome  # noqa: PLC0415 - `--help` does without

    found = tuple(violations)
    results, problems = tuple(v.to_json() for v in found), tuple(v.problem() for v in found)
    return Outcome(tuple(good), results, problems, tuple(warnings), passed_over=tuple(passed_over))
