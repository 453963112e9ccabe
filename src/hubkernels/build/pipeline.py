"""The whole line for one project: what `kernel-builder build` and `plan` call."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubkernels import __version__
from hubkernels.build.bundle import is_current, publish, stage
from hubkernels.build.cache import find_cache
from hubkernels.build.includes import Headers
from hubkernels.build.many import Failures
from hubkernels.build.noarch import plan_noarch
from hubkernels.build.plan import Inputs, plan
from hubkernels.build.report import Report
from hubkernels.build.scan import Reads, ScannedSource, Scanner, merged
from hubkernels.build.select import candidates, choose, select
from hubkernels.build.settings import Settings, limit_jobs
from hubkernels.build.sources import Source, compiled_sources, shipped_python
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import HubkernelsError, InputError, Problem
from hubkernels.host.files import FileHashes, Stamp, disk_errors
from hubkernels.host.git import git_state
from hubkernels.host.machine import Machine, python_include, require_torch, this_machine
from hubkernels.model.artifact import METADATA, Artifact
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package, Project
from hubkernels.model.variant import AnyVariant, Decisions, NoarchVariant, Variant
from hubkernels.toolchain.compiler import compiler_environment, find_compiler
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.link import find_link_stubs

if TYPE_CHECKING:
    from hubkernels.build.run import Workplace

WORK = ".hubkernels"
"""Folder under build/ for unfinished work and memory; its leading dot keeps it out of the client's sight."""


@dataclass(frozen=True)
class Places:
    """The folders of one project's build. sanitized: whether artifacts are for tests alone."""

    root: Path
    sanitized: bool = False

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def work(self) -> Path:
        return self.build / WORK

    @property
    def cache(self) -> Path:
        """Stands for the user's cache where that cannot be used."""
        return self.work / "cache"

    @property
    def runs(self) -> Path:
        return self.work / "runs"

    @contextmanager
    def scratch(self, *, keep: bool = False) -> Iterator[Path]:
        """A folder for what one run has not finished. What killed ones leave is swept out by the next.

        keep: leave it when the run fails.
        """
        with disk_errors(self.runs):
            self.runs.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.runs))
        failed = True
        try:
            yield folder
            failed = False
        finally:
            if not (keep and failed):
                shutil.rmtree(folder, ignore_errors=True)

    def artifact(self, package: str, variant: str) -> Path:
        return (self.work / "sanitized" if self.sanitized else self.build) / package / variant


class Builder:
    """Builds packages of one project on this machine. environment: PATH, CXX and what the compiler reads."""

    def __init__(self, project: Project, environment: Mapping[str, str], settings: Settings) -> None:
        _require_plain(project.root)
        self.project = project
        self.surroundings = environment
        self.environment = compiler_environment(environment)
        self.settings = settings
        self.places = Places(project.root)
        self.machine: Machine = this_machine()
        self.hashes = FileHashes(self.places.work / "hashes.json")
        self.cache = find_cache(environment, self.places.cache)
        self.rows = load_variant_table()
        self.planned: dict[str, BuildPlan] = {}
        """By package, the plan of the first variant that was built or tried."""
        self._tools: Toolchain | None = None
        self._headers: Headers | None = None

    def decide(self, package: Package) -> Decisions:
        return select(package, self.rows, self.machine)

    def tools(self) -> Toolchain:
        """The toolchain, looked for once."""
        if self._tools is None:
            compiler = find_compiler(self.environment, self.hashes)
            stubs = find_link_stubs(self.machine.platform.cpu)
            self._tools = Toolchain(compiler, require_torch(self.machine), python_include(), stubs)
        return self._tools

    def sanitize(self, sanitizers: tuple[str, ...]) -> None:
        """From now on build with these, into folders that nothing takes for a release."""
        self.places = replace(self.places, sanitized=True)
        self._tools = replace(self.tools(), sanitizers=sanitizers)

    def plan(self, package: Package, variant: AnyVariant) -> BuildPlan:
        """Plan one variant. A file is looked at once, until something is compiled or `renew` is called."""
        python = tuple(
            (target, path, self.hashes.sha256(str(package.root / path)) or "")
            for target, path in shipped_python(package)
        )
        if isinstance(variant, NoarchVariant):
            return plan_noarch(package, variant, python)
        return plan(package, variant, self.tools(), Inputs(self.scan(package, variant), python))

    def scan(self, package: Package, variant: Variant) -> tuple[ScannedSource, ...]:
        """The sources of one variant and all that they include."""
        return self._scanner(package, variant).scan(self._sources(package, variant), self.settings.jobs)

    def _sources(self, package: Package, variant: Variant) -> tuple[Source, ...]:
        return compiled_sources(package, variant, self.tools().compiler.family)

    def reads(self, package: Package) -> Reads | None:
        """What the compiler reads for a package; None where earlier builds do not tell, on any variant built here."""
        accepted = (variant for variant in self.decide(package).accepted if isinstance(variant, Variant))
        try:
            return merged([self._scanner(package, v).remembered(self._sources(package, v)) for v in accepted])
        except HubkernelsError:  # no compiler, a source that is missing: the build tells
            return None

    def _scanner(self, package: Package, variant: Variant) -> Scanner:
        if self._headers is None:
            self._headers = Headers(self.cache.store, self.hashes, self.tools())
        around = (self.cache.store, self.hashes, self._headers)
        return Scanner(package.root, *around, variant, self.tools(), self.environment)

    def renew(self) -> None:
        """Look at every file anew: what was read earlier in this run may have changed since."""
        self.hashes.renew()
        self._headers = None

    def build(self, package: Package, variant: AnyVariant, report: Report) -> Artifact:
        """Bring one artifact up to date."""
        made = self.plan(package, variant)
        self.planned.setdefault(package.name, made)
        folder = self.places.artifact(package.name, variant.tag)
        if not is_current(made, folder):
            from hubkernels.build.work import locked, sweep  # noqa: PLC0415 - costs a no-change build 30 ms

            self._tell_cache(report)
            with locked(self.places.work, report):
                self.renew()
                made = self.plan(package, variant)  # another build may have been at work while we waited
                if not is_current(made, folder):
                    sweep(self.places.work, self.places.runs)
                    return self._make(made, package, variant, report)
        return Artifact(package.name, variant.tag, made.op_id, folder, fresh=False)

    def _tell_cache(self, report: Report) -> None:
        """Say once why the cache is not the usual one. Raises EnvironmentLacksError where one was named to no use."""
        self.cache.require()
        if self.cache.note:
            report(self.cache.note)
        self.cache = replace(self.cache, note=None)

    def _make(self, made: BuildPlan, package: Package, variant: AnyVariant, report: Report) -> Artifact:
        from hubkernels.build.run import STUBS, keep, run_steps, take  # noqa: PLC0415 - costs a no-change build 15 ms

        before = self.hashes.stamps()
        provenance = self._provenance(package, variant)
        store = self.cache.store
        with self.places.scratch(keep=self.settings.keep_scratch) as scratch:
            steps = take(made, store, scratch)
            if steps:
                self.tools().stubs.write(scratch / STUBS)
            place = self._workplace(package, variant, scratch, len(steps), report)
            try:
                run_steps(made, steps, place, report)
            except (HubkernelsError, KeyboardInterrupt):
                with suppress(HubkernelsError):
                    if not self._changes(before, made, package, variant):
                        keep(steps, scratch, store, report)  # what did compile need not be compiled again
                raise
            staged = stage(made, package.root, scratch)
            if changes := self._changes(before, made, package, variant):
                what = f"{', '.join(changes)} of {package.name} changed while it was built"
                raise InputError(Problem(what, hint="build again"))
            keep(steps, scratch, store, report)
            if isinstance(variant, Variant) and not self.tools().sanitizers:
                self._require_portable(made, variant, scratch, staged / made.library_name)
            return publish(made, staged, self.places.artifact(package.name, variant.tag), provenance)

    def _workplace(self, package: Package, variant: AnyVariant, scratch: Path, steps: int, report: Report) -> Workplace:
        from hubkernels.build.run import Workplace  # noqa: PLC0415 - costs a no-change build 15 ms

        stable = isinstance(variant, Variant) and variant.stable_abi
        jobs, why = limit_jobs(self.settings, steps, stable_abi=stable)
        if why:
            report(why)
        verbose = self.settings.verbose
        return Workplace(package.root, self.places.work, scratch, jobs, self.environment, verbose=verbose)

    def _require_portable(self, made: BuildPlan, variant: Variant, scratch: Path, library: Path) -> None:
        from hubkernels.build.abi import require_portable  # noqa: PLC0415 - costs a no-change build 50 ms

        compiled = {step.subject: scratch / step.output for step in made.steps if step.verb == "compile"}
        objects = {
            source: path for source, path in compiled.items() if path.is_file()
        }  # none where the library was kept
        require_portable(library, variant, self.tools().torch.lib, objects)

    def _changes(
        self, before: Mapping[str, Stamp | None], made: BuildPlan, package: Package, variant: AnyVariant
    ) -> list[str]:
        """Files that were written, or are read now and were not or the other way round, since the plan was made."""
        paths = {path for path, stamp in self.hashes.stamps().items() if stamp != before.get(path)}
        if not paths:
            self.renew()
            if self.plan(package, variant).op_id != made.op_id:
                paths = self.hashes.stamps().keys() ^ before.keys()
                return _relative(paths, package.root) or ["an input"]
        return _relative(paths, package.root)

    def build_all(
        self,
        packages: Iterable[Package],
        tags: Iterable[str],
        report: Report,
        *,
        leave_out: bool,
        failures: Failures | None = None,
    ) -> Iterator[Artifact]:
        """Build every chosen variant of each package, in order; what failed is raised when all have been tried.

        leave_out: pass over packages without a variant here, unless that is all of them.
        failures: those that there are already, and whether the first ends it all.
        """
        failures = failures or Failures(report)
        try:
            for package, variants in self._choose(tuple(packages), tuple(tags), report, leave_out=leave_out):
                with failures.of(package.name):
                    for variant in variants:
                        yield self.build(package, variant, report)
                    self._report_strays(package, report)
        finally:
            if self.places.work.is_dir():  # what is refused before it begins leaves nothing behind
                self.hashes.save()
            self.cache.trim()
        failures.raise_if_any()

    def _report_strays(self, package: Package, report: Report) -> None:
        """Artifacts that build.toml no longer makes: the client may prefer one to what was built now."""
        known = {variant.tag for variant in candidates(package, self.rows)}
        for path in sorted((self.places.build / package.name).glob(f"*/{METADATA}")):
            if path.parent.name not in known:
                report(f"{path.parent} is no variant of build.toml now, and may be loaded instead: delete it")

    def _choose(
        self, packages: tuple[Package, ...], tags: tuple[str, ...], report: Report, *, leave_out: bool
    ) -> list[tuple[Package, tuple[AnyVariant, ...]]]:
        chosen = []
        for package in packages:
            decisions = self.decide(package)
            wanted = [variant for variant in decisions.accepted if not tags or variant.tag in tags]
            if leave_out and not wanted and len(packages) > 1:
                what = " or ".join(tags) or "variant"
                report(f"{package.name}: no {what} can be built here; `kernel-builder list-variants` tells why")
            else:
                own = [variant.tag for variant in wanted] if tags and leave_out and len(packages) > 1 else tags
                chosen.append((package, choose(decisions, package, own)))
        return chosen or [(package, choose(self.decide(package), package, tags)) for package in packages]

    def _provenance(self, package: Package, variant: AnyVariant) -> dict[str, Any]:
        """How this build is made: what may differ between two builds of equal content."""
        return {
            "builder": {"hubkernels": __version__, "door": "kernel-builder build"},
            "toolchain": {} if isinstance(variant, NoarchVariant) else toolchain_facts(self.tools()),
            "git": git_state(package.root, self.environment),
        }


def _relative(paths: Iterable[str], root: Path) -> list[str]:
    """Paths as the user spells them: those in the project from its root."""
    return sorted(
        os.path.relpath(path, root) if not path.startswith("/") or path.startswith(f"{root}/") else path
        for path in paths
    )


def _require_plain(root: Path) -> None:
    """Raises InputError for a folder that commands and files cannot name."""
    path = str(root.resolve())
    if not path.isprintable():
        raise InputError(
            Problem(f"the project's folder has a character that cannot be written: {path!r}", hint="rename it")
        )


def toolchain_facts(tools: Toolchain) -> dict[str, str]:
    """What a note beside an artifact says of its toolchain."""
    return {
        "compiler": str(tools.compiler),
        "fingerprint": tools.compiler.fingerprint,
        "torch": tools.torch.release,
        **({"sanitizers": ",".join(tools.sanitizers)} if tools.sanitizers else {}),
    }
