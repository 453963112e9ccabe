"""From a package to its plans on this machine: the toolchain is looked for, and every file looked at, once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from hubkernels.build.archs import with_known_devices
from hubkernels.build.includes import Headers
from hubkernels.build.plan import Inputs, plan, plan_noarch
from hubkernels.build.scan import Reads, ScannedSource, Scanner, merged
from hubkernels.build.settings import Settings
from hubkernels.build.sources import Source, compiled_sources, shipped_python
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import HubkernelsError
from hubkernels.host.files import FileHashes
from hubkernels.host.machine import Machine, python_include, require_torch
from hubkernels.host.store import Store
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.toolchain.compiler import find_compiler
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.link import find_link_stubs


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
        self._tools: Toolchain | None = None
        self._headers: Headers | None = None

    def tools(self) -> Toolchain:
        """The toolchain, looked for once."""
        if self._tools is None:
            compiler = find_compiler(self.environment, self.hashes)
            stubs = find_link_stubs(self.machine.platform.cpu)
            around = (require_torch(self.machine), python_include(), stubs)
            self._tools = Toolchain(compiler, *around, sanitizers=self.settings.sanitizers)
        return self._tools

    def plan(self, package: Package, variant: AnyVariant) -> BuildPlan:
        """Plan one variant. A file is looked at once, until `renew` is called."""
        python = tuple(
            (target, path, self.hashes.sha256(str(package.root / path)) or "")
            for target, path in shipped_python(package)
        )
        if isinstance(variant, NoarchVariant):
            return plan_noarch(with_known_devices(package, load_variant_table()), variant, python)
        inputs = Inputs(self.scan(package, variant), python, os.path.realpath(package.root))
        return plan(package, variant, self.tools(), inputs)

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
        self._headers = None  # what was not there may be by now
        scanner = self._scanner(package, variant)
        return frozenset(s.path for s in self._sources(package, variant) if scanner.remembered([s]) is None)

    def own_files(self) -> frozenset[str]:
        """Files looked at since the last `renew` that are not the toolchain's."""
        files = self.hashes.looked_at()
        return files if self._headers is None else frozenset(f for f in files if not self._headers.owns(f))

    def renew(self) -> None:
        """Look at every file anew: what was read earlier in this run may have changed since."""
        self.hashes.renew()
        self._headers = None
        self._tools = None  # the compiler is files too

    def _sources(self, package: Package, variant: Variant) -> tuple[Source, ...]:
        return compiled_sources(package, variant, self.tools().compiler.family)

    def _scanner(self, package: Package, variant: Variant) -> Scanner:
        if self._headers is None:
            self._headers = Headers(self.store, self.hashes, self.tools())
        around = (self.store, self.hashes, self._headers)
        return Scanner(package.root, *around, variant, self.tools(), self.environment)


def toolchain_facts(tools: Toolchain) -> dict[str, str]:
    """What a note beside an artifact says of its toolchain."""
    return {
        "compiler": str(tools.compiler),
        "fingerprint": tools.compiler.fingerprint,
        "torch": tools.torch.release,
        **({"sanitizers": ",".join(tools.sanitizers)} if tools.sanitizers else {}),
    }
