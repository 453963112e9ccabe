"""The built kernel, loaded as its users load it. Run `kernel-builder build` first."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import kernels
import pytest
import torch


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    # In a workspace the artifacts are in the workspace's build folder.
    built = (folder / "build/my-kernel" for folder in Path(__file__).parents)
    here = Path(__file__).parents[1] / "build/my-kernel"
    module: ModuleType = kernels.get_local_kernel(next((folder for folder in built if folder.is_dir()), here))
    return module


@pytest.fixture(scope="session")
def device(kernel: ModuleType) -> torch.device:
    """Where the variant runs that the client chose for this torch: those for CPUs list their instruction sets."""
    if hasattr(kernel._ops.ops, "usable_isas"):
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator(check_available=True)
    return found or pytest.skip("the client chose a variant for a device that this machine lacks")
