"""The kernels under test, built by the real builder and loaded by the stock client."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kernels
import pytest
import torch

from hubkernels.cli import main
from tests.conftest import CPU_VARIANT, KEPT_CACHE, REPOSITORY, environment
from tests.ops.tiers import OPS, need_tier, saved_results

COMPILERS = ["clang++", *(["g++-11"] if os.environ.get("HUBKERNELS_TEST_ALL") else [])]


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """The folder of the artifacts of all packages, up to date; the sanitizers' tests name theirs."""
    if made := os.environ.get("HUBKERNELS_TEST_ARTIFACTS"):
        return Path(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUBKERNELS_CACHE", KEPT_CACHE)
        command = ["build", "--project", str(REPOSITORY), "--variant", CPU_VARIANT, "--toolchain", "locked"]
        assert main(command) == 0
    return REPOSITORY / "build"


@pytest.fixture(scope="session", params=COMPILERS)
def other_artifacts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, built by a compiler that is not the default one."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    root = tmp_path_factory.mktemp(request.param)
    for folder in ("cpu", "torch-ext", "tests/cases"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "build.toml", root)
    command = [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(root), "--variant", CPU_VARIANT]
    changed = environment(CXX=request.param, HUBKERNELS_CACHE=KEPT_CACHE)
    done = subprocess.run(command, env=changed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return root / "build"


@pytest.fixture(scope="session")
def shared_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what the workers of a run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if hasattr(request.config, "workerinput") else folder


InTier = Callable[[str, str], dict[str, Any]]


@pytest.fixture(scope="session")
def results_in_tier(artifacts: Path, shared_folder: Path) -> InTier:
    """(op, tier) -> what the script of the op saves there, which fails when another tier ran."""

    @functools.cache
    def find(op: str, isa: str) -> dict[str, Any]:
        need_tier(isa)
        return saved_results(op, isa, artifacts / OPS[op], shared_folder / f"{op}-{isa}.pt")

    return find


@pytest.fixture
def threads() -> Iterator[None]:
    """Leave torch with as many threads as it had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def rms_norm_repo(artifacts: Path) -> Path:
    """What a user of the client names."""
    return artifacts / "rms-norm"


@pytest.fixture(scope="session")
def rms_norm(rms_norm_repo: Path) -> ModuleType:
    """Load the package as a user of the stock client does."""
    module: ModuleType = kernels.get_local_kernel(rms_norm_repo)
    return module


@pytest.fixture(scope="session")
def activation_repo(artifacts: Path) -> Path:
    """What a user of the client names."""
    return artifacts / "activation"


@pytest.fixture(scope="session")
def activation(activation_repo: Path) -> ModuleType:
    """Load the package as a user of the stock client does."""
    module: ModuleType = kernels.get_local_kernel(activation_repo)
    return module


@pytest.fixture(scope="session")
def ms_deform_attn_repo(artifacts: Path) -> Path:
    return artifacts / "ms-deform-attn"


@pytest.fixture(scope="session")
def ms_deform_attn(ms_deform_attn_repo: Path) -> ModuleType:
    module: ModuleType = kernels.get_local_kernel(ms_deform_attn_repo)
    return module
