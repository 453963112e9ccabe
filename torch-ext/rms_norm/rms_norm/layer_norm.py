"""The op `layer_norm` and its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._autograd import differentiable, gradient
from ._checks import check_eps, check_like_x, check_rows, check_statistic, check_wanted, check_weight


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Bring each row to mean 0 and variance 1: ``y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias``.

    x: (..., C), float32, bfloat16 or float16, any strides. var is the mean of the squared distances from the mean.
    weight, bias: (C,), each in the dtype of x or float32. None stands for ones and for zeros.
    Returns (..., C), dtype of x, contiguous. x, weight and bias get gradients in their own dtype.

    Sums and statistics are float32 or better. A variance does not cancel: rows far from zero are as right as rows
    around it, in y and in the gradients. Rows of 1e19 and more do not overflow; NaN and infinity stay in their row,
    which becomes NaN. Results do not depend on the number of threads or on the CPU tier.
    With eps = 0, rows of equal elements give NaN, as the formula does, and rows below 1e-38 may give infinity.
    When subnormals are flushed (torch.set_flush_denormal), rows above 1e37 may give zero.
    Under autocast the dtypes stay as they are. A second derivative and torch.func transforms raise
    NotImplementedError, forward-mode differentiation RuntimeError.

    The environment: HUBKERNELS_ISA forces a CPU tier (avx512-bf16, avx512, avx2, scalar);
    HUBKERNELS_HUGE_PAGES=0 stops outputs of 32 MiB and more from asking for huge pages.
    Raises RuntimeError on a bad shape, dtype, device or eps, before any work.
    """
    y: Tensor = _layer_norm(x, weight, bias, eps)[0]
    return y


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _ = inputs
    _, *statistics = output
    ctx.save_for_backward(x, weight, bias, *statistics)
    ctx.mark_non_differentiable(*statistics)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    wanted = ctx.needs_input_grad[:3]
    found = _layer_norm_backward(grad, *ctx.saved_tensors, *wanted)
    return *(t if want else None for t, want in zip(found, wanted, strict=True)), None


def _check(op: str, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    check_rows(op, x)
    if weight is not None:
        check_weight(op, "weight", weight, x)
    if bias is not None:
        check_weight(op, "bias", bias, x)


def _fake_forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, ...]:
    _check("layer_norm", x, weight, bias)
    check_eps("layer_norm", eps)
    return x.new_empty(x.shape), *(x.new_empty(x.shape[:-1], dtype=torch.float32) for _ in range(3))


def _fake_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, ...]:
    op = "layer_norm_backward"
    *statistics, want_dx, want_dweight, want_dbias = rest
    _check(op, x, weight, bias)
    check_like_x(op, "grad", grad, x)
    for name, saved in zip(("mean", "mean_rest", "rstd"), statistics, strict=True):
        check_statistic(op, name, saved, x)
    check_wanted(op, "weight", weight, wanted=want_dweight)
    check_wanted(op, "bias", bias, wanted=want_dbias)

    def gradient_of(t: Tensor | None, *, wanted: bool) -> Tensor:
        return (x if t is None else t).new_empty(x.shape[-1:] if wanted else (0,))

    dx = x.new_empty(x.shape if want_dx else (0,))
    return dx, gradient_of(weight, wanted=want_dweight), gradient_of(bias, wanted=want_dbias)


_layer_norm = differentiable("layer_norm", _fake_forward, _setup_context, _backward)
_layer_norm_backward = gradient("layer_norm_backward", _fake_backward, of="layer_norm")
