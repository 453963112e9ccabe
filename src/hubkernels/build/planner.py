"""From a package to its plans on this machine: the toolchain is looked for, and every file looked at, once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache

from hubkernels.build.archs import with_known_devices
from hubkernels.build.includes import Headers
from hubkernels.build.plan import Inputs, plan, plan_noarch
from hubkernels.build.scan import Reads, ScannedSource, Scanner, merged
from hubkernels.build.select import Devices
from hubkernels.build.settings import Settings, device_threads
from hubkernels.build.sources import Source, compiled_sources, shipped_python
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.host.machine import Machine, python_include, require_torch
from hubkernels.host.store import Store
from hubkernels.model.backend import CPU, CUDA
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.toolchain.compiler import Compiler, find_compiler
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.cuda import CudaToolkit, toolkit_of
from hubkernels.toolchain.link import find_link_stubs
from hubkernels.toolchain.nvcc import find_nvcc, list_codes


class Planner:
    """Plans variants. environment: what compilers run in. store: keeps the lists of headers between builds."""

    def __init__(
        self, machine: Machine, environment: Mapping[str, str], settings: Settings, hashes: FileHashes, store: Store
    ) -> None:
        self.machine = machine
        self.environment = environment
        self.settings = settings
        self.hashes = hashes
        self.store = store
        self._tools: dict[str, Toolchain] = {}
        self._headers: dict[str, Headers] = {}
        self._compiler: Compiler | None = None
        self._devices: Devices | None = None

    def tools(self, variant: AnyVariant | None = None) -> Toolchain:
        """The toolchain of a variant, or of the host's code alone, looked for once."""
        backend = variant.backend if isinstance(variant, Variant) else CPU
        if backend.name not in self._tools:
            stubs = find_link_stubs(self.machine.platform.cpu)
            around = (self.compiler(), require_torch(self.machine), python_include(), stubs)
            cuda = self._toolkit() if backend == CUDA else None
            threads = device_threads(self.settings) if cuda else 1
            self._tools[backend.name] = Toolchain(
                *around, sanitizers=self.settings.sanitizers, cuda=cuda, threads=threads
            )
        return self._tools[backend.name]

    def compiler(self) -> Compiler:
        if self._compiler is None:
            self._compiler = find_compiler(self.environment, self.hashes)
        return self._compiler

    def devices(self) -> Devices:
        """What `select` asks about compilers for devices: each is looked for when it is first asked for."""
        if self._devices is None:
            why = "sanitizers look at the host's code alone" if self.settings.sanitizers else None
            self._devices = Devices(cache(lambda: find_nvcc(self.environment)), self._codes, self._any_compiler, why)
        return self._devices

    def _codes(self) -> frozenset[str]:
        nvcc = self.devices().nvcc()
        return list_codes(nvcc.path, self.environment) if nvcc else frozenset()

    def _any_compiler(self) -> Compiler | None:
        try:
            return self.compiler()
        except HubkernelsError:  # the build tells
            return None

    def _toolkit(self) -> CudaToolkit:
        """That of the nvcc that `select` has seen. Here, and in `devices`, toolkits of another origin come in."""
        nvcc = self.devices().nvcc()
        if nvcc is None:
            raise EnvironmentLacksError(Problem("there is no nvcc", hint="CUDA_HOME names the folder of a toolkit"))
        return toolkit_of(nvcc, self.hashes, self.machine.platform.cpu)

    def plan(self, package: Package, variant: AnyVariant) -> BuildPlan:
        """Plan one variant. A file is looked at once, until `renew` is called."""
        python = tuple(
            (target, path, self.hashes.sha256(str(package.root / path)) or "")
            for target, path in shipped_python(package)
        )
        if isinstance(variant, NoarchVariant):
            return plan_noarch(with_known_devices(package, load_variant_table()), variant, python)
        inputs = Inputs(self.scan(package, variant), python, os.path.realpath(package.root))
        return plan(package, variant, self.tools(variant), inputs)

    def scan(self, package: Package, variant: Variant) -> tuple[ScannedSource, ...]:
        """The sources of one variant and all that they include."""
        return self._scanner(package, variant).scan(self._sources(package, variant), self.settings.jobs)

    def reads(self, package: Package, variants: Iterable[AnyVariant]) -> Reads | None:
        """What the compiler reads for variants of a package; None where earlier builds do not tell."""
        compiled = [variant for variant in variants if isinstance(variant, Variant)]
        try:
            return merged([self._scanner(package, v).remembered(self._sources(package, v)) for v in compiled])
        except HubkernelsError:  # no compiler, a source that is missing: the build tells
            return None

    def doubtful(self, package: Package, variant: AnyVariant) -> frozenset[str]:
        """The sources that may read other files than earlier builds tell. Asks no compiler."""
        if isinstance(variant, NoarchVariant):
            return frozenset()
        self._headers = {}  # what was not there may be by now
        scanner = self._scanner(package, variant)
        return frozenset(s.path for s in self._sources(package, variant) if scanner.remembered([s]) is None)

    def own_files(self) -> frozenset[str]:
        """Files looked at since the last `renew` that are not the toolchain's."""
        files = self.hashes.looked_at()
        return frozenset(f for f in files if not any(headers.owns(f) for headers in self._headers.values()))

    def renew(self) -> None:
        """Look at every file anew: what was read earlier in this run may have changed since."""
        self.hashes.renew()
        self._headers = {}
        self._tools = {}  # the compiler is files too
        self._compiler = None
        self._devices = None

    def _sources(self, package: Package, variant: Variant) -> tuple[Source, ...]:
        return compiled_sources(package, variant, self.tools(variant).compiler.family)

    def _scanner(self, package: Package, variant: Variant) -> Scanner:
        tools, backend = self.tools(variant), variant.backend.name
        if backend not in self._headers:
            self._headers[backend] = Headers(self.store, self.hashes, tools)
        around = (self.store, self.hashes, self._headers[backend])
        return Scanner(package.root, *around, variant, tools, self.environment)


def toolchain_facts(tools: Toolchain) -> dict[str, str]:
    """What a note beside an artifact says of its toolchain."""
    return {
        "compiler": str(tools.compiler),
        "fingerprint": tools.compiler.fingerprint,
        "torch": tools.torch.release,
        **({"cuda": str(tools.cuda), "cuda-fingerprint": tools.cuda.fingerprint} if tools.cuda else {}),
        **({"sanitizers": ",".join(tools.sanitizers)} if tools.sanitizers else {}),
    }
