"""The part of a build that changes something: one process at a time runs the steps and puts the artifact in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from hubkernels.build.bundle import bundle, is_current
from hubkernels.build.run import Workplace, run_plan
from hubkernels.host.files import disk_errors
from hubkernels.model.artifact import Artifact
from hubkernels.model.plan import BuildPlan

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.build.report import Report

LOCK = "lock"
"""The lock file in the work folder. It is never removed."""


def make(plan: BuildPlan, root: Path, folder: Path, builder: Builder, report: Report) -> Artifact:
    """Run what has not been run and bundle it, unless another build did so while we waited for it."""
    work = builder.places.work
    with locked(work, report):
        if is_current(plan, folder):
            return Artifact(plan.package, plan.variant, plan.op_id, folder, fresh=False)
        run_plan(plan, Workplace(root, work, builder.jobs, builder.environment), report)
        return bundle(plan, root, folder, work / "attic", builder.provenance())


@contextmanager
def locked(work: Path, report: Report) -> Iterator[None]:
    """One build at a time in one folder. The lock is the kernel's: it ends with its process, however that ends."""
    with disk_errors(work):
        work.mkdir(parents=True, exist_ok=True)
        lock = FileLock(work / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(f"another build is running in {work.parent}; waiting for it")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
