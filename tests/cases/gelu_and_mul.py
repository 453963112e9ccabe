"""GELU of x, times a tensor apart: y = x * (1 + erf(x / √2)) / 2 * up."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

FLOAT_ROUNDING = 2.0**-24
LARGEST = 8.0

SHAPES: dict[str, tuple[int, ...]] = {
    "no dims": (),
    "no rows": (0, 64),
    "no columns": (4, 0),
    "one element": (1, 1),
    "less than one vector": (3, 7),
    "one vector and one element": (5, 17),
    "ragged tail": (5, 1023),
    "three leading dims": (2, 3, 4, 48),
    "training": (512, 1024),
    "feed-forward": (4096, 11008),
    "cache size": (256, 1024),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw x between -8 and 8, where the tail is 5e-15, and up of size 1."""
    x = (3 * torch.randn(shape, generator=generator)).clamp(-LARGEST, LARGEST)
    return {"x": x.to(dtype), "up": torch.randn(shape, generator=generator).to(dtype)}


def reference(x: Tensor, up: Tensor | None = None, approximate: str = "none") -> Tensor:
    """Compute in the dtype of x, which parity makes float64, without the difference that 1 + erf is."""
    gate, up = x.chunk(2, -1) if up is None else (x, up)
    if approximate == "tanh":
        return gate * torch.sigmoid(math.sqrt(8 / math.pi) * (gate + 0.044715 * gate**3)) * up
    normal: Tensor = 0.5 * torch.special.erfc(-gate * math.sqrt(0.5))
    return gate * normal * up


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:  # noqa: ARG001 (no sums)
    """Bound the rounding: once to the dtype, and in float32 before that.

    An exponent, at most 32 for erf and 64 for tanh, is rounded twice; e^ makes that a relative error, of the output
    and of the gradient of up. The slope is off by 2^-22, and grad and up are below 6.
    """
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    if name == "x":
        return Tolerance(to_dtype + 8 * FLOAT_ROUNDING, smallest + 6 * 6 * 4 * FLOAT_ROUNDING)
    return Tolerance(to_dtype + (8 + 2 * 64) * FLOAT_ROUNDING, smallest)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x, up and y, or grad, x, up, dx and dup."""
    return (5 if backward else 3) * math.prod(shape) * dtype.itemsize


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count an operation of the formulas as one, and so each function."""
    return (12 if backward else 6) * math.prod(shape)


def _torch_gelu_and_mul(x: Tensor, up: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x) * up


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_gelu_and_mul, dynamic=False)


def _compiled_gelu_and_mul(x: Tensor, up: Tensor) -> Tensor:
    y: Tensor = _compiled()(x, up)
    return y


CASE = OpCase(
    op="gelu_and_mul",
    shapes=SHAPES,
    bench_shapes=("feed-forward", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x", "up"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("F.gelu * up", _torch_gelu_and_mul), Peer("torch.compile", _compiled_gelu_and_mul)),
)
