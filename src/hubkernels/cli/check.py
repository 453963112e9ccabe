"""`kernel-builder check`: any number of checks, one report, the exit code of the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hubkernels.cli.checks import CHECKS, Check, Outcome, Subject
from hubkernels.cli.console import columns, problem_as_json, say_json, say_problems
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_target
from hubkernels.errors import CHECK_FAILED, INPUT_WRONG, HubkernelsError, InputError, Problem, nearest

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.cli.target import Target

State = Literal["ok", "failed", "skipped", "not run"]

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CHECK|KERNEL_DIR|PACKAGE",
        help="Checks, all when none is named; folder of the build.toml, and packages of it.",
    ),
]
Named = Annotated[
    list[str] | None, typer.Option("--package", metavar="NAME", help="Only this package; one may be called as a check.")
]


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
        if self.state == "failed":
            count = len(self.outcome.problems)
            rows.append(("failed", *head, f"{count} problem{'s' if count > 1 else ''}, told below"))
        elif self.state != "ok":
            why = (*self.outcome.problems, *self.outcome.inapplicable)
            rows.append((self.state, *head, "; ".join(problem.what for problem in why)))
        return rows

    def to_json(self) -> dict[str, Any]:
        why = (*self.outcome.problems, *self.outcome.inapplicable)
        return {
            "check": self.check,
            "package": self.package,
            "state": self.state,
            "results": list(self.outcome.results),
            "problems": [problem_as_json(problem) for problem in why],
        }


def check(
    words: Words = None,
    package: Named = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    json: Json = False,
) -> int:
    chosen = [check for name, check in CHECKS.items() if name in (words or ())]
    others = [word for word in words or () if word not in CHECKS]
    builder, target = _open(project, [*others, *(package or ())])
    verdicts: list[Verdict] = []
    for each in chosen or CHECKS.values():
        found = [_judge(each, Subject(builder, package, tuple(variant or ()))) for package in target.packages]
        if chosen:
            found = _insist(found, target)
        verdicts += found
        if not json:
            columns([row for verdict in found for row in verdict.rows()])
    if json:
        say_json([verdict.to_json() for verdict in verdicts])
    else:
        say_problems(dict.fromkeys(problem for verdict in verdicts for problem in verdict.outcome.problems))
    return max(verdict.code for verdict in verdicts)


check.__doc__ = "\n".join(
    (
        "Run checks on what is built, all that apply when none is named. The exit code is that of the worst.",
        "",
        "\b",
        *(f"{each.name:12}  {each.summary}" for each in CHECKS.values()),
    )
)


def alias(name: str) -> Callable[..., int]:
    """One check as a verb of its own, as upstream has it."""

    def run(
        packages: Packages = None, variant: Variants = None, project: ProjectFolder = HERE, json: Json = False
    ) -> int:
        return check([name], packages, variant, project, json)

    run.__doc__ = f"The same as `check {name}`."
    return run


def _open(project: Path, words: Sequence[str]) -> tuple[Builder, Target]:
    try:
        return open_target(project, words)
    except InputError as error:  # a word that is neither may have been meant as a check
        near = [Problem(f"{word} is no check", hint=hint) for word in words if (hint := nearest(word, CHECKS))]
        raise InputError(*error.problems, *near) from error


def _judge(each: Check, subject: Subject) -> Verdict:
    name = subject.package.name
    try:
        outcome = each.run(subject)
    except HubkernelsError as error:
        state: State = "failed" if error.exit_code == CHECK_FAILED else "not run"
        return Verdict(each.name, name, state, Outcome(problems=error.problems), error.exit_code)
    if outcome.problems:
        return Verdict(each.name, name, "failed", outcome, CHECK_FAILED)
    return Verdict(each.name, name, "skipped" if outcome.inapplicable else "ok", outcome)


def _insist(found: Iterable[Verdict], target: Target) -> list[Verdict]:
    """A check that was named must look at something: at each package that was named, or at one at least."""
    verdicts = list(found)
    if not target.named and any(verdict.state != "skipped" for verdict in verdicts):
        return verdicts
    return [_refuse(verdict) if verdict.state == "skipped" else verdict for verdict in verdicts]


def _refuse(verdict: Verdict) -> Verdict:
    return Verdict(
        verdict.check, verdict.package, "not run", Outcome(problems=verdict.outcome.inapplicable), INPUT_WRONG
    )
