"""Activations, alone and times another tensor, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._autograd import differentiable, gradient
from ._ops import ops

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def silu(x: Tensor) -> Tensor:
    """Compute ``x * sigmoid(x)`` of each element, as `torch.nn.functional.silu` does.

    x: any shape, float32, bfloat16 or float16, any strides.
    Returns the shape and dtype of x, contiguous. x gets a gradient, computed anew from x.

    What all functions here have in common:
    Formulas are computed in float32, also for half types, and rounded once: results in half types are at most 1 ulp
    from the float64 result rounded to that dtype. At infinity a function and its derivative have their limits, where
    torch gives NaN: 0 and 0 at -inf, inf and 1 at inf. Results do not depend on the number of threads or on the CPU
    tier. Under autocast the dtypes stay as they are. A second derivative and torch.func transforms raise
    NotImplementedError, forward-mode differentiation RuntimeError.
    The environment: HUBKERNELS_ISA forces a CPU tier (avx512-bf16, avx512, avx2, scalar);
    HUBKERNELS_HUGE_PAGES=0 stops outputs of 32 MiB and more from asking for huge pages.
    Raises RuntimeError on a bad shape, dtype or device, before any work.
    """
    y: Tensor = _silu(x)
    return y


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """Compute ``x * (1 + erf(x / √2)) / 2`` of each element, as `torch.nn.functional.gelu` does.

    approximate: "none", or "tanh" for ``x * (1 + tanh(√(2 / π) * (x + 0.044715 * x³))) / 2``.
    Negative tails keep their digits, where 1 + erf and 1 + tanh have lost them: at -5 the relative error is 1e-6.
    Else as `silu`. Raises ValueError on another approximate.
    """
    y: Tensor = _choose("gelu", approximate, _gelu, _gelu_tanh)(x)
    return y


def quick_gelu(x: Tensor) -> Tensor:
    """Compute ``x * sigmoid(1.702 * x)`` of each element. Else as `silu`."""
    y: Tensor = _quick_gelu(x)
    return y


def silu_and_mul(x: Tensor, up: Tensor | None = None) -> Tensor:
    """Compute ``silu(gate) * up``, of the two halves of x, or of x as the gate and up.

    x: (..., 2 D), gate before up along the last dim; or with up (..., D).
    up: the shape and dtype of x.
    Returns (..., D), dtype of x, contiguous. x and up get gradients.
    Any strides: halves of one tensor, `gate, up = x.chunk(2, -1)`, are read where they are.
    Else as `silu`.
    """
    y: Tensor = _silu_and_mul(x, up)
    return y


def gelu_and_mul(x: Tensor, up: Tensor | None = None, *, approximate: str = "none") -> Tensor:
    """Compute ``gelu(gate) * up``, as `silu_and_mul` does, with the formulas of `gelu`."""
    y: Tensor = _choose("gelu_and_mul", approximate, _gelu_and_mul, _gelu_tanh_and_mul)(x, up)
    return y


def cpu_isa() -> str:
    """Name the CPU tier of this process: avx512-bf16, avx512, avx2 or scalar.

    Raises RuntimeError when HUBKERNELS_ISA names a tier that this machine cannot run.
    """
    isa: str = ops.cpu_isa()
    return isa


def _choose(op: str, approximate: str, exact: Callable[..., Any], tanh: Callable[..., Any]) -> Callable[..., Any]:
    if approximate not in {"none", "tanh"}:
        raise ValueError(f'{op}: approximate is {approximate!r}, must be "none" or "tanh"')
    return tanh if approximate == "tanh" else exact


def _check_x(op: str, x: Tensor, *, packed: bool) -> None:
    """Refuse what the kernel refuses."""
    if x.dtype not in _DTYPES:
        raise RuntimeError(f"{op}: x is {x.dtype}, must be one of {_DTYPES}")
    if not packed:
        return
    if x.dim() == 0:
        raise RuntimeError(f"{op}: x has no dims, needs at least one")
    if x.shape[-1] % 2 != 0:
        raise RuntimeError(f"{op}: last dim of x has {x.shape[-1]} elements, must be even: gate and up")


def _check_like_x(op: str, name: str, t: Tensor, x: Tensor, *, packed: bool) -> None:
    """Refuse what the kernel refuses, and another device, which torch sends to the fake."""
    if t.device != x.device:
        raise RuntimeError(f"{op}: {name} is on {t.device}, must be on the device of x, {x.device}")
    if t.dtype != x.dtype:
        raise RuntimeError(f"{op}: {name} is {t.dtype}, must be the dtype of x, {x.dtype}")
    if t.shape != _result_shape(x, packed=packed):
        of_x = "a half of x" if packed else "x"
        raise RuntimeError(f"{op}: {name} has shape {tuple(t.shape)}, must be the shape of {of_x}, {tuple(x.shape)}")


def _result_shape(x: Tensor, *, packed: bool) -> torch.Size:
    return torch.Size((*x.shape[:-1], x.shape[-1] // 2)) if packed else x.shape


def _check(op: str, x: Tensor, up: Tensor | None, *, packed: bool) -> None:
    _check_x(op, x, packed=packed)
    if up is not None:
        _check_like_x(op, "up", up, x, packed=False)


def _plain(name: str) -> Callable[..., Any]:
    """Register an activation."""

    def fake(x: Tensor) -> Tensor:
        _check(name, x, None, packed=False)
        return x.new_empty(x.shape)

    def fake_backward(grad: Tensor, x: Tensor) -> Tensor:
        _check(f"{name}_backward", x, None, packed=False)
        _check_like_x(f"{name}_backward", "grad", grad, x, packed=False)
        return x.new_empty(x.shape)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 (torch's interface)
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, grad: Tensor | None) -> Any:
        return None if grad is None else call_backward(grad, *ctx.saved_tensors)

    call_backward = gradient(f"{name}_backward", fake_backward, of=name)
    return differentiable(name, fake, setup_context, backward)


def _gated(name: str) -> Callable[..., Any]:
    """Register an activation times another tensor."""

    def fake(x: Tensor, up: Tensor | None) -> Tensor:
        _check(name, x, up, packed=up is None)
        return x.new_empty(_result_shape(x, packed=up is None))

    def fake_backward(
        grad: Tensor,
        x: Tensor,
        up: Tensor | None,
        want_dx: bool,  # noqa: FBT001 (of the schema)
        want_dup: bool,  # noqa: FBT001
    ) -> tuple[Tensor, Tensor]:
        op = f"{name}_backward"
        _check(op, x, up, packed=up is None)
        _check_like_x(op, "grad", grad, x, packed=up is None)
        if want_dup and up is None:
            raise RuntimeError(f"{op}: want_dup is true without up")
        return x.new_empty(x.shape if want_dx else (0,)), x.new_empty(x.shape if want_dup else (0,))

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 (torch's interface)
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)

    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if grad is None:
            return None, None
        want_dx, want_dup = ctx.needs_input_grad
        dx, dup = call_backward(grad, *ctx.saved_tensors, want_dx, want_dup)
        return dx if want_dx else None, dup if want_dup else None

    call_backward = gradient(f"{name}_backward", fake_backward, of=name)
    return differentiable(name, fake, setup_context, backward)


_silu = _plain("silu")
_gelu = _plain("gelu")
_gelu_tanh = _plain("gelu_tanh")
_quick_gelu = _plain("quick_gelu")
_silu_and_mul = _gated("silu_and_mul")
_gelu_and_mul = _gated("gelu_and_mul")
_gelu_tanh_and_mul = _gated("gelu_tanh_and_mul")
