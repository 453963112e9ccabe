"""From a package to its plans on this machine: the toolchain is looked for, and every file looked at, once."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.build.answers import NvccAnswers
from hubkernels.build.archs import with_known_devices
from hubkernels.build.cuda_rules import why_without_nvcc
from hubkernels.build.includes import Headers
from hubkernels.build.plan import Inputs, plan, plan_noarch
from hubkernels.build.scan import Reads, ScannedSource, Scanner, merged
from hubkernels.build.settings import Settings, device_threads
from hubkernels.build.sources import Source, compiled_sources, shipped_python
from hubkernels.build.supply import Programs, Supply
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.host.machine import Machine, TorchSdk, python_include, require_torch, serves
from hubkernels.host.store import Store
from hubkernels.model.backend import CUDA
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.clang import INSTALL, clang_toolkit, find_clang, list_devices
from hubkernels.toolchain.compiler import Compiler, find_compiler
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.cuda import FULL_ABI, CudaToolkit, toolkit_of
from hubkernels.toolchain.link import find_link_stubs
from hubkernels.toolchain.nvcc import find_nvcc, why_no_nvcc
from hubkernels.toolchain.sdk.pinned import Pinned

if TYPE_CHECKING:
    from hubkernels.abi.installed import Installed


class Planner:
    """Plans variants. environment: what compilers run in. store: keeps the lists of headers between builds.

    pinned: SDKs to build with.
    """

    def __init__(  # noqa: PLR0913 - one parameter a thing that planning reads
        self,
        machine: Machine,
        environment: Mapping[str, str],
        settings: Settings,
        hashes: FileHashes,
        store: Store,
        *,
        pinned: Pinned | None = None,
    ) -> None:
        self.machine = machine
        self.environment = environment
        self.settings = settings
        self.hashes = hashes
        self.store = store
        self._pinned = pinned or Pinned()
        self._tools: dict[tuple[object, ...], Toolchain] = {}
        self._headers: dict[tuple[object, ...], Headers] = {}
        self._absent: defaultdict[Path, set[str]] = defaultdict(set)
        self._compiler: Compiler | None = None
        self._supply: Supply | None = None

    def tools(self, variant: AnyVariant | None = None) -> Toolchain:
        """The toolchain of a variant, or of the host's code alone, looked for once; what is pinned is fetched."""
        found = variant if isinstance(variant, Variant) else None
        key = _tools_key(found)
        if key not in self._tools:
            stubs = find_link_stubs(self.machine.platform.cpu)
            torch, names = self._torch(found)
            around = (self.compiler(), torch, python_include(), stubs)
            cuda = self._toolkit(found) if found and found.backend == CUDA else None
            threads = device_threads(self.settings) if cuda and cuda.compiler.parallel else 1
            self._tools[key] = Toolchain(
                *around,
                sanitizers=self.settings.sanitizers,
                cuda=cuda,
                threads=threads,
                names=names,
                sdks=tuple(self.supply().trees(found).items()) if found else (),
            )
        return self._tools[key]

    def compiler(self) -> Compiler:
        if self._compiler is None:
            self._compiler = find_compiler(self.environment, self.hashes)
        return self._compiler

    def supply(self) -> Supply:
        """What there is to build with. Each thing is looked for when it is first asked for."""
        if self._supply is None:
            answers = NvccAnswers(self.store, self.environment)
            programs = Programs(
                installed=lambda: find_nvcc(self.environment),
                at=answers.at,
                codes=answers.codes,
                compiler=self._any_compiler,
                clang=lambda: find_clang(self.environment, self.hashes),
                devices=lambda clang: list_devices(clang, self.environment),
                none_installed=why_no_nvcc(self.environment),
            )
            why = "sanitizers look at the host's code alone" if self.settings.sanitizers else None
            self._supply = Supply(self.machine, self._pinned, programs, why)
        return self._supply

    def pin(self, pinned: Pinned) -> None:
        """Build with other SDKs from now on."""
        self._pinned = pinned
        self.renew()

    def _any_compiler(self) -> Compiler | None:
        try:
            return self.compiler()
        except HubkernelsError:  # the build tells
            return None

    def _torch(self, variant: Variant | None) -> tuple[TorchSdk, Path | None]:
        """Headers and link stubs, and where the names in a fitting torch's libraries can be looked up."""
        supply = self.supply()
        if variant is None:
            torch = supply.newest_torch()
            return torch or require_torch(self.machine), None
        supply.fetch([variant])
        torch = supply.torch(variant)
        if torch is None or torch is self.machine.torch:
            torch = require_torch(self.machine)
            return torch, torch.lib
        return torch, self._installed_lib(variant)

    def _installed_lib(self, variant: Variant) -> Path | None:
        installed = self.machine.torch
        return installed.lib if installed and serves(installed, variant) else None

    def libraries(self, variant: Variant) -> Installed | None:
        """The libraries that a finished artifact of a variant names, as far as they are at hand: nothing is fetched.

        None where even the headers of its torch are not.
        """
        from hubkernels.abi.installed import Installed  # noqa: PLC0415 - slow, and a build asks its toolchain

        supply = self.supply()
        torch, lib = supply.torch(variant), self._installed_lib(variant)
        if torch is None or (torch is self.machine.torch and lib is None):
            return None
        return Installed(*filter(None, (lib, supply.runtime(variant))), headers=torch.include[0])

    def refuse_altered(self, variant: AnyVariant) -> None:
        """Raises InputError where a file that was looked at for a variant is not as its pinned SDK has it."""
        if isinstance(variant, Variant):
            read = {path: self.hashes.sha256(path) or "" for path in self.hashes.looked_at()}
            self.supply().refuse_altered(variant, read)

    def _toolkit(self, variant: Variant) -> CudaToolkit:
        """That of the nvcc that `select` has seen, or what clang makes of a pinned one."""
        supply, release = self.supply(), variant.backend_version
        if release is None:
            raise TypeError(f"{variant.tag} names no release of CUDA")
        by_clang = supply.by_clang(release)
        toolkit = self._clang_toolkit(release) if by_clang else self._nvcc_toolkit(variant, release)
        return toolkit if variant.stable_abi else replace(toolkit, torch=FULL_ABI, math=supply.math(release))

    def _nvcc_toolkit(self, variant: Variant, release: Version) -> CudaToolkit:
        supply = self.supply()
        nvcc = supply.nvcc(release)
        if nvcc is None:
            raise EnvironmentLacksError(why_without_nvcc(variant, release, supply))
        return toolkit_of(nvcc, self.hashes, self.machine.platform.cpu)

    def _clang_toolkit(self, release: Version) -> CudaToolkit:
        root, clang = self.supply().toolkit(release), self.supply().clang()
        if root is None or isinstance(clang, str):
            raise EnvironmentLacksError(Problem(f"there is no clang for CUDA {release}: {clang}", hint=INSTALL))
        return clang_toolkit(clang, root, release, self.hashes, self.environment)

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
        self._forget_lists()  # what was not there may be by now
        scanner = self._scanner(package, variant)
        return frozenset(s.path for s in self._sources(package, variant) if scanner.remembered([s]) is None)

    def own_files(self) -> frozenset[str]:
        """Files looked at since the last `renew` that are not the toolchain's."""
        files = self.hashes.looked_at()
        return frozenset(f for f in files if not any(headers.owns(f) for headers in self._headers.values()))

    def renew(self) -> None:
        """Look at every file anew: what was read earlier in this run may have changed since."""
        self.hashes.renew()
        self._forget_lists()
        self._tools = {}  # the compiler is files too
        self._compiler = None
        self._supply = None

    def _forget_lists(self) -> None:
        self._headers = {}
        self._absent.clear()

    def _sources(self, package: Package, variant: Variant) -> tuple[Source, ...]:
        tools = self.tools(variant)
        return compiled_sources(package, variant, tools.compiler.family, tools.from_nvcc)

    def _scanner(self, package: Package, variant: Variant) -> Scanner:
        tools, key = self.tools(variant), _tools_key(variant)
        if key not in self._headers:
            self._headers[key] = Headers(self.store, self.hashes, tools)
        around = (self.store, self.hashes, self._headers[key])
        return Scanner(package.root, *around, variant, tools, self.environment, self._absent[package.root])


def _tools_key(variant: Variant | None) -> tuple[object, ...]:
    """What of a variant its toolchain depends on."""
    return (variant.torch, variant.backend, variant.backend_version, variant.stable_abi) if variant else ()


def toolchain_facts(tools: Toolchain) -> dict[str, str]:
    """What a note beside an artifact says of its toolchain."""
    return {
        "compiler": str(tools.compiler),
        "fingerprint": tools.compiler.fingerprint,
        "torch": tools.torch.release,
        **({"cuda": str(tools.cuda), "cuda-fingerprint": tools.cuda.fingerprint} if tools.cuda else {}),
        **{f"sdk {name}": tree for name, tree in tools.sdks},
        **({"sanitizers": ",".join(tools.sanitizers)} if tools.sanitizers else {}),
    }
