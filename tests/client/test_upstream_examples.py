"""Upstream's own example projects, built unchanged and run by their own tests in the stock client."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli

CHECKOUT = os.environ.get("HUBKERNELS_UPSTREAM", "")
EXAMPLES = Path(CHECKOUT) / "examples/kernels"
NAMES = ("relu-torch-stable-abi", "relu", "cpp20-symbols", "symbol-conflicts", "symbol-conflicts2", "extra-data")
WITH_TESTS = ("relu-torch-stable-abi", "relu", "cpp20-symbols", "symbol-conflicts2", "extra-data")

pytestmark = pytest.mark.skipif(
    not CHECKOUT, reason="HUBKERNELS_UPSTREAM names no checkout of huggingface/kernels: its examples are not built"
)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("upstream")
    for name in NAMES:
        shutil.copytree(EXAMPLES / name, folder / name)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_an_example_builds_unchanged(projects: Path, cli: Cli, name: str) -> None:
    ran = cli("build", "--project", projects / name)
    assert ran.code == 0, ran.err
    assert cli("check", "builds", "--project", projects / name).code == 0
    assert cli("check", "load", "--project", projects / name).code == 0


@pytest.mark.parametrize("name", WITH_TESTS)
def test_an_example_passes_its_own_tests_in_the_stock_client(projects: Path, name: str) -> None:
    local = ":".join(f"kernels-test/{other}={projects / other / 'build' / other}" for other in NAMES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(projects / name), "tests"],
        cwd=projects / name,
        env={**os.environ, "LOCAL_KERNELS": local, "HF_HUB_OFFLINE": "1", "DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
