"""Activations, gated or not, and rotary embedding, with their gradients."""

from . import layers
from .functional import cpu_isa, gelu, gelu_and_mul, quick_gelu, silu, silu_and_mul
from .rotary import rope

__all__ = ["cpu_isa", "gelu", "gelu_and_mul", "layers", "quick_gelu", "rope", "silu", "silu_and_mul"]
