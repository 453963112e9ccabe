"""Run layer_norm in the tier of HUBKERNELS_ISA and save it: `python -m tests.ops.layer_norm_tier REPO OUTPUT`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import kernels
import torch
from torch import Tensor

from tests.ops.rms_norm_tier import LARGE, ROWS, every_kind_of_float
from tests.ops.sweep import DTYPES, SIZES, digest, draw

FAR = 1e4  # rows around it, where the mean needs more than float32
HARD: dict[str, Callable[[Tensor], Tensor]] = {
    "far from zero": lambda x: x + FAR,
    "first elements elsewhere": lambda x: torch.cat([x[:, :16] + 1e6, x[:, 16:]], 1),
    "huge": lambda x: x * 2.0**126,
    "tiny": lambda x: x * 2.0**-100,
    "infinite": lambda x: torch.where(x == x.amax(), torch.inf, x),
}


def inputs(dtype: torch.dtype, columns: int, rows: int = ROWS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw x, weight, bias and the gradient of y. Neighbours differ, so that no variance is small."""
    generator = torch.Generator().manual_seed(columns)
    x, grad = draw((2, rows, columns), generator)
    sides = torch.ones(columns)
    sides[1::2] = -1
    weight, bias = torch.randn(2, columns, generator=generator)
    return (sides * (x.abs() + 0.5)).to(dtype), weight.to(dtype), bias.to(dtype), grad.to(dtype)


def results_of(op: ModuleType, *arguments: Tensor, eps: float = 1e-5) -> tuple[Tensor, ...]:
    """y and the gradients of x, weight and bias."""
    *leaves, grad = (t.detach() for t in arguments)
    x, weight, bias = (t.requires_grad_() for t in leaves)
    y = op.layer_norm(x, weight, bias, eps)
    return (y.detach(), *torch.autograd.grad(y, (x, weight, bias), grad))


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.functional.ops.layer_norm_isa()}
    for dtype in DTYPES:
        for columns in SIZES:
            results[f"{dtype} {columns}"] = results_of(op, *inputs(dtype, columns))
        for rows, columns in LARGE:
            found = results_of(op, *inputs(dtype, columns, rows))
            results[f"{dtype} {rows}x{columns}"] = [digest(result) for result in found]
        floats = every_kind_of_float()  # equal elements: y is the bias, rounded
        ones = torch.ones_like(floats, dtype=dtype)
        results[f"{dtype} rounded"] = op.layer_norm(ones, None, floats)
    for name, change in HARD.items():
        x, *others = inputs(torch.float32, 77)
        results[name] = results_of(op, change(x), *others, eps=0.0)
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
