"""The kernels under test, built by the real builder and loaded by the stock client."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import kernels
import pytest

from hubkernels.cli import main
from tests.conftest import REPOSITORY


@pytest.fixture(scope="session")
def rms_norm_repo() -> Path:
    """The folder of the package's artifacts, up to date; the sanitizers' tests name theirs."""
    if made := os.environ.get("HUBKERNELS_TEST_ARTIFACTS"):
        return Path(made) / "rms-norm"
    assert main(["build", "rms-norm", "--project", str(REPOSITORY)]) == 0
    return REPOSITORY / "build/rms-norm"


@pytest.fixture(scope="session")
def rms_norm(rms_norm_repo: Path) -> ModuleType:
    """Load the package as a user of the stock client does."""
    module: ModuleType = kernels.get_local_kernel(rms_norm_repo)
    return module
