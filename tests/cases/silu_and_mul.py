"""SiLU of the first half of x, times the second: y = gate * sigmoid(gate) * up."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

FLOAT_ROUNDING = 2.0**-24

SHAPES: dict[str, tuple[int, ...]] = {
    "no rows": (0, 64),
    "no columns": (4, 0),
    "one element": (1, 2),
    "one column": (7, 2),
    "less than one vector": (3, 14),
    "one vector and one element": (5, 34),
    "ragged tail": (5, 2046),
    "three leading dims": (2, 3, 4, 96),
    "not a power of two": (3, 2 * 2816),
    "one long row": (140002,),
    "training": (512, 2048),
    "feed-forward": (4096, 2 * 11008),
    "cache size": (256, 2048),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw x of size 2: SiLU from its tail to its linear part."""
    return {"x": (2 * torch.randn(shape, generator=generator)).to(dtype)}


def reference(x: Tensor, up: Tensor | None = None) -> Tensor:
    """Compute in the dtype of x, which parity makes float64."""
    gate, up = x.chunk(2, -1) if up is None else (x, up)
    return gate * torch.sigmoid(gate) * up


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:  # noqa: ARG001 (no sums)
    """Bound the rounding: once to the dtype, and in float32 before that.

    SiLU is at most 3.5 ulp off and the product rounds once more. Its slope is off by 2^-22, grad and the other factor
    are below 6 and 12, and two products round.
    """
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    relative = to_dtype + 8 * FLOAT_ROUNDING
    return Tolerance(relative, smallest if name == "output" else smallest + 6 * 12 * 4 * FLOAT_ROUNDING)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x and y, or grad, x and dx."""
    return (5 if backward else 3) * math.prod(shape) // 2 * dtype.itemsize


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count an operation of the formulas as one, and so each function."""
    return (9 if backward else 3) * math.prod(shape) // 2


def _torch_silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_silu_and_mul, dynamic=False)


def _compiled_silu_and_mul(x: Tensor) -> Tensor:
    y: Tensor = _compiled()(x)
    return y


CASE = OpCase(
    op="silu_and_mul",
    shapes=SHAPES,
    bench_shapes=("feed-forward", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x",),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("F.silu * up", _torch_silu_and_mul), Peer("torch.compile", _compiled_silu_and_mul)),
)
