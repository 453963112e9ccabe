"""Run the steps of a plan that have not been run before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ninja as ninja_distribution

from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.ninja import STATUS, FailedStep, read_output, render
from hubkernels.build.report import Report
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import disk_errors, write_atomically
from hubkernels.host.process import Stream
from hubkernels.model.plan import BuildPlan, Step


def missing_steps(plan: BuildPlan, root: Path) -> tuple[Step, ...]:
    """Steps whose output does not exist. An output's name is the hash of its inputs, so one that exists is right."""
    return tuple(step for step in plan.steps if not (root / step.output).exists())


@dataclass(frozen=True)
class Workplace:
    """Where and how commands run. root: the package's folder. work: the folder of ninja's files."""

    root: Path
    work: Path
    jobs: int
    environment: Mapping[str, str]


def run_plan(plan: BuildPlan, place: Workplace, report: Report) -> tuple[Step, ...]:
    """Make every missing output and return the steps that were run.

    Raises InputError with all diagnostics when a step fails, EnvironmentLacksError when the disk is full.
    """
    steps = missing_steps(plan, place.root)
    if not steps:
        return ()
    for folder in {(place.root / step.output).parent for step in steps}:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    ninja = _start_ninja(plan, steps, place)
    failures: list[Failure] = []
    unexpected: list[str] = []
    for event in read_output(ninja.lines()):
        if isinstance(event, FailedStep):
            failures.append(_failure(event, steps, plan.variant))
        elif isinstance(event, str) and event.startswith("ninja: "):
            unexpected.append(event)  # about failed steps, which are told below, or about ninja itself
        else:
            report(event)
    if failures:
        raise explain_failures(failures)
    if ninja.status:
        raise EnvironmentLacksError(Problem("\n".join(("ninja stopped:", *unexpected))))
    return steps


def _start_ninja(plan: BuildPlan, steps: tuple[Step, ...], place: Workplace) -> Stream:
    script = place.work.resolve() / f"{plan.package}-{plan.variant}.ninja"
    write_atomically(script, render(steps, plan.variant, str(script.parent)).encode())
    binary = Path(ninja_distribution.BIN_DIR) / "ninja"
    environment = {**place.environment, "NINJA_STATUS": STATUS}
    return Stream((binary, "-f", script, "-j", str(place.jobs), "-k", "0"), cwd=place.root, env=environment)


def _failure(event: FailedStep, steps: tuple[Step, ...], variant: str) -> Failure:
    subject = next(step.subject for step in steps if step.output == event.output)
    return Failure(subject, variant, event.diagnostics)
