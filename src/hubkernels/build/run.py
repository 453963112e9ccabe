"""Run the steps of a plan that have not been run before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
    """Steps whose output is missing or empty. Its name is the hash of its inputs, so one that is there is right."""
    return tuple(step for step in plan.steps if not _is_there(root / step.output))


def _is_there(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0  # a disk that lost power can leave empty files


@dataclass(frozen=True)
class Workplace:
    """Where and how commands run.

    root: the package's folder. work: the folder of ninja's files. made: the folder of what this run makes.
    """

    root: Path
    work: Path
    made: Path
    jobs: int
    environment: Mapping[str, str]
    verbose: bool = False


def outputs_of(plan: BuildPlan, place: Workplace) -> Mapping[Step, Path]:
    """The steps to run, and where each puts what it makes until `keep` gives it its name."""
    return {step: place.made / Path(step.output).name for step in missing_steps(plan, place.root)}


def run_steps(plan: BuildPlan, steps: tuple[Step, ...], place: Workplace, report: Report) -> None:
    """Run these steps of a plan, with their outputs in the folder ``place.made``.

    Raises InputError with all diagnostics when a step fails, EnvironmentLacksError when the disk is full.
    """
    if not steps:
        return
    ninja = _start_ninja(plan, _redirect(steps, place), place)
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


def keep(made: Mapping[Step, Path], root: Path) -> None:
    """Give the outputs that are there the names that say what they are made of."""
    for step, path in made.items():
        target = root / step.output
        if not path.exists():
            continue
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


def _redirect(steps: tuple[Step, ...], place: Workplace) -> list[Step]:
    """The steps with their outputs, and what they take from one another, in the folder of this run."""
    folder = os.path.relpath(place.made.resolve(), place.root.resolve())
    moved = {step.output: f"{folder}/{Path(step.output).name}" for step in steps}
    return [
        replace(
            step,
            command=tuple(moved.get(word, word) for word in step.command),
            output=moved[step.output],
            after=tuple(moved[path] for path in step.after if path in moved),
        )
        for step in steps
    ]


def _start_ninja(plan: BuildPlan, steps: Iterable[Step], place: Workplace) -> Stream:
    script = place.work.resolve() / f"{plan.package}-{plan.variant}.ninja"
    write_atomically(script, render(steps, plan.variant, str(script.parent)).encode())
    binary = Path(ninja_distribution.BIN_DIR) / "ninja"
    environment = {**place.environment, "NINJA_STATUS": STATUS, "CLICOLOR_FORCE": "0"}
    options = ("-v",) if place.verbose else ()  # ninja then tells commands where it tells their labels
    command = (binary, "-f", script, "-j", str(place.jobs), "-k", "0", *options)
    return Stream(command, cwd=place.root, env=environment)


def _failure(event: FailedStep, steps: tuple[Step, ...], variant: str) -> Failure:
    subject = next(step.subject for step in steps if Path(step.output).name == Path(event.output).name)
    return Failure(subject, variant, event.diagnostics)
