"""The memory that a compile took, remembered: the next one of that source is expected to take as much.

It is kept by the names of things, not by their content: an object that is compiled once more has other content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.includes import put
from hubkernels.build.settings import Need
from hubkernels.host.store import Store
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.toolchain.cpu import Toolchain

SUFFIX = ".peak"
_HEADROOM = 1.25
"""What a source may grow by before the figure is of no use."""


@dataclass(frozen=True)
class Peaks:
    """What is remembered of the compiles of one plan. Figures are bytes of the largest process of a command."""

    store: Store
    plan: BuildPlan
    tools: Toolchain

    def need(self, step: Step, usual: Need) -> Need:
        """What a step may take: as much as the last time, for each architecture that it compiles for at once."""
        peak = self._recall(step)
        if peak is None:
            return usual
        ours = [word.partition("=")[2] for word in step.command if word.startswith("--threads=")][-1:]
        threads = int(*ours) if step.told and ours else 1
        return Need(int(peak * _HEADROOM) * max(threads, 1), f"{step.subject}, as measured,")

    def keep(self, steps: Iterable[Step], folder: Path) -> None:
        """Remember what steps of a run in a folder took, as far as it was written down."""
        for step in steps:
            path = folder / f"{step.output}{SUFFIX}"
            if path.is_file() and (text := path.read_bytes()).isdigit():
                put(self.store, self._name(step), text)

    def _recall(self, step: Step) -> int | None:
        text = self.store.get(self._name(step))
        return int(text) if text and text.isdigit() else None

    def _name(self, step: Step) -> str:
        compiler = str(self.tools.cuda if step.told else self.tools.compiler)
        how = [self.plan.package, self.plan.variant, step.verb, step.subject, compiler, self.tools.sanitizers]
        return f"{hashlib.sha256(json.dumps(how).encode()).hexdigest()[:32]}{SUFFIX}"
