"""Run the steps of a plan that have not been run before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import ninja as ninja_distribution

from hubkernels.build.failure import Failure, disk_hint, explain_failures
from hubkernels.build.ninja import STATUS, FailedStep, is_about, read_output, render
from hubkernels.build.report import Begun, Progress, Report
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host import measured
from hubkernels.host.files import write_atomically
from hubkernels.host.process import Stream
from hubkernels.host.store import Store
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.toolchain.usage import is_usage

STUBS = "stubs"
"""The folder of the link stubs, in that of a run."""

_MEASURED = (sys.executable, "-ISs", measured.__file__)


@dataclass(frozen=True)
class Workplace:
    """Where and how commands run.

    root: the package's folder. work: the folder of ninja's files. made: where this run puts all that it takes or makes.
    """

    root: Path
    work: Path
    made: Path
    jobs: int
    environment: Mapping[str, str]
    verbose: bool = False


def take(plan: BuildPlan, store: Store, made: Path, *, linked: bool = True) -> tuple[Step, ...]:
    """Copy to the folder ``made`` what was made before; tells the steps that remain. linked: libraries too."""
    if linked and plan.library and store.take(plan.library, made / plan.library):
        return ()
    return tuple(
        step
        for step in plan.steps
        if step.output == plan.library or not all(store.take(n, made / n) for n in _names(step))
    )


def _names(step: Step) -> tuple[str, ...]:
    """The files that are kept of a step."""
    return (step.output, *((step.told,) if step.told else ()))


def run_steps(plan: BuildPlan, steps: tuple[Step, ...], place: Workplace, report: Report) -> None:
    """Run these steps of a plan in the folder ``place.made``, where the outputs of the others are.

    Raises InputError with all diagnostics when a step fails, EnvironmentLacksError when the disk is full.
    """
    if not steps:
        return
    told = "1 step, told" if len(steps) == 1 else f"{len(steps)} steps, each told"
    report(Begun(f"{plan.package}: {told} when it has ended"))
    ninja = _start_ninja(plan, _redirect(plan, steps, place), place)
    failures: list[Failure] = []
    unexpected: list[str] = []
    usage: dict[str, list[str]] = {step.told: [] for step in steps if step.told}
    ended = ""
    for event in read_output(ninja.lines()):
        if isinstance(event, Progress):
            ended = next((step.told for step in steps if step.told and is_about(event, step, plan.variant)), "")
        if ended and isinstance(event, str) and is_usage(event):
            usage[ended].append(event)
        elif isinstance(event, FailedStep):
            failures.append(_failure(event, steps, plan.variant))
        elif isinstance(event, str) and event.startswith("ninja: "):
            unexpected.append(event)  # about failed steps, which are told below, or about ninja itself
        else:
            report(event)
    for name, lines in usage.items():
        (place.made / name).write_text("\n".join(lines), encoding="utf-8")
    if failures:
        raise explain_failures(failures)
    if ninja.status:
        what = "\n".join(("ninja stopped:", *unexpected))
        raise EnvironmentLacksError(Problem(what, hint=disk_hint(what)))


def keep_outputs(steps: Iterable[Step], made: Path, store: Store, report: Report) -> None:
    """Give the store what these steps made. Where it takes no more, the next build makes it again."""
    try:
        for step in steps:
            if all((made / name).exists() for name in _names(step)):
                for name in _names(step):
                    store.put(name, (made / name).read_bytes())
    except EnvironmentLacksError as error:
        report(f"what was compiled is not kept for later builds: {error.problems[0].what}")


def _redirect(plan: BuildPlan, steps: Iterable[Step], place: Workplace) -> list[Step]:
    """The steps with their outputs, and what they take from one another, in the folder of this run."""
    folder = os.path.relpath(place.made.resolve(), place.root.resolve())
    moved = {step.output: f"{folder}/{step.output}" for step in plan.steps}
    remaining = tuple(steps)
    here = {step.output for step in remaining}
    return [
        replace(
            step,
            command=step.placed(moved, f"{folder}/{STUBS}"),
            output=moved[step.output],
            after=tuple(moved[name] for name in step.after if name in here),
        )
        for step in remaining
    ]


def _start_ninja(plan: BuildPlan, steps: Iterable[Step], place: Workplace) -> Stream:
    script = place.work.resolve() / f"{plan.package}-{plan.variant}.ninja"
    write_atomically(script, render(steps, plan.variant, str(script.parent), _MEASURED).encode())
    binary = Path(ninja_distribution.BIN_DIR) / "ninja"
    environment = {**place.environment, "NINJA_STATUS": STATUS, "CLICOLOR_FORCE": "0"}
    options = ("-v",) if place.verbose else ()  # ninja then tells commands where it tells their labels
    command = (binary, "-f", script, "-j", str(place.jobs), "-k", "0", *options)
    return Stream(command, cwd=place.root, env=environment)


def _failure(event: FailedStep, steps: tuple[Step, ...], variant: str) -> Failure:
    failed = next(step for step in steps if step.output == Path(event.output).name)
    said = event.diagnostics
    if failed.told:
        said = "\n".join(line for line in said.splitlines() if not is_usage(line))
    return Failure(failed.verb, failed.subject, variant, said)
