"""Run rms_norm in the tier of HUBKERNELS_ISA and save it: `python -m tests.ops.rms_norm_tier REPO OUTPUT`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import kernels
import torch
from torch import Tensor

from tests.ops.sweep import DTYPES, SIZES, digest, draw

ROWS = 5  # one group of four and one row alone
LARGE = (
    (2056, 4160),  # written around the caches, every row aligned
    (2056, 4161),  # most rows not
    (17000, 8),  # several blocks of rows, several runs in a block
    (3, 40000),  # rows longer than a group, and than a float sum
)


def inputs(dtype: torch.dtype, columns: int, rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor]:
    """Draw x, weight and the gradient of y."""
    generator = torch.Generator().manual_seed(columns)
    x, grad = draw((2, rows, columns), generator)
    x = torch.where(x < 0, x - 0.5, x + 0.5)
    weight = torch.randn(columns, generator=generator)
    return x.to(dtype), weight.to(dtype), grad.to(dtype)


def every_kind_of_float() -> Tensor:
    """Draw float32 bit patterns: normal, subnormal, infinite, NaN, and ties of both half types."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (1 << 18,), generator=generator)
    ties = (bits & ~0xFFFF) | 0x8000
    half_ties = (bits & ~0x1FFF) | 0x1000
    small = bits & ~0x7F000000  # exponents 0 and 1 of the float32 range
    near_half = (bits & ~0x70000000) | 0x30000000  # down to the subnormals of float16
    return torch.cat([bits, ties, half_ties, small, near_half]).to(torch.int32).view(torch.float32)


def results_of(op: ModuleType, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y and the gradients of x and weight."""
    y = op.rms_norm(x.requires_grad_(), weight.requires_grad_(), 1e-6)
    return (y.detach(), *torch.autograd.grad(y, (x, weight), grad))


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.cpu_isa()}
    for dtype in DTYPES:
        for columns in SIZES:
            results[f"{dtype} {columns}"] = results_of(op, *inputs(dtype, columns))
        for rows, columns in LARGE:
            found = results_of(op, *inputs(dtype, columns, rows))
            results[f"{dtype} {rows}x{columns}"] = [digest(result) for result in found]
        floats = every_kind_of_float()  # x = 1 and eps = 0: y is the weight, rounded
        results[f"{dtype} rounded"] = op.rms_norm(torch.ones_like(floats, dtype=dtype), floats, 0.0)
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
