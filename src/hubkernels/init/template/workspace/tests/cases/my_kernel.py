"""The squared ReLU: what `check parity` compares, and `bench run` times."""

from __future__ import annotations

import math
from typing import Any

import torch
from hubkernels.check.opcase import OpCase, Peer, Tolerance
from torch import Tensor

SHAPES: dict[str, tuple[int, ...]] = {
    "empty": (0,),
    "one": (1,),
    "ragged tail": (3, 17),
    "several threads": (1_000_003,),
    "model size": (1024, 4096),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    return {"x": torch.randn(shape, generator=generator).to(dtype)}


def reference(x: Tensor) -> Tensor:
    """Compute in the dtype of x, which parity makes float64."""
    return torch.relu(x).square()


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """One rounding of the result; the gradient, 2 * x * grad, is rounded once more."""
    rounding = torch.finfo(dtype).eps / 2
    return Tolerance(relative=(1 if name == "output" else 2) * rounding, absolute=torch.finfo(dtype).tiny)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x and y, or x, grad and dx."""
    return (3 if backward else 2) * math.prod(shape) * dtype.itemsize


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    return (3 if backward else 2) * math.prod(shape)


CASE = OpCase(
    op="my_kernel",
    shapes=SHAPES,
    bench_shapes=("model size",),
    dtypes=("float32",),
    make=make,
    reference=reference,
    gradients=("x",),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("torch", reference), Peer("torch.compile", torch.compile(reference, dynamic=False))),
)
