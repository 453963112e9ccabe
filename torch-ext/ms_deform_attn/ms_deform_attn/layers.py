"""Layers for `kernels.kernelize`: their forward replaces that of a module which has the attributes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .functional import ms_deform_attn_forward

__all__ = ["MultiScaleDeformableAttention"]


class MultiScaleDeformableAttention(nn.Module):
    """Deformable attention as transformers' models call it, on `ms_deform_attn`.

    Returns (batch, queries, heads * channels) in the dtype of value. Locations and weights that are neither of that
    dtype nor float32 are taken as float32.
    """

    can_torch_compile = True
    has_backward = True

    def forward(  # noqa: PLR0913, PLR0917 - the signature that is replaced
        self,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_spatial_shapes_list: list[tuple[int, int]],  # noqa: ARG002 - says what value_spatial_shapes says
        level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        """Sum the samples of value."""
        locations, weights = (_beside(value, t) for t in (sampling_locations, attention_weights))
        return ms_deform_attn_forward(value, value_spatial_shapes, level_start_index, locations, weights, im2col_step)


def _beside(value: Tensor, t: Tensor) -> Tensor:
    return t if t.dtype in {value.dtype, torch.float32} else t.float()
