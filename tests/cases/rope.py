"""Rotary embedding of q and k: pairs of elements of a head, turned by the angles of its token."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

FLOAT_ROUNDING = 2.0**-24

# Batches, heads of q, heads of k, tokens, elements of a head.
SHAPES: dict[str, tuple[int, ...]] = {
    "no tokens": (2, 4, 4, 0, 8),
    "no batches": (0, 4, 4, 3, 8),
    "no heads of k": (1, 4, 0, 3, 8),
    "one pair": (1, 1, 1, 1, 2),
    "less than one vector": (2, 3, 1, 5, 10),
    "one vector and one pair": (1, 2, 2, 3, 34),
    "grouped heads": (2, 8, 2, 17, 64),
    "more pairs than fit at a time": (1, 2, 1, 3, 1030),
    "one token": (4, 32, 8, 1, 128),
    "prompt": (1, 32, 8, 4096, 128),
    "cache size": (1, 8, 2, 512, 64),
}


def angles(tokens: int, columns: int) -> tuple[Tensor, Tensor]:
    """Give cos and sin, a column for each element, for tokens 0, 1, 2, ..."""
    frequencies = 10000.0 ** (-torch.arange(0, columns, 2) / columns)
    angle = torch.outer(torch.arange(tokens), frequencies).repeat(1, 2)
    return angle.cos(), angle.sin()


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw q and k as models have them: heads next to each other in memory, seen as a dim before the tokens."""
    batches, heads_of_q, heads_of_k, tokens, size = shape
    q, k = (
        torch.randn(batches, tokens, heads, size, generator=generator).to(dtype).transpose(1, 2)
        for heads in (heads_of_q, heads_of_k)
    )
    cos, sin = angles(tokens, size)
    return {"q": q, "k": k, "cos": cos.to(dtype), "sin": sin.to(dtype)}


def reference(  # noqa: PLR0913 (the arguments of the op)
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    unsqueeze_dim: int = 1,
) -> Any:  # noqa: ANN401 (an OpCase speaks of one tensor)
    """Compute in the dtype of q, which parity makes float64."""
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    cos, sin = (t if t.dim() == 3 else t.unsqueeze(0) for t in (cos, sin))
    size = cos.shape[-1] if rotary_dim is None else rotary_dim
    if cos.shape[-1] != size:
        cos, sin = (t.repeat_interleave(2, -1) if interleaved else t.repeat(1, 1, 2) for t in (cos, sin))
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def turn(x: Tensor) -> Tensor:
        turned = x[..., :size]
        if interleaved:
            quarter = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
        else:
            quarter = torch.cat((-turned[..., size // 2 :], turned[..., : size // 2]), -1)
        return torch.cat((turned * cos + quarter * sin, x[..., size:]), -1)

    return turn(q), turn(k)


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:  # noqa: ARG001 (no sums)
    """Bound the rounding: once to the dtype, and of two products and their sum in float32, which may cancel.

    Elements are below 6, cosines and sines at most 1.
    """
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    return Tolerance(to_dtype + FLOAT_ROUNDING, smallest + 2 * 6 * FLOAT_ROUNDING)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: ARG001, FBT001 (both alike)
    """Count q and k twice, cos and sin once."""
    batches, heads_of_q, heads_of_k, tokens, size = shape
    return (2 * batches * (heads_of_q + heads_of_k) + 2) * tokens * size * dtype.itemsize


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: ARG001, FBT001 (both alike)
    """Count a multiplication or addition as one."""
    batches, heads_of_q, heads_of_k, *rest = shape
    return 3 * batches * (heads_of_q + heads_of_k) * math.prod(rest)


def _torch_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:  # noqa: ANN401
    def turn(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    return turn(q), turn(k)


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_rope, dynamic=False)


def _compiled_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:  # noqa: ANN401
    return _compiled()(q, k, cos, sin)


CASE = OpCase(
    op="rope",
    shapes=SHAPES,
    bench_shapes=("prompt", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("q", "k"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("x * cos + half * sin", _torch_rope), Peer("torch.compile", _compiled_rope)),
)
