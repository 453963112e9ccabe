"""The op `my_kernel` and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._ops import add_op_namespace_prefix

_TRITON_DEVICES = frozenset({"cuda", "xpu"})  # torch calls ROCm cuda


@torch.library.custom_op(add_op_namespace_prefix("my_kernel"), mutates_args=())
def my_kernel(x: Tensor) -> Tensor:
    """Square the positive part: ``y = max(x, 0)²``.

    x: any shape and strides, float32. Returns the shape of x, float32, contiguous. NaN stays NaN.
    By Triton where it has the device, by torch elsewhere. Raises TypeError on another dtype.
    """
    if x.dtype != torch.float32:
        raise TypeError(f"my_kernel: x is {x.dtype}, must be torch.float32")
    if x.device.type not in _TRITON_DEVICES:
        return torch.relu(x).square().contiguous()
    from .triton_kernel import forward  # noqa: PLC0415 - a torch for CPUs comes without triton

    return forward(x.contiguous())


@my_kernel.register_fake
def _fake(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return 2 * torch.relu(x) * grad


my_kernel.register_autograd(_backward, setup_context=_setup_context)
