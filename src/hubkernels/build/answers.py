"""What a pinned nvcc says of itself, kept: its folder is named for its content, so it would say the same again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hubkernels.build.includes import put
from hubkernels.host.store import Store
from hubkernels.model.version import Version
from hubkernels.toolchain.nvcc import PINNED, Nvcc, list_codes, nvcc_at

_FORM = 1


@dataclass(frozen=True)
class NvccAnswers:
    """Asks an nvcc once a machine: three programs start for it, a tenth of a build that has nothing to do."""

    store: Store
    environment: Mapping[str, str]

    def at(self, path: str) -> Nvcc | None:
        """The pinned nvcc of this path; None where it does not run, which is asked anew."""
        if known := self._known(path):
            release = Version.parse(known["release"])
            return Nvcc(path, release, PINNED, known["newest_host"], known["own"])
        return nvcc_at(path, PINNED, self.environment)

    def codes(self, nvcc: Nvcc) -> Collection[str]:
        """The architectures that an nvcc compiles for. An installed one, which may be another tomorrow, is asked."""
        if nvcc.why != PINNED:
            return list_codes(nvcc.path, self.environment)
        if known := self._known(nvcc.path):
            return frozenset(known["codes"])
        codes = list_codes(nvcc.path, self.environment)
        if codes:
            facts = {"release": str(nvcc.release), "newest_host": dict(nvcc.newest_host), "own": dict(nvcc.own)}
            put(self.store, _name(nvcc.path), json.dumps({**facts, "codes": sorted(codes)}).encode())
        return codes

    def _known(self, path: str) -> dict[str, Any] | None:
        content = self.store.get(_name(path))
        return json.loads(content) if content else None


def _name(path: str) -> str:
    return f"{hashlib.sha256(f'{_FORM} {path}'.encode()).hexdigest()[:32]}.nvcc"
