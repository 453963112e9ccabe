"""Every instruction set that this machine runs, not only the best."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


@pytest.mark.parametrize("isa", ["avx512", "scalar"])
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 33, 1_000_003])
def test_every_isa_gives_the_rounded_float64_result(
    kernel: ModuleType, device: torch.device, isa: str, length: int
) -> None:
    if device.type != "cpu":
        pytest.skip("the client chose a variant for another device")
    ops = kernel._ops.ops
    if isa not in ops.usable_isas().split(","):
        pytest.skip(f"this machine does not run {isa}")
    x = torch.randn(length, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ops.my_kernel_isa(x, isa), torch.relu(x.double()).square().float())
