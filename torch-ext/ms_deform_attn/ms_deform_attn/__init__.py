"""Multi-scale deformable attention with a deterministic backward."""

from . import layers
from .functional import (
    cpu_isa,
    ms_deform_attn,
    ms_deform_attn_backward,
    ms_deform_attn_forward,
    ms_deform_attn_packed,
)

__all__ = [
    "cpu_isa",
    "layers",
    "ms_deform_attn",
    "ms_deform_attn_backward",
    "ms_deform_attn_forward",
    "ms_deform_attn_packed",
]
