"""A peer that no kernel beats: `kernel-builder bench run ms_deform_attn --peer-file bench/ms_deform_attn_ceiling.py`.

It packs the heads and reads the corners that the op reads, in the same order, and does nothing else: of its time, the
op's share of the possible is told. Its result is wrong by design; float32 with 16 or 32 channels only.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from hubkernels.check.opcase import Peer

SOURCE = Path(__file__).with_suffix(".cpp")
FLAGS = ("-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-Wno-psabi")
CHANNELS = (16, 32)


@functools.cache
def _library() -> ctypes.CDLL:
    """Compile the source; the library is loaded before its folder goes."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "ceiling.so"
        subprocess.run([os.environ.get("CXX", "g++"), *FLAGS, str(SOURCE), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.gather_ceiling.restype = None
    return loaded


@functools.cache
def _torch() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))


def corners_of(spatial_shapes: Tensor, locations: Tensor) -> Tensor:
    """Tell the pixel of every corner, int32 (batch, heads, queries, samples * 4); one behind the last for none."""
    corners = []
    start = 0
    pixels = int(spatial_shapes.prod(1).sum())
    for level, (height, width) in enumerate(spatial_shapes.tolist()):
        column = (locations[:, :, :, level, :, 0] * width - 0.5).floor()
        line = (locations[:, :, :, level, :, 1] * height - 0.5).floor()
        for dy in (0, 1):
            for dx in (0, 1):
                x, y = column + dx, line + dy
                inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
                corners.append(torch.where(inside, y * width + x + start, pixels))
        start += height * width
    by_level = torch.stack(corners, -1).unflatten(-1, (-1, 4))  # (batch, queries, heads, points, levels, 4)
    return by_level.permute(0, 2, 1, 4, 3, 5).flatten(3).to(torch.int32).contiguous()


_TABLES: dict[int, Tensor] = {}
"""By address of the locations: inputs rotate, so each table is made once."""


def gather_ceiling(
    value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """Pack and gather."""
    batch, pixels, heads, channels = value.shape
    queries = attention_weights.shape[1]
    if value.dtype != torch.float32 or channels not in CHANNELS:
        raise ValueError(f"the ceiling is for float32 of {CHANNELS} channels, value is {value.dtype} of {channels}")
    key = sampling_locations.data_ptr()
    if key not in _TABLES:
        _TABLES[key] = corners_of(spatial_shapes, sampling_locations.detach())
    table = _TABLES[key]
    out = value.new_empty(batch, queries, heads * channels)
    _library().gather_ceiling(
        _torch().torch_parallel_for,
        *(ctypes.c_void_p(t.data_ptr()) for t in (value, table, out)),
        *map(ctypes.c_int64, (batch, pixels, heads, channels, queries, table.shape[-1])),
    )
    return out


PEERS = (Peer("packing and gathers", gather_ceiling, differentiable=False),)
