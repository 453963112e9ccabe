"""The tiers of this machine, and scripts that run in one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

# The flags that the kernel demands for each tier, as /proc/cpuinfo spells them.
TIERS = {
    "avx512-bf16": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_bf16", "avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx2", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
    "scalar": set(),
}


OPS = {
    "rms_norm": "rms-norm",
    "norms": "rms-norm",
    "layer_norm": "rms-norm",
    "activation": "activation",
    "ms_deform_attn": "ms-deform-attn",
}
"""What has a tests/ops/<op>_tier.py, which saves results, and a tests/ops/<op>_guarded.py; and its package."""


def cpu_flags() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((set(line.split(":")[1].split()) for line in lines if line.startswith("flags")), set())


USABLE_TIERS = [name for name, flags in TIERS.items() if flags <= cpu_flags()]

OTHER_COMPILER_TIERS = USABLE_TIERS if os.environ.get("HUBKERNELS_TEST_ALL") else USABLE_TIERS[:1]
"""Where another compiler has to give the same bits; the best stands for the others in a sample."""


def need_tier(isa: str) -> None:
    """Skip a test on a machine without the tier."""
    if isa not in USABLE_TIERS:
        pytest.skip(f"this CPU lacks {sorted(TIERS[isa] - cpu_flags())}")


def run_in_tier(isa: str, module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a module of tests/ops in a process of its own, where every kernel uses one tier."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = {**os.environ, "HUBKERNELS_ISA": isa, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def saved_results(op: str, isa: str, repo: Path, output: Path) -> dict[str, Any]:
    """Run the script of an op in a tier, unless another worker has, and load what it saved."""
    with FileLock(f"{output}.lock"):
        if not output.exists():
            done = run_in_tier(isa, f"tests.ops.{op}_tier", repo, output)
            assert done.returncode == 0, done.stderr
    results: dict[str, Any] = torch.load(output)
    assert results.pop("isa") == isa, "another tier ran"
    return results
