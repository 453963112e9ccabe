"""The whole line for one project: what `kernel-builder build` and `plan` call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.build.bundle import is_current
from hubkernels.build.plan import Inputs, plan
from hubkernels.build.report import Report
from hubkernels.build.scan import Scanner
from hubkernels.build.select import choose, select
from hubkernels.build.sources import compiled_sources, shipped_python
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import InputError, Problem, nearest
from hubkernels.host.files import FileHashes
from hubkernels.host.git import git_state
from hubkernels.host.machine import Machine, python_include, require_torch, this_machine
from hubkernels.model.artifact import Artifact
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package, Project
from hubkernels.model.variant import Decisions, Variant
from hubkernels.toolchain.compiler import find_compiler
from hubkernels.toolchain.cpu import Toolchain

WORK = ".hubkernels"
"""Folder under build/ for objects and memory; its leading dot keeps it out of the client's sight."""


@dataclass(frozen=True)
class Places:
    """The folders of one project's build."""

    root: Path

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def work(self) -> Path:
        return self.build / WORK

    def artifact(self, package: str, variant: str) -> Path:
        return self.build / package / variant


class Builder:
    """Builds packages of one project on this machine. environment: PATH, CXX and what the compiler reads."""

    def __init__(self, project: Project, environment: Mapping[str, str], jobs: int) -> None:
        self.project = project
        self.environment = environment
        self.jobs = jobs
        self.places = Places(project.root)
        self.machine: Machine = this_machine()
        self.hashes = FileHashes(self.places.work / "hashes.json")
        self.rows = load_variant_table()
        self._tools: Toolchain | None = None

    def decide(self, package: Package) -> Decisions:
        return select(package, self.rows, self.machine)

    def tools(self) -> Toolchain:
        """The toolchain, looked for once."""
        if self._tools is None:
            compiler = find_compiler(self.environment, self.hashes)
            self._tools = Toolchain(compiler, require_torch(self.machine), python_include())
        return self._tools

    def plan(self, package: Package, variant: Variant) -> BuildPlan:
        """Plan one variant, from sources scanned now."""
        sources = compiled_sources(package, variant)
        scanner = Scanner(package.root, self.places.work / f"scan-{package.name}.json", self.hashes)
        scanned = scanner.scan(sources, variant, self.tools(), self.jobs)
        python = tuple(
            (target, path, self.hashes.sha256(str(package.root / path)) or "")
            for target, path in shipped_python(package)
        )
        objects = os.path.relpath(self.places.work / "objects", package.root)
        made = plan(package, variant, self.tools(), Inputs(scanned, python), objects)
        self.hashes.save()
        return made

    def build(self, package: Package, variant: Variant, report: Report) -> Artifact:
        """Bring one artifact up to date."""
        made = self.plan(package, variant)
        folder = self.places.artifact(package.name, variant.tag)
        if not is_current(made, folder):
            from hubkernels.build.work import make  # noqa: PLC0415 - ninja and locks cost a no-change build 50 ms

            return make(made, package.root, folder, self, report)
        return Artifact(package.name, variant.tag, made.op_id, folder, fresh=False)

    def build_all(self, packages: Iterable[Package], tags: Iterable[str], report: Report) -> Iterator[Artifact]:
        """Build every chosen variant of each package, in order."""
        wanted = tuple(tags)
        for package, variants in [(p, choose(self.decide(p), p, wanted)) for p in packages]:
            for variant in variants:
                yield self.build(package, variant, report)

    def provenance(self) -> dict[str, Any]:
        """How this build is made: what may differ between two builds of equal content."""
        tools = self.tools()
        return {
            "builder": {"hubkernels": __version__, "door": "kernel-builder build"},
            "toolchain": {
                "compiler": str(tools.compiler),
                "fingerprint": tools.compiler.fingerprint,
                "torch": tools.torch.release,
            },
            "git": git_state(self.project.root),
        }


def find_packages(project: Project, names: Iterable[str]) -> tuple[Package, ...]:
    """The packages of that name, in either spelling; all of them when none is named."""
    known = {package.python_name: package for package in project.packages}
    wanted = tuple(names)
    for name in wanted:
        if name.replace("-", "_") not in known:
            spelled = [package.name for package in project.packages]
            raise InputError(
                Problem(
                    f"no package {name} in {project.root / 'build.toml'}",
                    hint=nearest(name, spelled) or f"it has {', '.join(spelled)}",
                )
            )
    if not project.packages:
        raise InputError(Problem("the workspace has no package", where=str(project.root / "build.toml")))
    if not wanted:
        return project.packages
    return tuple(known[name] for name in dict.fromkeys(name.replace("-", "_") for name in wanted))
