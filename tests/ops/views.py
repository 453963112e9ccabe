"""Views of one tensor as models make them, and a look at whether an op copies them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

# N and C numbers are reports from the field of what went wrong elsewhere.
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed (N27)": lambda x: x.reshape(64, 48).t()[:, :40],
    "transposed batch of one (N29)": lambda x: x.reshape(64, 1, 48).transpose(0, 1)[..., :40],
    "two leading dims swapped": lambda x: x.reshape(8, 8, 48).transpose(0, 1)[..., :40],
    "half of a chunk (C02)": lambda x: x.reshape(32, 96).chunk(2, -1)[1][..., :40],
    "every second row": lambda x: x.reshape(64, 48)[::2, :40],
    "every second element": lambda x: x.reshape(32, 96)[:, 1:81:2],
    "one row repeated": lambda x: x[:40].expand(7, 40),
    "one element repeated": lambda x: x[:5].unsqueeze(1).expand(5, 40),
    "unaligned start": lambda x: x[1 : 1 + 76 * 40].reshape(76, 40),
    "one long row": lambda x: x[3:43],
    "stride of a dim of size 1 (N08)": lambda x: x[:80].reshape(1, 1, 2, 40).as_strided((1, 1, 2, 40), (3, 5, 40, 1)),
    "last dim of size 1, strided (N08)": lambda x: x.reshape(64, 48)[:, 3:4],
}


def operators(call: Callable[..., object], *arguments: Tensor) -> set[str]:
    """The operators of torch that a call runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(*arguments)
    return {event.key for event in profile.key_averages()}
