"""Multi-scale deformable attention: bilinear samples of several maps, weighted and summed."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase, Peer, Tolerance

FLOAT_ROUNDING = 2.0**-24
LARGEST = 6.0  # of so many normal numbers, with some slack
FROM_AN_INTEGER = 1e-3  # pixels: there the gradient of a location jumps; how a peer rounds decides on which side it is


class Sizes(NamedTuple):
    """What a shape of the case says: (batch, queries, heads, channels, points, height, width, height, width, ...)."""

    batch: int
    queries: int
    heads: int
    channels: int
    points: int
    levels: tuple[tuple[int, int], ...]

    @property
    def pixels(self) -> int:
        return sum(height * width for height, width in self.levels)

    @property
    def samples(self) -> int:
        return len(self.levels) * self.points

    @property
    def locations(self) -> tuple[int, ...]:
        return (self.batch, self.queries, self.heads, len(self.levels), self.points, 2)


def sizes(shape: tuple[int, ...]) -> Sizes:
    """Read a shape."""
    batch, queries, heads, channels, points, *levels = shape
    return Sizes(batch, queries, heads, channels, points, tuple(zip(levels[::2], levels[1::2], strict=True)))


DETR = (100, 134, 50, 67, 25, 34, 13, 17)

SHAPES: dict[str, tuple[int, ...]] = {
    "no queries": (2, 0, 2, 4, 2, 4, 6, 2, 3),
    "no images": (0, 3, 2, 4, 2, 4, 6, 2, 3),
    "no points": (2, 3, 2, 4, 0, 4, 6, 2, 3),
    "no channels": (2, 3, 2, 0, 2, 4, 6, 2, 3),
    "one pixel": (1, 1, 1, 1, 1, 1, 1),
    "one pixel read often": (1, 300, 1, 3, 1, 1, 1),
    "lines of one pixel": (2, 5, 2, 16, 3, 1, 9, 9, 1),
    "the registry's": (2, 3, 2, 4, 2, 4, 6, 2, 3),
    "ragged channels, packed": (1, 40, 1, 17, 4, 3, 2),
    "in place": (2, 3, 2, 16, 4, 9, 7, 5, 4),
    "in place, wide": (2, 3, 3, 112, 1, 9, 7),
    "packed, wide": (1, 30, 2, 112, 4, 5, 4),
    "many samples": (1, 5, 2, 8, 90, 3, 5, 2, 2, 1, 1),
    "few samples, many queries": (1, 700, 3, 16, 2, 6, 6),
    "one head, queries in chunks": (1, 777, 1, 32, 4, 9, 8, 5, 4),
    "encoder, small": (1, 425, 8, 32, 4, 20, 16, 10, 8, 5, 5),
    "encoder": (1, 17821, 8, 32, 4, *DETR),
    "decoder": (1, 300, 8, 32, 4, *DETR),
    "rf-detr": (1, 300, 16, 16, 2, 36, 36),
    "rf-detr in training": (1, 3900, 16, 16, 2, 36, 36),
}


def make(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> dict[str, Any]:
    """Draw locations about the query's own pixel in an encoder, else anywhere, some outside.

    None of them is so near to the border between two cells that float32 may take it for the other side.
    """
    size = sizes(shape)
    value = torch.randn(size.batch, size.pixels, size.heads, size.channels, generator=generator)
    weights = torch.randn(*size.locations[:3], size.samples, generator=generator).softmax(-1)
    return {
        "value": value.to(dtype),
        "spatial_shapes": torch.tensor(size.levels, dtype=torch.int64).view(-1, 2),
        "sampling_locations": draw_locations(size, dtype, generator),
        "attention_weights": weights.view(size.locations[:-1]).to(dtype),
    }


def draw_locations(size: Sizes, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw locations as `make` says."""
    extent = torch.tensor([(width, height) for height, width in size.levels], dtype=torch.float64).view(-1, 1, 2)
    if size.queries == size.pixels:
        near = torch.cat([_centres(*level) for level in size.levels]).view(-1, 1, 1, 1, 2)
        locations = near + 2 * torch.randn(size.locations, generator=generator) / extent
    else:
        locations = 1.2 * torch.rand(size.locations, generator=generator) - 0.1
    locations = locations.to(dtype)
    pixel = locations.double() * extent - 0.5
    unclear = ((pixel - pixel.round()).abs() < FROM_AN_INTEGER).any(-1, keepdim=True)
    return torch.where(unclear, 2.0, locations)


def _centres(height: int, width: int) -> Tensor:
    y, x = torch.meshgrid((torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij")
    return torch.stack([x, y], -1).view(-1, 2)


def reference(value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor) -> Tensor:
    """Compute in the dtype of value, which parity makes float64: each pixel by its index, no grid_sample."""
    return gather_form(value, spatial_shapes.tolist(), sampling_locations, attention_weights)


def gather_form(
    value: Tensor, levels: Sequence[Sequence[int]], sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """Compute with one index for each corner."""
    batch, _, heads, channels = value.shape
    out = value.new_zeros(batch, sampling_locations.shape[1], heads, channels)
    image = torch.arange(batch).view(-1, 1, 1, 1)
    head = torch.arange(heads).view(1, 1, -1, 1)
    start = 0
    for level, (height, width) in enumerate(levels):
        x = sampling_locations[:, :, :, level, :, 0] * width - 0.5
        y = sampling_locations[:, :, :, level, :, 1] * height - 0.5
        weight = attention_weights[:, :, :, level]
        for dy in (0, 1):
            for dx in (0, 1):
                column, line = x.floor() + dx, y.floor() + dy
                inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
                part = (1 - (x - column).abs()) * (1 - (y - line).abs()) * weight
                index = torch.where(inside, line * width + column, 0).long() + start
                pixel = value[image, index, head]
                out = out + torch.where(inside.unsqueeze(-1), part.unsqueeze(-1) * pixel, 0).sum(3)
        start += height * width
    return out.flatten(2)


def tolerance(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tolerance:
    """Bound the rounding: once to the dtype, and in float32 before that.

    What is left of a coordinate within its cell is rounded once, however wide the map; sums of N terms are off by
    sqrt(N) roundings (random signs), products by a few. Weights sum to one; a pixel gets the weight of the queries
    that fall on its map, which is more than the mean for some.
    """
    size = sizes(shape)
    to_dtype = torch.finfo(dtype).eps / 2
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types underflow gradually
    extent = max((side for level in size.levels for side in level), default=1)
    terms = {
        "output": 4 * size.samples,
        "value": size.queries * size.points,
        "sampling_locations": size.channels,
        "attention_weights": size.channels,
    }[name]
    roundings = 8 + math.sqrt(terms)
    smallest_map = min((height * width for height, width in size.levels), default=1)
    scale = {
        "output": 2 * LARGEST,
        "value": LARGEST * (1 + 4 * size.queries / max(len(size.levels), 1) / smallest_map),
        "sampling_locations": 2 * extent * LARGEST * math.sqrt(size.channels),
        "attention_weights": 2 * LARGEST * math.sqrt(size.channels),
    }[name]
    return Tolerance(relative=to_dtype, absolute=smallest + scale * roundings * FLOAT_ROUNDING)


def bytes_moved(shape: tuple[int, ...], dtype: torch.dtype, backward: bool) -> int:  # noqa: FBT001
    """Count each input and output once; backward reads the inputs and the output's gradient, and writes theirs."""
    size = sizes(shape)
    value = size.batch * size.pixels * size.heads * size.channels
    samples = 3 * size.batch * size.queries * size.heads * size.samples
    out = size.batch * size.queries * size.heads * size.channels
    return dtype.itemsize * ((2 if backward else 1) * (value + samples) + out)


def flops(shape: tuple[int, ...], backward: bool) -> int:  # noqa: FBT001
    """Count a multiplication and an addition for each channel of each corner; backward, for two products."""
    size = sizes(shape)
    corners = 4 * size.batch * size.queries * size.heads * size.samples
    return (4 if backward else 2) * corners * size.channels


def grid_sample_form(
    value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """Compute as models without a kernel do. In float32 at least: grid_sample on a CPU is wrong in half types."""
    wide = torch.promote_types(value.dtype, torch.float32)
    batch, _, heads, channels = value.shape
    queries = sampling_locations.shape[1]
    levels = [(int(height), int(width)) for height, width in spatial_shapes.tolist()]
    maps = torch.split(value.to(wide), [height * width for height, width in levels], 1)
    grids = 2 * sampling_locations.to(wide) - 1
    samples = [
        torch.nn.functional.grid_sample(
            one.permute(0, 2, 3, 1).reshape(batch * heads, channels, height, width),
            grids[:, :, :, level].transpose(1, 2).flatten(0, 1),
            align_corners=False,
        )
        for level, (one, (height, width)) in enumerate(zip(maps, levels, strict=True))
    ]
    weights = attention_weights.to(wide).transpose(1, 2).reshape(batch * heads, 1, queries, -1)
    out = (torch.stack(samples, -2).flatten(-2) * weights).sum(-1)
    return out.view(batch, heads * channels, queries).transpose(1, 2).contiguous().to(value.dtype)


def _wide_gather_form(value: Tensor, levels: Sequence[Sequence[int]], locations: Tensor, weights: Tensor) -> Tensor:
    return gather_form(value.float(), levels, locations.float(), weights.float()).to(value.dtype)


@functools.cache
def _compiled() -> Any:  # noqa: ANN401 (torch.compile loses the type)
    return torch.compile(_wide_gather_form, dynamic=False)


def _compiled_gather(
    value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    levels = tuple(map(tuple, spatial_shapes.tolist()))
    out: Tensor = _compiled()(value, levels, sampling_locations, attention_weights)
    return out


CASE = OpCase(
    op="ms_deform_attn",
    shapes=SHAPES,
    bench_shapes=("encoder", "decoder", "rf-detr", "rf-detr in training"),
    dtypes=("float32", "bfloat16", "float16"),
    make=make,
    reference=reference,
    gradients=("value", "sampling_locations", "attention_weights"),
    tolerance=tolerance,
    bytes_moved=bytes_moved,
    flops=flops,
    peers=(Peer("grid_sample", grid_sample_form), Peer("compiled gather", _compiled_gather)),
)
