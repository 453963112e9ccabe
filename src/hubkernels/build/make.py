"""One artifact that is not up to date: what is missing is made, looked at, and published."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.build.abi import demangled, require_archs, require_portable
from hubkernels.build.bundle import publish, stage
from hubkernels.build.peaks import Peaks
from hubkernels.build.places import Places
from hubkernels.build.planner import Planner, toolchain_facts
from hubkernels.build.report import Report
from hubkernels.build.run import STUBS, Workplace, keep_outputs, run_steps, take
from hubkernels.build.settings import Need, limit_jobs, usual_need
from hubkernels.build.work import locked
from hubkernels.errors import HubkernelsError, InputError, Problem
from hubkernels.host.git import git_state
from hubkernels.model.artifact import Artifact
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.toolchain.cuda import NVCC
from hubkernels.toolchain.usage import parse_usage


@dataclass(frozen=True)
class Job:
    """One variant to make by a plan that was just made."""

    planner: Planner
    places: Places
    package: Package
    variant: AnyVariant
    plan: BuildPlan
    report: Report

    def run(self) -> Artifact:
        """Make the artifact, under the lock of the project's work folder.

        What was compiled is kept for later builds, also where another step fails.
        A library is kept once it has been looked at. One with sanitizers never is: it is linked with libraries of this
        machine that its name does not tell.
        """
        inputs = self.planner.hashes.looked_at()
        provenance = self._provenance()
        portable = not self.places.sanitized
        with self.places.scratch(keep=self.planner.settings.keep_scratch) as scratch:
            steps = take(self.plan, self.planner.store, scratch, linked=portable)
            self._tell_device_compiler()
            self._run(steps, scratch)
            staged = stage(self.plan, self.package.root, scratch)
            self._refuse_changes(inputs)
            self._keep((step for step in steps if step.verb == "compile"), scratch)
            if portable and isinstance(self.variant, Variant):
                library, tools = staged / self.plan.library_name, self.planner.tools(self.variant)
                require_portable(library, self.variant, tools.libraries(), lambda: self._objects(scratch))
                require_archs(library, self.variant, self.plan.metadata)
                self._keep((step for step in steps if step.verb == "link"), scratch)
            if kernels := self._kernels(scratch):
                provenance["kernels"] = kernels
            return publish(self.plan, staged, self.places.artifact(self.package.name, self.variant.tag), provenance)

    def _tell_device_compiler(self) -> None:
        """Say so where nvcc does not make the device code."""
        cuda = self.planner.tools(self.variant).cuda if isinstance(self.variant, Variant) else None
        if cuda and cuda.compiler.name != NVCC:
            self.report(f"{self.package.name}: {self.variant.tag}: device code by {cuda}, not by nvcc")

    def compile(self, folder: Path) -> None:
        """Put the objects of the plan into a folder: those that are kept, and the others made again."""
        inputs = self.planner.hashes.looked_at()
        missing = take(self.plan, self.planner.store, folder, linked=False)
        if steps := tuple(step for step in missing if step.verb == "compile"):
            with locked(self.places.work, self.report):
                self._run(steps, folder)
                self._refuse_changes(inputs)
                self._keep(steps, folder)

    def _run(self, steps: tuple[Step, ...], scratch: Path) -> None:
        if not steps:
            return
        self.planner.refuse_altered(self.variant)
        self.planner.tools(self.variant).write_stubs(scratch / STUBS)
        steps = tuple(self._peaks.fitted(step, self.planner.settings.memory) for step in steps)
        try:
            run_steps(self.plan, steps, self._workplace(scratch, steps), self.report)
        except BaseException:  # an interrupt, a reader of what is told that has gone
            with suppress(HubkernelsError):
                self._keep(self._sure(steps), scratch)
            raise
        finally:
            self._peaks.keep(steps, scratch)

    def _keep(self, steps: Iterable[Step], scratch: Path) -> None:
        keep_outputs(steps, scratch, self.planner.store, self.report)

    def _sure(self, steps: Iterable[Step]) -> list[Step]:
        """Compile steps that surely read what was planned, as far as can be told at once: who interrupts has waited."""
        if self.planner.hashes.written():
            return []
        doubtful = self.planner.doubtful(self.package, self.variant)
        return [step for step in steps if step.verb == "compile" and step.subject not in doubtful]

    @property
    def _peaks(self) -> Peaks:
        return Peaks(self.planner.store, self.plan, self.planner.tools(self.variant))

    def _needs(self, steps: Iterable[Step]) -> list[Need]:
        """The memory that each step may take."""
        stable = isinstance(self.variant, Variant) and self.variant.stable_abi
        tools, peaks = self.planner.tools(self.variant), self._peaks
        threads, device = tools.threads, tools.cuda.compiler.name if tools.cuda else NVCC
        return [
            peaks.need(step, usual_need(stable_abi=stable, device_threads=threads if step.told else 0, device=device))
            for step in steps
        ]

    def _workplace(self, scratch: Path, steps: Sequence[Step]) -> Workplace:
        settings = self.planner.settings
        jobs, why = limit_jobs(settings, self._needs(steps))
        if why:
            self.report(why)
        around = (self.package.root, self.places.work, scratch, jobs, self.planner.environment)
        return Workplace(*around, verbose=settings.verbose)

    def _objects(self, scratch: Path) -> dict[str, Path]:
        """The object of each source, from the store where the library was kept; none where one is there no more."""
        objects = {step.subject: scratch / step.output for step in self.plan.steps if step.verb == "compile"}
        there = (path.is_file() or self.planner.store.take(path.name, path) for path in objects.values())
        return objects if all(there) else {}

    def _kernels(self, scratch: Path) -> list[dict[str, Any]]:
        """What each kernel takes of its device, by what was told when it was compiled; spilling ones are reported."""
        found = []
        for step in (step for step in self.plan.steps if step.told):
            told = scratch / step.told
            text = told.read_bytes() if told.is_file() else self.planner.store.get(step.told)
            usages = parse_usage((text or b"").decode(errors="replace"))
            plain = demangled([usage.name for usage in usages])
            for usage in usages:
                name = plain.get(usage.name, usage.name)
                if spill := usage.spill(name):
                    self.report(f"{step.subject}: {spill}")
                found.append({"source": step.subject, **usage.to_json(name)})
        return found

    def _refuse_changes(self, inputs: frozenset[str]) -> None:
        """Raises InputError that names the files that were written, or come or go as inputs, since the plan."""
        paths = self.planner.hashes.written()
        if not paths:
            self.planner.renew()
            if self.planner.plan(self.package, self.variant).op_id == self.plan.op_id:
                return
            paths = set(self.planner.hashes.looked_at() ^ inputs)
        named = _relative(paths, self.package.root) or ["an input"]
        what = f"{', '.join(named)} of {self.package.name} changed while it was built"
        raise InputError(Problem(what, hint="build again"))

    def _provenance(self) -> dict[str, Any]:
        """How this build is made: what may differ between two builds of equal content."""
        noarch = isinstance(self.variant, NoarchVariant)
        return {
            "builder": {"hubkernels": __version__, "door": "kernel-builder build"},
            "toolchain": {} if noarch else toolchain_facts(self.planner.tools(self.variant)),
            "git": git_state(self.package.root, self.planner.environment, self.planner.own_files()),
        }


def _relative(paths: Iterable[str], root: Path) -> list[str]:
    """Paths as the user spells them: those in the project from its root."""
    spelled = (os.path.abspath(path) for path in paths)  # noqa: PTH100 - a `..` after a link stays what it leads to
    return sorted({os.path.relpath(path, root) if path.startswith(f"{root}/") else path for path in spelled})
