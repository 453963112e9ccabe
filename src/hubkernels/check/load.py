"""Load artifacts as a user will: a fresh process, the stock client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.check.client import Task, run_in_fresh_process

LOAD = Task("load", "hubkernels.check.loaded:load")
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Loaded:
    """What the client made of one artifact. incomplete: ops that cannot be called, and why."""

    variant: str
    op_id: str
    ops: tuple[str, ...]
    seconds: float
    incomplete: Mapping[str, str]


def check_load(variant: Path) -> Loaded:
    """Load the package of this artifact. Raises CheckFailedError when it does not load, or another variant does."""
    answer = run_in_fresh_process(LOAD, {"folder": str(variant.resolve())}, timeout_s=TIMEOUT_S)
    return Loaded(variant.name, answer["id"], tuple(answer["ops"]), answer["seconds"], answer["incomplete"])
