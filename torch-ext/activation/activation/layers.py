"""Layers for `kernels.kernelize`: their forward replaces that of a module which has the attributes.

The activations have the names that transformers asks for: "SiLU" is mapped to `Silu`, "GeLU" to `Gelu`, "GeluTanh",
"NewGELU", "FastGELU" and "QuickGELU" to their own; "rotary_pos_emb" to `apply_rotary_transformers`. Each takes any
shape and returns it, in the dtype of its input, which may not be float64. In half types they round once, where torch
code of several operations rounds after each.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .functional import gelu, gelu_and_mul, quick_gelu, silu, silu_and_mul
from .rotary import rope

__all__ = [
    "FastGELU",
    "GeGLUMLP",
    "Gelu",
    "GeluAndMul",
    "GeluTanh",
    "GeluTanhAndMul",
    "NewGELU",
    "QuickGELU",
    "Silu",
    "SiluAndMul",
    "SwiGLUMLP",
    "apply_rotary_transformers",
]


class Silu(nn.Module):
    """`silu`."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name that it has in transformers)
        """Compute ``x * sigmoid(x)``."""
        return silu(input)


class Gelu(nn.Module):
    """`gelu`."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Compute ``x * (1 + erf(x / √2)) / 2``."""
        return gelu(input)


class GeluTanh(nn.Module):
    """`gelu` with approximate = "tanh"."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Compute the tanh approximation of gelu."""
        return gelu(input, approximate="tanh")


class NewGELU(nn.Module):
    """`gelu` with approximate = "tanh", under the name of the model GPT-2."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Compute the tanh approximation of gelu."""
        return gelu(input, approximate="tanh")


class FastGELU(nn.Module):
    """`gelu` with approximate = "tanh": a formula of its own in transformers, with √(2 / π) to ten digits."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Compute the tanh approximation of gelu."""
        return gelu(input, approximate="tanh")


class QuickGELU(nn.Module):
    """`quick_gelu`."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Compute ``x * sigmoid(1.702 * x)``."""
        return quick_gelu(input)


class SiluAndMul(nn.Module):
    """`silu_and_mul` of the halves of the last dim."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``silu(gate) * up``."""
        return silu_and_mul(x)


class GeluAndMul(nn.Module):
    """`gelu_and_mul` of the halves of the last dim."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``gelu(gate) * up``."""
        return gelu_and_mul(x)


class GeluTanhAndMul(nn.Module):
    """`gelu_and_mul` of the halves of the last dim, with approximate = "tanh"."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``gelu(gate) * up``."""
        return gelu_and_mul(x, approximate="tanh")


class SwiGLUMLP(nn.Module):
    """The feed-forward block of Llama-like models on `silu_and_mul`.

    Raises ValueError when the `config` of the module, if it has one, names another activation than SiLU.
    """

    can_torch_compile = True
    has_backward = True
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``down(silu(gate(x)) * up(x))``."""
        _need_activation("SwiGLUMLP", self, ("silu", "swish"))
        y: Tensor = self.down_proj(silu_and_mul(self.gate_proj(x), self.up_proj(x)))
        return y


class GeGLUMLP(nn.Module):
    """The feed-forward block of Gemma-like models on `gelu_and_mul` with approximate = "tanh".

    Raises ValueError when the `config` of the module, if it has one, names another activation than that.
    """

    can_torch_compile = True
    has_backward = True
    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``down(gelu(gate(x)) * up(x))``."""
        _need_activation("GeGLUMLP", self, ("gelu_pytorch_tanh", "gelu_new", "gelu_fast"))
        y: Tensor = self.down_proj(gelu_and_mul(self.gate_proj(x), self.up_proj(x), approximate="tanh"))
        return y


class apply_rotary_transformers(nn.Module):  # noqa: N801 (the name that transformers asks for)
    """`rope` of halves, for the functions `apply_rotary_pos_emb` that transformers marks "rotary_pos_emb".

    Turns whole heads. cos and sin have a column for each element or, as in GPT-OSS, for each pair.
    Returns q and k in their own dtype.
    """

    can_torch_compile = True
    has_backward = True

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        """Turn q and k by the angles of their tokens."""
        return rope(q, k, cos, sin, rotary_dim=q.shape[-1], unsqueeze_dim=unsqueeze_dim)


def _need_activation(layer: str, module: Any, names: tuple[str, ...]) -> None:
    config = getattr(module, "config", None)
    for attribute in ("hidden_activation", "hidden_act"):
        name = getattr(config, attribute, None)
        if name is not None:
            if name not in names:
                raise ValueError(f"{layer}: {attribute} of the config is {name!r}, must be one of {names}")
            return
