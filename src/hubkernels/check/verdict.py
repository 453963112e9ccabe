"""What a check looks at, what it finds, and what becomes of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Report, told_if_long
from hubkernels.build.state import stale
from hubkernels.check.checks import Check
from hubkernels.check.client import HungError
from hubkernels.errors import CHECK_FAILED, INPUT_WRONG, HubkernelsError, Problem
from hubkernels.model.project import Package

State = Literal["ok", "failed", "skipped", "not run"]


@dataclass(frozen=True)
class Subject:
    """What one check looks at, and who hears meanwhile. variants: those that were named; none stands for all."""

    builder: Builder
    package: Package
    report: Report
    variants: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the package's artifacts."""
        return self.builder.places.package(self.package.name)

    @property
    def debug(self) -> bool:
        """Whether somebody wants to know all of an error."""
        return self.builder.settings.keep_scratch

    @cached_property
    def stale(self) -> tuple[Problem, ...]:
        """The artifacts among these that a build would make anew, as warnings."""
        return stale(self.builder, self.package, self.variants)


@dataclass(frozen=True)
class Outcome:
    """What a check found in one package.

    good: a line for each thing that is as it should be. results: what was found, for JSON. problems: what is wrong.
    warnings: what is not wrong, and yet to be known. inapplicable: why there was nothing to look at.
    passed_over: what was not looked at, and why not.
    """

    good: tuple[str, ...] = ()
    results: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    inapplicable: tuple[Problem, ...] = ()
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What became of one check of one package."""

    check: str
    package: str
    state: State
    outcome: Outcome
    code: int = 0

    def rows(self) -> list[tuple[str, ...]]:
        head = (self.check, self.package)
        rows: list[tuple[str, ...]] = [("ok", *head, line) for line in self.outcome.good]
        rows += [("-", *head, line) for line in self.outcome.passed_over]
        if self.state == "failed":
            count = len(self.outcome.problems)
            rows.append(("failed", *head, f"{count} problem{'s' if count > 1 else ''}, told below"))
        elif self.state != "ok":
            why = (*self.outcome.problems, *self.outcome.inapplicable)
            rows.append((self.state, *head, "; ".join(_on_one_line(problem.what) for problem in why)))
        return rows

    def to_json(self) -> dict[str, Any]:
        why = (*self.outcome.problems, *self.outcome.inapplicable)
        return {
            "check": self.check,
            "package": self.package,
            "state": self.state,
            "results": list(self.outcome.results),
            "passed-over": list(self.outcome.passed_over),
            "problems": [problem.to_json() for problem in why],
            "warnings": [warning.to_json() for warning in self.outcome.warnings],
        }


def judge(each: Check, subject: Subject) -> Verdict:
    name = subject.package.name
    old = subject.stale if each.of_artifacts else ()
    try:
        with told_if_long(f"{each.name}: {each.doing.format(name)}", subject.report):
            outcome = each.run(subject)
    except HubkernelsError as error:
        state: State = "failed" if error.exit_code == CHECK_FAILED else "not run"
        problems = (error.with_stack(),) if isinstance(error, HungError) and subject.debug else error.problems
        return Verdict(each.name, name, state, Outcome(problems=problems, warnings=old), error.exit_code)
    outcome = replace(outcome, warnings=(*old, *outcome.warnings))
    if outcome.problems:
        return Verdict(each.name, name, "failed", outcome, CHECK_FAILED)
    return Verdict(each.name, name, "skipped" if outcome.inapplicable else "ok", outcome)


def insist(found: Iterable[Verdict], *, named: bool) -> list[Verdict]:
    """A check that was named must look at something: at each package that was named, or at one at least.

    named: whether the packages were.
    """
    verdicts = list(found)
    if not named and any(verdict.state != "skipped" for verdict in verdicts):
        return verdicts
    return [_refuse(verdict) if verdict.state == "skipped" else verdict for verdict in verdicts]


def _refuse(verdict: Verdict) -> Verdict:
    return Verdict(
        verdict.check, verdict.package, "not run", Outcome(problems=verdict.outcome.inapplicable), INPUT_WRONG
    )


def _on_one_line(what: str) -> str:
    first, *reasons = what.split("\n  - ")
    return f"{first}: {'; '.join(reasons)}" if reasons else first
