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
def device() -> torch.device:
    """Python files run where torch runs."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
