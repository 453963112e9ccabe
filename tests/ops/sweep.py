"""What the scripts of tiers share: row lengths, dtypes, and how large tensors are drawn and kept."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

SIZES = (*range(1, 258), 4095, 4096, 4097)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PERIOD = 1_000_003  # a prime: rows differ


def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw normal numbers. A large tensor repeats its first million: drawing all took longer than the kernels."""
    count = math.prod(shape)
    if count <= PERIOD:
        return torch.randn(shape, generator=generator)
    few = torch.randn(PERIOD, generator=generator)
    return few.repeat(-(-count // PERIOD))[:count].view(shape)


def digest(result: Tensor) -> str:
    """Stand for the bits of a result that is too large to keep."""
    return hashlib.sha256(result.contiguous().view(torch.uint8).numpy().data).hexdigest()
