"""Layers for `kernels.kernelize`: their forward replaces that of a module."""

from __future__ import annotations

from torch import Tensor, nn

from .functional import my_kernel

__all__ = ["MyKernel"]


class MyKernel(nn.Module):
    """The squared ReLU, ``max(x, 0)²``."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: Tensor) -> Tensor:
        """Apply `my_kernel`."""
        return my_kernel(x)
