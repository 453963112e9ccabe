"""Run ms_deform_attn in the tier of HUBKERNELS_ISA and save it: `-m tests.ops.ms_deform_attn_tier REPO OUTPUT`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import kernels
import torch
from torch import Tensor

from tests.cases.ms_deform_attn import CASE, SHAPES
from tests.ops.sweep import DTYPES, SIZES, digest

SWEEPS: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "channels": lambda n: (1, 4, 2, n, 2, 2, 3, 1, 2),
    "channels, in place where they can be": lambda n: (1, 1, 2, n, 1, 9, 7),
    "queries": lambda n: (2, n, 2, 16, 1, 9, 7),
    "points": lambda n: (1, 3, 2, 16, n, 3, 5),
}
LARGE = ("encoder", "one head, queries in chunks", "rf-detr in training")  # the first is written around the caches


def inputs(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[dict[str, Any], Tensor]:
    """Draw the arguments and the gradient of the output."""
    generator = torch.Generator().manual_seed(sum(shape))
    arguments = CASE.make(shape, dtype, generator)
    batch, queries, heads, channels = shape[:4]
    return arguments, torch.randn(batch, queries, heads * channels, generator=generator).to(dtype)


def hard_inputs() -> tuple[dict[str, Any], Tensor]:
    """Draw locations of every kind: on borders and pixels, outside, not finite, beside infinite numbers elsewhere."""
    arguments, grad = inputs((1, 64, 2, 20, 4, 5, 7, 3, 2), torch.float32)
    marks = [0.0, -0.0, 1.0, 0.5, 0.1, 1 / 14, 13 / 14, -1 / 14, -1e-8, 1 + 1e-7, 1e30, -1e30, 3e38]
    marks += [float("nan"), float("inf"), -float("inf")]
    pairs = torch.tensor(list(itertools.product(marks, marks)))  # 256 of them
    arguments["sampling_locations"][0, :, 0] = pairs.repeat(2, 1).view(64, 2, 4, 2)
    arguments["attention_weights"][0, 7, 1, 0, 0] = float("nan")
    arguments["value"][0, 3, 1, 2] = float("inf")
    grad[0, 9, 3] = float("inf")
    return arguments, grad


def results_of(op: ModuleType, arguments: dict[str, Any], grad: Tensor) -> tuple[Tensor, ...]:
    """Output, and the gradients of value, locations and weights."""
    leaves = [arguments[name].detach().requires_grad_() for name in CASE.gradients]
    out = op.ms_deform_attn(**{**arguments, **dict(zip(CASE.gradients, leaves, strict=True))})
    return (out.detach(), *torch.autograd.grad(out, leaves, grad))


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.cpu_isa()}
    for dtype in DTYPES:
        for (sweep, shape_of), count in itertools.product(SWEEPS.items(), SIZES):
            results[f"{dtype} {sweep} {count}"] = results_of(op, *inputs(shape_of(count), dtype))
        for name in LARGE:
            results[f"{dtype} {name}"] = [digest(t) for t in results_of(op, *inputs(SHAPES[name], dtype))]
    results["hard"] = results_of(op, *hard_inputs())
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
