"""RMS norm: y = x / sqrt(mean(x², -1) + eps) * (weight + weight_offset)."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

EPS = 1e-6
FLOAT_ROUNDING = 2.0**-24

SHAPES: dict[str, tuple[int, ...]] = {
    "no rows": (0, 64),
    "no columns": (4, 0),
    "one element": (1, 1),
    "one column": (7, 1),
    "less than one vector": (3, 7),
    "one vector and one element": (5, 17),
    "ragged tail": (5, 1023),
    "three leading dims": (2, 3, 4, 96),
    "rows in several blocks": (1030, 40),
    "runs inside a block": (17000, 8),
    "query norm": (4096, 128),
    "few long rows": (3, 70001),
    "training": (512, 1024),
    "model size": (4096, 4096),
    "long query norm": (131072, 128),
    "cache size": (4096, 1024),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw x with 0.5 <= |x|, so that rstd <= 2 and the error model has a scale; weight near 1."""
    noise = torch.randn(shape, generator=generator)
    x = torch.where(noise < 0, noise - 0.5, noise + 0.5)
    weight = 1 + 0.25 * torch.randn(shape[-1], generator=generator)
    return {"x": x.to(dtype), "weight": weight.to(dtype), "eps": EPS}


def reference(x: Tensor, weight: Tensor | None = None, eps: float = EPS, weight_offset: float = 0.0) -> Tensor:
    """Compute in the dtype of x, which parity makes float64."""
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * (weight + weight_offset)


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """Bound the rounding: once to the dtype, and in float32 before that.

    A sum of C terms is off by sqrt(C) roundings (random signs), rstd by half of that; three roundings follow.
    Gradients cancel, so there the error is relative to the terms, of size 8: rstd <= 2, and 4 for grad and
    weight. dweight adds up one term a row.
    """
    columns = shape[-1]
    rows = math.prod(shape[:-1])
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    in_float = (3 + math.sqrt(columns)) * FLOAT_ROUNDING
    if name == "output":
        return Tolerance(relative=to_dtype + in_float, absolute=smallest)
    terms = math.sqrt(rows) if name == "weight" else 1.0
    return Tolerance(relative=to_dtype + in_float, absolute=smallest + 8 * terms * in_float)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x and y, or grad, x and dx; the weight once, or twice with its gradient; rstd."""
    size = dtype.itemsize
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tensors, weights = (3, 2) if backward else (2, 1)
    return tensors * rows * columns * size + weights * columns * size + 4 * rows


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count a multiplication or addition of the formulas as one."""
    return (11 if backward else 4) * math.prod(shape)


def _torch_rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_rms_norm, dynamic=False)


def _compiled_rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    y: Tensor = _compiled()(x, weight, eps)
    return y


CASE = OpCase(
    op="rms_norm",
    shapes=SHAPES,
    bench_shapes=("model size", "long query norm", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x", "weight"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("F.rms_norm", _torch_rms_norm), Peer("torch.compile", _compiled_rms_norm)),
)
