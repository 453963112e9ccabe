"""The whole line for one project: what `kernel-builder build` and `plan` call."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hubkernels.build.artifacts import built, strays
from hubkernels.build.bundle import is_current, note_commit
from hubkernels.build.cache import find_cache
from hubkernels.build.fetching import to_fetch, to_lock
from hubkernels.build.many import Chosen, Failures, choose_all
from hubkernels.build.places import Places
from hubkernels.build.planner import Planner
from hubkernels.build.report import Begun, Report, told_if_long
from hubkernels.build.scan import Reads, ScannedSource
from hubkernels.build.sdks import Tell, project_sdks
from hubkernels.build.select import select
from hubkernels.build.settings import Settings
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.host.git import git_state
from hubkernels.host.machine import this_machine
from hubkernels.model.artifact import Artifact
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package, Project
from hubkernels.model.sdk import LOCK, SdkName
from hubkernels.model.variant import AnyVariant, Decisions, Variant
from hubkernels.toolchain.compiler import compiler_environment
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.sdk.pinned import Pinned
from hubkernels.toolchain.sdk.wanted import Wanted, sdk_names, wanted_sdks, without_clang


class Builder:
    """Builds packages of one project on this machine.

    environment: PATH, CXX and what the compiler reads. tell: hears of what is fetched.
    """

    def __init__(
        self, project: Project, environment: Mapping[str, str], settings: Settings, tell: Tell = lambda _: None
    ) -> None:
        _require_plain(project.root)
        self.project = project
        self.surroundings = environment
        self.environment = compiler_environment(environment)
        self.settings = settings
        self.places = Places(project.root, sanitized=bool(settings.sanitizers))
        self.machine = this_machine()
        self.rows = load_variant_table()
        self.cache = find_cache(environment, self.places.cache)
        hashes = FileHashes(self.places.hashes)
        self.sdks = project_sdks(project.root, self.cache, environment, tell)
        pinned = Pinned() if settings.system else self.sdks.pinned()
        self.planner = Planner(self.machine, self.environment, settings, hashes, self.cache.store, pinned=pinned)
        self.planned: dict[tuple[str, str], BuildPlan] = {}
        """By package and backend, the plan of the first variant that was built or tried."""
        self._cache_told = False

    def decide(self, package: Package) -> Decisions:
        return select(package, self.rows, self.planner.supply())

    def pin_by(self, lock: Path, stores: Iterable[Path]) -> None:
        """Build with what another lock pins, out of other stores: those of the project that this is a copy of."""
        self.sdks = replace(self.sdks, lock=lock, others=(*stores, *self.sdks.others))
        self.planner.pin(self.sdks.pinned())

    def wanted(
        self, packages: Iterable[Package], tags: Collection[str] = (), there: Collection[SdkName] = ()
    ) -> Wanted:
        """The SDKs of the variants that packages declare, built here or not, or of those with a tag.

        there: what is locked.
        """
        wanted = wanted_sdks(self._declared(packages, tags), self.machine.platform)
        return wanted if tags else without_clang(wanted, there)

    def _declared(self, packages: Iterable[Package], tags: Collection[str]) -> list[AnyVariant]:
        decisions = [self.decide(package) for package in packages]
        variants = [variant for each in decisions for variant in each.accepted]
        variants += [each.variant for decided in decisions for each in decided.rejected if not each.of_package]
        return [each for each in variants if not tags or each.tag in tags]

    def tools(self, variant: AnyVariant | None = None) -> Toolchain:
        return self.planner.tools(variant)

    def plan(self, package: Package, variant: AnyVariant) -> BuildPlan:
        """Plan one variant. A file is looked at once, until something is built."""
        return self.planner.plan(package, variant)

    def scan(self, package: Package, variant: Variant) -> tuple[ScannedSource, ...]:
        """The sources of one variant and all that they include."""
        return self.planner.scan(package, variant)

    def reads(self, package: Package) -> Reads | None:
        """What the compiler reads for a package; None where earlier builds do not tell, on any variant built here."""
        return self.planner.reads(package, self.decide(package).accepted)

    def build(self, package: Package, variant: AnyVariant, report: Report) -> Artifact:
        """Bring one artifact up to date. Raises InputError where a link leads out of build/."""
        self.places.refuse_links(package.name)
        with told_if_long(f"{package.name}: reading its sources and the headers that they include", report):
            made = self.plan(package, variant)
        folder = self.places.artifact(package.name, variant.tag)
        current = is_current(made, folder)
        if not current:
            from hubkernels.build.make import Job  # noqa: PLC0415 - costs a no-change build 100 ms
            from hubkernels.build.work import locked, sweep  # noqa: PLC0415

            self._tell_cache(report)
            with locked(self.places.work, report):
                self.planner.renew()
                made = self.plan(package, variant)  # another build may have been at work while we waited
                self.planned.setdefault((package.name, variant.backend.name), made)
                if not is_current(made, folder):
                    sweep(self.places.work, self.places.runs)
                    try:
                        return Job(self.planner, self.places, package, variant, made, report).run()
                    except HubkernelsError:
                        if folder.is_dir():
                            report(f"{folder} is still what the last good build made")
                        raise
        else:
            note_commit(folder, lambda: git_state(package.root, self.environment, self.planner.own_files()))
        self.planned.setdefault((package.name, variant.backend.name), made)
        return Artifact(package.name, variant.tag, made.op_id, folder, fresh=False)

    def compile(self, made: BuildPlan, package: Package, variant: AnyVariant, folder: Path, report: Report) -> bool:
        """Put the objects of an artifact into a folder; False, and nothing done, where it is not up to date."""
        if not is_current(made, self.places.artifact(package.name, variant.tag)):
            return False
        self.places.refuse_links(package.name)
        from hubkernels.build.make import Job  # noqa: PLC0415 - costs a no-change build 100 ms

        Job(self.planner, self.places, package, variant, made, report).compile(folder)
        return True

    def _tell_cache(self, report: Report) -> None:
        """Say once why the cache is not the usual one. Raises the error of one that was asked for to no use."""
        self.cache.require()
        if self.cache.note and not self._cache_told:
            report(self.cache.note)
        self._cache_told = True

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
        chosen = self._choose(tuple(packages), tuple(tags), report, leave_out=leave_out)
        for number, (package, variants) in enumerate(chosen, 1):
            with failures.of(package.name, last=number == len(chosen)):
                for variant in variants:
                    yield self.build(package, variant, report)
                for path in strays(built(self.places.package(package.name)), package, self.rows):
                    report(f"{path} is no variant of build.toml now, and may be loaded instead: delete it")
        failures.raise_if_any()

    def _choose(self, packages: Sequence[Package], tags: Sequence[str], report: Report, *, leave_out: bool) -> Chosen:
        """The variants to build. What they need is fetched first: then it is known what that can do."""
        for told in self._lock_where_none(packages, tags, report):
            report(told)
        decided = [(package, self.decide(package)) for package in packages]
        likely = [each for _, found in decided for each in found.accepted if not tags or each.tag in tags]
        if self._fetch([each for each in likely if isinstance(each, Variant)], report):
            decided = [(package, self.decide(package)) for package in packages]
        return choose_all(decided, tags, report, leave_out=leave_out)

    def _fetch(self, variants: Sequence[Variant], report: Report) -> bool:
        """Bring what is pinned for variants; tells whether anything had to be."""
        supply = self.planner.supply()
        if lacking := supply.lacking(variants):
            report(Begun(to_fetch(variants, lacking)))
        return supply.fetch(variants)

    def _lock_where_none(self, packages: Sequence[Package], tags: Collection[str], report: Report) -> tuple[str, ...]:
        """Write toolchain.lock where there is none, by what the package index has; tells what it has not, and why.

        tags: variants that are built; all if there are none. An index that cannot be asked is no error: what is
        installed here may do.
        """
        if self.settings.system or self.sdks.locked:
            return ()
        wanted = self.wanted(packages, tags)
        if not wanted.names:
            return ()
        declared = (each for each in self._declared(packages, tags) if isinstance(each, Variant))
        here = [each for each in declared if set(sdk_names(each)) <= set(wanted.names)]
        report(Begun(to_lock(here, wanted.names)))
        try:
            add = self.sdks.add_soon if self.machine.torch else self.sdks.add  # without torch there is no other way
            added, left_out = add(wanted.names)
        except EnvironmentLacksError as error:
            why = error.problems[0].what
            self.planner.pin(Pinned(lacking=_NOT_LOCKED))
            return (f"{self.sdks.lock.name} is not written, so this build is made with what is installed here: {why}",)
        told = [f"left out of {self.sdks.lock.name}: {each}" for each in (*wanted.left_out, *left_out)]
        if added:  # an empty lock would keep builds from what another index has
            self.sdks.write(lambda now: {**{sdk.name: sdk for sdk in added}, **now})
            self.planner.pin(self.sdks.pinned())
            told.append(f"{self.sdks.lock} is written: commit it, so that everybody builds with the same")
        return tuple(told)

    def settle(self) -> None:
        """At the end: remember what was read, and bring the cache below its limit."""
        with contextlib.suppress(OSError):  # where one may not look, nothing is remembered
            # What is refused before it begins leaves nothing behind, nor behind links.
            if self.places.work.is_dir() and not any(self.places.links()):
                self.planner.hashes.save()
        self.cache.trim()


_NOT_LOCKED = (
    f", and {LOCK} could not be written, as is told above: `pip config list` tells which index is asked, PIP_INDEX_URL "
    f"names another; without one install torch from a file, or bring {LOCK} from elsewhere, and what `toolchain pack` "
    "writes there, for `kernel-builder toolchain unpack`"
)
"""Why what an SDK would have is not there, after a lock could not be written, and what next."""


def _require_plain(root: Path) -> None:
    """Raises InputError for a folder that commands and files cannot name."""
    path = str(root.resolve())
    if not path.isprintable():
        raise InputError(
            Problem(f"the project's folder has a character that cannot be written: {path!r}", hint="rename it")
        )
