"""RMS norm with a gate: y = rms_norm(x * silu(gate)), or rms_norm(x) * silu(gate)."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance
from tests.cases import rms_norm

EPS = rms_norm.EPS
F = torch.nn.functional


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw x and gate with 0.45 <= |x * silu(gate)|, so that rstd <= 2.3 and the error model has a scale."""
    noise, gate = torch.randn((2, *shape), generator=generator)
    x = torch.where(noise < 0, noise - 2.5, noise + 2.5)
    gate = torch.where(gate < 0, gate.clamp(min=-1.5) - 0.5, gate + 0.5)
    weight = 1 + 0.25 * torch.randn(shape[-1], generator=generator)
    return {"x": x.to(dtype), "gate": gate.to(dtype), "weight": weight.to(dtype), "eps": EPS}


def reference(  # noqa: PLR0913 (the arguments of the formula)
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None = None,
    eps: float = EPS,
    *,
    weight_offset: float = 0.0,
    norm_before_gate: bool = False,
) -> Tensor:
    """Compute in the dtype of x, which parity makes float64."""
    if norm_before_gate:
        return rms_norm.reference(x, weight, eps, weight_offset) * F.silu(gate)
    return rms_norm.reference(x * F.silu(gate), weight, eps, weight_offset)


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """Bound as rms_norm does, with silu and its product: 5 roundings more.

    Gradients cancel: terms are of size 32, by 4.5 for silu(gate), or by 7 for x, and 4 for grad and weight.
    """
    columns = shape[-1]
    rows = math.prod(shape[:-1])
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    in_float = (8 + math.sqrt(columns)) * rms_norm.FLOAT_ROUNDING
    if name == "output":
        return Tolerance(relative=to_dtype + in_float, absolute=smallest)
    terms = math.sqrt(rows) if name == "weight" else 1.0
    return Tolerance(relative=to_dtype + in_float, absolute=smallest + 32 * terms * in_float)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count x, gate and y, or grad, x, gate, dx and dgate; the weight once, or twice with its gradient; rstd."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    tensors, weights = (5, 2) if backward else (3, 1)
    return (tensors * rows + weights) * columns * dtype.itemsize + 4 * rows


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count the operations of silu, 25 or 30, beside those of rms_norm."""
    return rms_norm.flops(shape, backward) + (30 if backward else 25) * math.prod(shape)


def _torch_gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    return F.rms_norm(x * F.silu(gate), x.shape[-1:], weight, eps)


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_torch_gated_rms_norm, dynamic=False)


def _compiled_gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    y: Tensor = _compiled()(x, gate, weight, eps)
    return y


CASE = OpCase(
    op="gated_rms_norm",
    shapes=rms_norm.SHAPES,
    bench_shapes=("model size", "cache size"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("x", "gate", "weight"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("silu, F.rms_norm", _torch_gated_rms_norm), Peer("torch.compile", _compiled_gated_rms_norm)),
)
