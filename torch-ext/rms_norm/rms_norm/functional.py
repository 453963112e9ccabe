"""The op `rms_norm` and its gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._autograd import differentiable, gradient
from ._checks import check_eps, check_grad, check_rows, check_statistic, check_weight
from ._ops import ops


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, weight_offset: float = 0.0) -> Tensor:
    """Scale each row to unit mean square: ``y = x / sqrt(mean(x²) + eps) * (weight + weight_offset)``.

    x: (..., C), float32, bfloat16 or float16, any strides.
    weight: (C,), dtype of x or float32. None stands for ones, and then weight_offset must be 0.
    Returns (..., C), dtype of x, contiguous. x and weight get gradients in their own dtype.

    Sums, statistics and ``weight + weight_offset`` are float32 or better. bfloat16 and float16 results are
    at most 1 ulp from the float64 result rounded to that dtype. Rows of 1e19 and more do not overflow; NaN
    and infinity stay in their row. Results do not depend on the number of threads or on the CPU tier.
    With eps = 0, rows of zeros give NaN, as the formula does, and rows below 1e-38 may give infinity.
    When subnormals are flushed (torch.set_flush_denormal), rows above 1e37 may give zero.
    Under autocast the dtypes stay as they are. A second derivative and torch.func transforms raise
    NotImplementedError, forward-mode differentiation RuntimeError.

    The environment: HUBKERNELS_ISA forces a CPU tier (avx512-bf16, avx512, avx2, scalar);
    HUBKERNELS_HUGE_PAGES=0 stops outputs of 32 MiB and more from asking for huge pages.
    Raises RuntimeError on a bad shape, dtype, device or eps, before any work.
    """
    y: Tensor = _rms_norm(x, weight, eps, weight_offset)[0]
    return y


def cpu_isa() -> str:
    """Name the CPU tier of this process: avx512-bf16, avx512, avx2 or scalar.

    Raises RuntimeError when HUBKERNELS_ISA names a tier that this machine cannot run.
    """
    isa: str = ops.cpu_isa()
    return isa


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, ctx.weight_offset = inputs
    _, rstd = output
    ctx.save_for_backward(x, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    x, weight, rstd = ctx.saved_tensors
    want_dx, want_dweight = ctx.needs_input_grad[:2]
    dx, dweight = _rms_norm_backward(grad, x, weight, rstd, ctx.weight_offset, want_dx, want_dweight)
    return dx if want_dx else None, dweight if want_dweight else None, None, None


def _check(op: str, x: Tensor, weight: Tensor | None, weight_offset: float) -> None:
    check_rows(op, x)
    if not math.isfinite(weight_offset):
        raise RuntimeError(f"{op}: weight_offset is {weight_offset}, must be finite")
    if weight is not None:
        check_weight(op, "weight", weight, x)
    elif weight_offset != 0:
        raise RuntimeError(f"{op}: weight_offset is {weight_offset}, must be 0 without a weight")


def _fake_forward(x: Tensor, weight: Tensor | None, eps: float, weight_offset: float) -> tuple[Tensor, Tensor]:
    _check("rms_norm", x, weight, weight_offset)
    check_eps("rms_norm", eps)
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    rstd, weight_offset, want_dx, want_dweight = rest
    _check("rms_norm_backward", x, weight, weight_offset)
    check_grad("rms_norm_backward", grad, x)
    check_statistic("rms_norm_backward", "rstd", rstd, x)
    dx = x.new_empty(x.shape if want_dx else (0,))
    return dx, (x if weight is None else weight).new_empty(x.shape[-1:] if want_dweight else (0,))


_rms_norm = differentiable("rms_norm", _fake_forward, _setup_context, _backward)
_rms_norm_backward = gradient("rms_norm_backward", _fake_backward, of="rms_norm")
