"""Layer norm: y = (x - mean(x, -1)) / sqrt(var(x, -1) + eps) * weight + bias."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

EPS = 1e-5
FLOAT_ROUNDING = 2.0**-24

SHAPES: dict[str, tuple[int, ...]] = {
    "no rows": (0, 64),
    "no columns": (4, 0),
    "one element": (1, 1),
    "one column": (7, 1),
    "two columns": (9, 2),
    "less than one vector": (3, 7),
    "one vector and one element": (5, 17),
    "ragged tail": (5, 1023),
    "three leading dims": (2, 3, 4, 96),
    "rows in several blocks": (1030, 40),
    "runs inside a block": (17000, 8),
    "few long rows": (3, 70001),
    "training": (512, 1024),
    "model size": (4096, 4096),
    "detection tokens": (142568, 256),
    "cache size": (4096, 1024),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw x with neighbours at least 1 apart, so that rstd <= 2 and the error model has a scale; weight near 1."""
    noise = torch.randn(shape, generator=generator)
    sides = torch.ones(shape[-1])
    sides[1::2] = -1
    x = sides * (noise.abs() + 0.5)
    weight = 1 + 0.25 * torch.randn(shape[-1], generator=generator)
    bias = torch.randn(shape[-1], generator=generator)
    return {"x": x.to(dtype), "weight": weight.to(dtype), "bias": bias.to(dtype), "eps": EPS}


def reference(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS) -> Tensor:
    """Compute in the dtype of x, which parity makes float64."""
    distance = x - x.mean(-1, keepdim=True)
    y = distance * torch.rsqrt(distance.square().mean(-1, keepdim=True) + eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """Bound the rounding: once to the dtype, and in float32 before that.

    A sum of C terms is off by sqrt(C) roundings (random signs), rstd by half of that; five roundings follow.
    The sum with the bias cancels, and so do gradients: there the error is relative to the terms, of size 8:
    rstd <= 2, and 4 for n, grad and weight. dweight and dbias add up one term a row.
    A row of one element has the variance zero: its rstd is 1 / sqrt(eps).
    """
    columns = shape[-1]
    rows = math.prod(shape[:-1])
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    in_float = (5 + math.sqrt(columns)) * FLOAT_ROUNDING
    terms = math.sqrt(rows) if name in {"weight", "bias"} else 1.0
    size = 8 * terms / (math.sqrt(EPS) if columns == 1 else 1.0)
    return Tolerance(relative=to_dtype + in_float, absolute=smallest + size * in_float)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x and y, or grad, x and dx; weight and bias, or weight and two gradients; three statistics."""
    size = dtype.itemsize
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tensors, weights = (3, 3) if backward else (2, 2)
    return tensors * rows * columns * size + weights * columns * size + 12 * rows


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count a multiplication or addition of the formulas as one."""
    return (15 if backward else 8) * math.prod(shape)


def _torch_layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_layer_norm, dynamic=False)


def _compiled_layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS
) -> Tensor:
    y: Tensor = _compiled()(x, weight, bias, eps)
    return y


CASE = OpCase(
    op="layer_norm",
    shapes=SHAPES,
    bench_shapes=("model size", "detection tokens", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x", "weight", "bias"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("F.layer_norm", _torch_layer_norm), Peer("torch.compile", _compiled_layer_norm)),
)
