"""The configured index, where there is one: what an SDK of a real torch or toolkit costs, and that it compiles code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hubkernels.errors import EnvironmentLacksError
from hubkernels.model.sdk import SdkName
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk import make
from hubkernels.toolchain.sdk.index import Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.ranges import RangedFile
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Transfer, read_settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.compiler,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels that are asked for are for x86_64"),
]

STABLE = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
torch::stable::Tensor same(torch::stable::Tensor x) { return torch::stable::empty_like(x); }
STABLE_TORCH_LIBRARY(real, m) { m.def("same(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(real, CPU, m) { m.impl("same", TORCH_BOX(&same)); }
"""

KERNEL = """\
#include <cub/block/block_reduce.cuh>
__global__ void sum(float* x) {
  __shared__ typename cub::BlockReduce<float, 64>::TempStorage room;
  float all = cub::BlockReduce<float, 64>(room).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) x[0] = all;
}
void launch(float* x) { sum<<<1, 64>>>(x); }
"""


def name(kind: str, release: tuple[int, int]) -> SdkName:
    return SdkName(kind, Version(release), "x86_64-linux")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[RangedFile]:
    """Every file that parts are read of."""
    opened: list[RangedFile] = []

    class Noted(RangedFile):
        def __init__(self, url: str, transfer: Transfer) -> None:
            super().__init__(url, transfer)
            opened.append(self)

    monkeypatch.setattr(make, "RangedFile", Noted)
    return opened


def locked(kind: str, release: tuple[int, int], folder: Path) -> Path:
    store = SdkStore(folder / "sdk")
    maker = Maker(store, Index(os.environ, store.answers), lambda: Transfer(read_settings(os.environ)), print)
    try:
        sdk = maker.lock(name(kind, release))
    except EnvironmentLacksError as error:
        pytest.skip(f"no index that has it can be asked: {error.problems[0].what}")
    root = store.find(sdk.tree)
    assert root
    return root


def test_a_torch_sdk_is_a_few_requests_and_its_headers_compile(tmp_path: Path, files: list[RangedFile]) -> None:
    root = locked("torch", (2, 12), tmp_path)
    for file in files:  # none, where the wheel lies on this machine
        assert file.requests <= 10
        assert file.received < 20_000_000
    (tmp_path / "x.cpp").write_text(STABLE)
    words = ["-isystem", str(root / "torch/include"), "-isystem", str(root / "torch/include/torch/csrc/api/include")]
    subprocess.run(["g++", "-std=c++17", "-fsyntax-only", *words, str(tmp_path / "x.cpp")], check=True)


@pytest.mark.skipif(not os.environ.get("HUBKERNELS_TEST_ALL"), reason="100 MB: HUBKERNELS_TEST_ALL is not set")
def test_a_toolkit_compiles_a_kernel_for_one_architecture(tmp_path: Path) -> None:
    cuda = locked("cuda", (13, 0), tmp_path) / "nvidia/cu13"
    (tmp_path / "x.cu").write_text(KERNEL)
    command = [
        str(cuda / "bin/nvcc"),
        "-arch=sm_90",
        "-shared",
        "-Xcompiler=-fPIC",
        "x.cu",
        "-o",
        "x.so",
        "-cudart=shared",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    needed = subprocess.run(["readelf", "-d", "x.so"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "[libcudart.so.13]" in needed
