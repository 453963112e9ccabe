"""Layers for `kernels.kernelize`: their forward replaces that of a module which has the attributes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .functional import rms_norm
from .layer_norm import layer_norm

__all__ = ["GemmaRMSNorm", "LayerNorm", "LlamaRMSNorm", "RMSNorm"]


class RMSNorm(nn.Module):
    """`torch.nn.RMSNorm` on `rms_norm`: normalizes the trailing dims `normalized_shape`.

    Returns the shape and dtype of x, which may not be float64. An eps of None is torch's: that of float32, also for
    half types.
    Raises ValueError when x does not end in `normalized_shape`.
    """

    can_torch_compile = True
    has_backward = True
    weight: Tensor | None
    eps: float | None
    normalized_shape: int | tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x over its trailing dims."""
        shape = _as_shape(self.normalized_shape)
        if x.shape[-len(shape) :] != shape:
            raise ValueError(f"RMSNorm: x has shape {tuple(x.shape)}, must end in {shape}")
        eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps
        weight = self.weight
        if weight is not None and weight.dtype != x.dtype:
            weight = weight.float()
        if len(shape) == 1:
            return rms_norm(x, weight, eps)
        rows = x.flatten(-len(shape))
        return rms_norm(rows, weight if weight is None else weight.flatten(), eps).view(x.shape)


class LlamaRMSNorm(nn.Module):
    """The RMS norm of Llama-like models on `rms_norm`: normalizes the last dim.

    Returns the shape of hidden_states, in the common dtype of hidden_states and weight, as Llama's does; that may
    not be float64.
    Rounds once, where Llama's rounds before and after the weight: up to 1 ulp apart in half types.
    """

    can_torch_compile = True
    has_backward = True
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalize hidden_states over its last dim."""
        weight = self.weight
        if weight.dtype != hidden_states.dtype:
            dtype = torch.promote_types(weight.dtype, hidden_states.dtype)
            weight, hidden_states = weight.to(dtype), hidden_states.to(dtype)
        return rms_norm(hidden_states, weight, self.variance_epsilon)


class GemmaRMSNorm(nn.Module):
    """The RMS norm of Gemma-like models on `rms_norm`: normalizes the last dim and scales it by 1 + weight.

    Returns the shape and dtype of x, which may not be float64. 1 + weight is float32; rounds once, as Gemma's does.
    """

    can_torch_compile = True
    has_backward = True
    weight: Tensor
    eps: float

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x over its last dim."""
        weight = self.weight
        if weight.dtype != x.dtype:
            weight = weight.float()
        return rms_norm(x, weight, self.eps, weight_offset=1.0)


class LayerNorm(nn.Module):
    """`torch.nn.LayerNorm` on `layer_norm`: normalizes the trailing dims `normalized_shape`.

    Returns the shape and dtype of x, which may not be float64.
    Raises ValueError when x does not end in `normalized_shape`.
    """

    can_torch_compile = True
    has_backward = True
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    normalized_shape: int | tuple[int, ...]

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x over its trailing dims."""
        shape = _as_shape(self.normalized_shape)
        if x.shape[-len(shape) :] != shape:
            raise ValueError(f"LayerNorm: x has shape {tuple(x.shape)}, must end in {shape}")
        weight, bias = _flat(self.weight, x.dtype), _flat(self.bias, x.dtype)
        if len(shape) == 1:
            return layer_norm(x, weight, bias, self.eps)
        return layer_norm(x.flatten(-len(shape)), weight, bias, self.eps).view(x.shape)


def _flat(parameter: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """One dim, in the dtype of x or in float32, as the ops want a weight."""
    if parameter is None:
        return None
    return (parameter if parameter.dtype == dtype else parameter.float()).flatten()


def _as_shape(normalized_shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
