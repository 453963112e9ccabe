"""RMS norm of a sum: summed = x + residual, y = summed / sqrt(mean(summed², -1) + eps) * (weight + weight_offset)."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance
from tests.cases import rms_norm

EPS = rms_norm.EPS
STEP = 1 / 16


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw multiples of 1/16 whose sum no dtype rounds, since the reference cannot know of that rounding.

    The sum is drawn as rms_norm's x, for its error model.
    """

    def draw() -> Tensor:
        return (torch.randn(shape, generator=generator) / STEP).round().mul(STEP).clamp(-3.5, 3.5)

    noise, residual = draw(), draw()
    x = torch.where(noise < 0, noise - 0.5, noise + 0.5) - residual
    weight = 1 + 0.25 * torch.randn(shape[-1], generator=generator)
    return {"x": x.to(dtype), "residual": residual.to(dtype), "weight": weight.to(dtype), "eps": EPS}


def reference(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = EPS, weight_offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute in the dtype of x, which parity makes float64."""
    summed = x + residual
    return rms_norm.reference(summed, weight, eps, weight_offset), summed


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """Bound as rms_norm does, but the sum is exact; the gradient of the sum adds a term of size 4 and a rounding."""
    if name == "output 1":
        return Tolerance(relative=0.0, absolute=0.0)
    names = {"output 0": "output", "residual": "x"}
    return rms_norm.tolerance(shape, dtype, names.get(name, name))


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x, residual, y and summed, or both gradients, summed and dx; the weight as rms_norm; rstd."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    return 4 * rows * columns * dtype.itemsize + (2 if backward else 1) * columns * dtype.itemsize + 4 * rows


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count an addition more than rms_norm."""
    return rms_norm.flops(shape, backward) + math.prod(shape)


def _torch_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    summed = x + residual
    return torch.nn.functional.rms_norm(summed, x.shape[-1:], weight, eps), summed


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_add_rms_norm, dynamic=False)


def _compiled_add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    y, summed = _compiled()(x, residual, weight, eps)
    return y, summed


CASE = OpCase(
    op="add_rms_norm",
    shapes=rms_norm.SHAPES,
    bench_shapes=("model size", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x", "residual", "weight"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("add, F.rms_norm", _torch_add_rms_norm), Peer("torch.compile", _compiled_add_rms_norm)),
)
