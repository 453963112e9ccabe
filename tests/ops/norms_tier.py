"""Run the norms in the tier of HUBKERNELS_ISA and save them: `python -m tests.ops.norms_tier REPO OUTPUT`."""

from __future__ import annotations

import sys
from pathlib import Path

import kernels
import torch

from tests.ops.norms import NORMS
from tests.ops.rms_norm_tier import COLUMNS, DTYPES, LARGE, ROWS, digest


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.cpu_isa()}
    for (name, norm), dtype in ((item, dtype) for item in NORMS.items() for dtype in DTYPES):
        for columns in COLUMNS:
            results[f"{name} {dtype} {columns}"] = norm.run(op, norm.draw(ROWS, columns, dtype=dtype))
        for rows, columns in LARGE:
            found = norm.run(op, norm.draw(rows, columns, dtype=dtype))
            results[f"{name} {dtype} {rows}x{columns}"] = {what: digest(t) for what, t in found.items()}
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
