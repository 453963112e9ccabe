"""Run the norms in the tier of HUBKERNELS_ISA and save them: `python -m tests.ops.norms_tier REPO OUTPUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import kernels
import torch

from tests.ops.norms import NORMS, Norm, Results
from tests.ops.rms_norm_tier import LARGE, ROWS
from tests.ops.sweep import DTYPES, SIZES, digest

FEW = 61  # a prime: blocks of rows differ


def draw_many(norm: Norm, rows: int, columns: int, dtype: torch.dtype) -> Results:
    """Draw a few rows, over and over: drawing all took longer than the kernels."""
    turn = torch.arange(rows) % FEW
    drawn = norm.draw(min(rows, FEW), columns, dtype=dtype)
    return {name: t[turn] if t.dim() == 2 else t for name, t in drawn.items()}


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.cpu_isa()}
    for (name, norm), dtype in ((item, dtype) for item in NORMS.items() for dtype in DTYPES):
        for columns in SIZES:
            results[f"{name} {dtype} {columns}"] = norm.run(op, norm.draw(ROWS, columns, dtype=dtype))
        for rows, columns in LARGE:
            found = norm.run(op, draw_many(norm, rows, columns, dtype))
            results[f"{name} {dtype} {rows}x{columns}"] = {what: digest(t) for what, t in found.items()}
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
