"""Run the steps of a plan that have not been run before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ninja as ninja_distribution

from hubkernels.build import ninja
from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.report import Report
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import disk_errors, write_atomically
from hubkernels.host.process import Stream
from hubkernels.model.plan import BuildPlan, Step

def missing_steps(plan: BuildPlan, root: Path) -> tuple[Step, ...]:
    """Steps whose output does not exist. An output's name is the hash of its inputs, so one that exists is right."""
    return tuple(step for step in plan.steps if not (root / step.output).exists())


def run_plan(plan: BuildPlan, root: Path, work: Path, jobs: int, env: Mapping[str, str], report: Report) -> None:
    """Make every missing output. Raises CompileError with all diagnostics when a step fails."""
    steps = missing_steps(plan, root)
    if not steps:
        return
    for step in steps:
        with disk_errors(root / step.output):
            (root / step.output).parent.mkdir(parents=True, exist_ok=True)
    script = work / f"{plan.variant}.ninja"
    write_atomically(script, ninja.render(steps, str(work.resolve())).encode())
    stream = Stream(
        (_ninja_binary(), "-f", str(script.resolve()), "-j", str(jobs), "-k", "0"),
        cwd=root,
        env={**env, "NINJA_STATUS": ninja.STATUS, "LC_ALL": "C.UTF-8"},  # explain_failures reads English
    )
    failures: list[Failure] = []
    other: list[str] = []
    for event in ninja.read_output(stream.lines()):
        if isinstance(event, ninja.FailedStep):
            step = ninja.find_step(steps, event.output)
            failures.append(Failure(_subject(step), plan.variant, event.diagnostics))
        elif isinstance(event, str):
            other.append(event)
            report(event)
        else:
            report(event)
    if failures:
        raise explain_failures(failures)
    if stream.status:
        raise EnvironmentLacksError(Problem("\n".join(("ninja stopped:", *other))))


def _subject(step: Step) -> str:
    """What a step is about: the source it compiles, or the library it links."""
    return step.inputs[0] if len(step.inputs) == 1 else "the library"


def _ninja_binary() -> str:
    return str(Path(ninja_distribution.BIN_DIR) / "ninja")
