"""The memory that a compile took, remembered: the next one of that source is expected to take as much.

It is kept by the names of things, not by their content: an object that is compiled once more has other content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hubkernels.build.includes import put
from hubkernels.build.settings import Need
from hubkernels.host.store import Store
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.toolchain.cpu import Toolchain

SUFFIX = ".peak"
_THREADS = "--threads="
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
        _, threads = _threads(step)
        return Need(int(peak * _HEADROOM) * threads, f"{step.subject}, as measured,")

    def fitted(self, step: Step, memory: int | None) -> Step:
        """The step with no more architectures at a time than there is memory for, by what one took the last time."""
        (place, threads), peak = _threads(step), self._recall(step)
        if not peak or memory is None or threads == 1:
            return step
        fewer = max(1, min(threads, memory // int(peak * _HEADROOM)))
        command = (*step.command[:place], f"{_THREADS}{fewer}", *step.command[place + 1 :])
        return replace(step, command=command)

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


def _threads(step: Step) -> tuple[int, int]:
    """Where nvcc is told how many architectures to compile for at a time, behind a user's own flags; and how many."""
    places = [place for place, word in enumerate(step.command) if word.startswith(_THREADS)]
    if not step.told or not places:
        return 0, 1
    return places[-1], int(step.command[places[-1]].removeprefix(_THREADS))
