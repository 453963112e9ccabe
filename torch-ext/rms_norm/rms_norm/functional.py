"""The ops `rms_norm`, `add_rms_norm` and `gated_rms_norm`, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ._autograd import differentiable, gradient, in_place
from ._checks import check_eps, check_like_x, check_rows, check_statistic, check_wanted, check_weight
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
    In the build for CUDA sums are float32, in an order that rows, columns and dtype alone decide.
    """
    y: Tensor = _rms_norm(x, weight, eps, weight_offset)[0]
    return y


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, weight_offset: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Add, and norm the sum: ``summed = x + residual``, ``y = rms_norm(summed, weight, eps)``.

    x, residual: (..., C), of one dtype, float32, bfloat16 or float16; any strides, no broadcasting.
    weight, eps, weight_offset: as in `rms_norm`.
    Returns (y, summed), both (..., C), dtype of x, contiguous. Both are differentiable.

    The sum is rounded to its dtype once, and what is normed is that rounded sum: y belongs to the summed that the
    caller gets, as if the two steps were two calls. x and residual have the same gradient, rounded once.
    Else as `rms_norm`, and raises as it does.
    """
    y, summed, _ = _add_rms_norm(x, residual, weight, eps, weight_offset)
    return y, summed


def add_rms_norm_(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, weight_offset: float = 0.0
) -> None:
    """Add and norm in place: residual becomes ``x + residual``, x its norm. Bits are those of `add_rms_norm`.

    x and residual may have any strides, but no two of the written elements may share memory: an expanded tensor,
    x as its own residual, or a weight inside one of them is refused. Interleaved halves of one tensor are not.
    Has no backward: raises RuntimeError where grad mode is on and an argument requires grad.
    Else as `add_rms_norm`, and raises as it does, before any write.
    """
    _add_rms_norm_(x, residual, weight, eps, weight_offset)


def gated_rms_norm(  # noqa: PLR0913 (the arguments of the formula)
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None = None,
    eps: float = 1e-6,
    *,
    weight_offset: float = 0.0,
    norm_before_gate: bool = False,
) -> Tensor:
    """Norm a gated x: ``y = rms_norm(x * silu(gate), weight, eps)``, with ``silu(gate) = gate / (1 + exp(-gate))``.

    With norm_before_gate: ``y = rms_norm(x, weight, eps) * silu(gate)``.
    x, gate: (..., C), of one dtype, float32, bfloat16 or float16; any strides, no broadcasting.
    weight, eps, weight_offset: as in `rms_norm`.
    Returns (..., C), dtype of x, contiguous. x, gate and weight get gradients in their own dtype.

    Everything is float32 or better up to one rounding of the result. silu(-inf) is 0, its limit. x * silu(gate) is a
    float32: a row where that overflows is NaN, and with eps = 0 one where it is zero.
    Else as `rms_norm`, and raises as it does.
    """
    y: Tensor = _gated_rms_norm(x, gate, weight, eps, weight_offset, norm_before_gate)[0]
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


def _new_rstd(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=torch.float32)


def _new_gradient(like: Tensor, shape: torch.Size, *, wanted: bool) -> Tensor:
    return like.new_empty(shape if wanted else (0,))


def _fake_forward(x: Tensor, weight: Tensor | None, eps: float, weight_offset: float) -> tuple[Tensor, Tensor]:
    _check("rms_norm", x, weight, weight_offset)
    check_eps("rms_norm", eps)
    return x.new_empty(x.shape), _new_rstd(x)


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_backward_of("rms_norm_backward", (("grad", grad),), x, weight, *rest)


def _fake_backward_of(
    op: str, grads: tuple[tuple[str, Tensor], ...], x: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    rstd, weight_offset, want_dx, want_dweight = rest
    _check(op, x, weight, weight_offset)
    for name, grad in grads:
        check_like_x(op, name, grad, x)
    check_statistic(op, "rstd", rstd, x)
    check_wanted(op, "weight", weight, wanted=want_dweight)
    dweight = _new_gradient(x if weight is None else weight, x.shape[-1:], wanted=want_dweight)
    return _new_gradient(x, x.shape, wanted=want_dx), dweight


_rms_norm = differentiable("rms_norm", _fake_forward, _setup_context, _backward)
_rms_norm_backward = gradient("rms_norm_backward", _fake_backward, of="rms_norm")


# A sum and its norm


def _fake_add_forward(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, weight_offset: float
) -> tuple[Tensor, Tensor, Tensor]:
    _check("add_rms_norm", x, weight, weight_offset)
    check_like_x("add_rms_norm", "residual", residual, x)
    check_eps("add_rms_norm", eps)
    return x.new_empty(x.shape), x.new_empty(x.shape), _new_rstd(x)


def _fake_add_in_place(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float, weight_offset: float) -> None:
    _check("add_rms_norm_", x, weight, weight_offset)
    check_like_x("add_rms_norm_", "residual", residual, x)
    check_eps("add_rms_norm_", eps)


def _add_setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, _, weight, _, ctx.weight_offset = inputs
    _, summed, rstd = output
    ctx.save_for_backward(summed, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _add_backward(ctx: Any, grad: Tensor | None, grad_summed: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    want_x, want_residual, want_dweight = ctx.needs_input_grad[:3]
    want_dx = want_x or want_residual
    if grad is None:
        dx, dweight = grad_summed, None
    else:
        summed, weight, rstd = ctx.saved_tensors
        dx, dweight = _add_rms_norm_backward(
            grad, grad_summed, summed, weight, rstd, ctx.weight_offset, want_dx, want_dweight
        )
    return (
        dx if want_x else None,
        dx if want_residual else None,
        dweight if want_dweight else None,
        None,
        None,
    )


def _fake_add_backward(
    grad: Tensor, grad_summed: Tensor | None, x: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    grads = (("grad", grad),) if grad_summed is None else (("grad", grad), ("grad_summed", grad_summed))
    return _fake_backward_of("add_rms_norm_backward", grads, x, weight, *rest)


_add_rms_norm = differentiable("add_rms_norm", _fake_add_forward, _add_setup_context, _add_backward)
_add_rms_norm_ = in_place("add_rms_norm_", _fake_add_in_place)
_add_rms_norm_backward = gradient("add_rms_norm_backward", _fake_add_backward, of="add_rms_norm")


# A norm with a gate


def _fake_gated_forward(
    x: Tensor, gate: Tensor, weight: Tensor | None, eps: float, *rest: Any
) -> tuple[Tensor, Tensor]:
    weight_offset, _ = rest
    _check("gated_rms_norm", x, weight, weight_offset)
    check_like_x("gated_rms_norm", "gate", gate, x)
    check_eps("gated_rms_norm", eps)
    return x.new_empty(x.shape), _new_rstd(x)


def _gated_setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, gate, weight, _, ctx.weight_offset, ctx.norm_before_gate = inputs
    _, rstd = output
    ctx.save_for_backward(x, gate, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _gated_backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 6
    x, gate, weight, rstd = ctx.saved_tensors
    wanted = ctx.needs_input_grad[:3]
    found = _gated_rms_norm_backward(grad, x, gate, weight, rstd, ctx.weight_offset, ctx.norm_before_gate, *wanted)
    return (*(t if want else None for t, want in zip(found, wanted, strict=True)), None, None, None)


def _fake_gated_backward(
    grad: Tensor, x: Tensor, gate: Tensor, weight: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    op = "gated_rms_norm_backward"
    rstd, weight_offset, _, want_dx, want_dgate, want_dweight = rest
    _check(op, x, weight, weight_offset)
    check_like_x(op, "grad", grad, x)
    check_like_x(op, "gate", gate, x)
    check_statistic(op, "rstd", rstd, x)
    check_wanted(op, "weight", weight, wanted=want_dweight)
    dx, dgate = (_new_gradient(x, x.shape, wanted=wanted) for wanted in (want_dx, want_dgate))
    return dx, dgate, _new_gradient(x if weight is None else weight, x.shape[-1:], wanted=want_dweight)


_gated_rms_norm = differentiable("gated_rms_norm", _fake_gated_forward, _gated_setup_context, _gated_backward)
_gated_rms_norm_backward = gradient("gated_rms_norm_backward", _fake_gated_backward, of="gated_rms_norm")
