"""The configured index, where there is one: what an SDK of a real torch or toolkit costs, and that it compiles code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hubkernels.abi.fatbin import read_archs
from hubkernels.abi.library import Library, read_library
from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.machine import find_torch
from hubkernels.model.sdk import SdkName
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk import make
from hubkernels.toolchain.sdk.index import Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.ranges import RangedFile
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Transfer, read_settings
from tests.conftest import KEPT_CACHE, Cli, SmallProject
from tests.sdk.test_builds import BARE
from tests.toolchain.test_cuda import CudaProject

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


LAUNCH_CPP = """\
#include <torch/csrc/stable/library.h>

#include "../csrc/add.h"
#include "registration.h"

int64_t launch() { return add(nullptr, 0, nullptr); }
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("launch() -> int"); }
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("launch", TORCH_BOX(&launch));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def for_release(project: CudaProject, release: str) -> None:
    """Let it have variants for one release of CUDA alone, and ask torch for its headers."""
    (project.root / "torch-ext/binding.cpp").write_text(LAUNCH_CPP)
    bounds = f'[general.cuda]\nminver = "{release}"\nmaxver = "{release}"\n\n[torch]'
    text = (project.root / "build.toml").read_text().replace("[torch]", bounds, 1)
    (project.root / "build.toml").write_text(text)


@pytest.fixture
def empty_store(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Builds with what toolchain.lock pins, and a cache of its own."""
    monkeypatch.delenv("HUBKERNELS_TOOLCHAIN")
    monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path_factory.mktemp("a cache of mine")))


def built(project: Path, cli: Cli) -> None:
    ran = cli("build", project)
    if "toolchain.lock is not written" in ran.err:
        pytest.skip(f"no index can be asked: {ran.err}")
    if "left out of toolchain.lock: " in ran.err:
        pytest.skip(f"the index lacks some of it: {ran.err}")
    assert ran.code == 0, ran.err


RELEASES = ["13.0", *(["13.2"] if os.environ.get("HUBKERNELS_TEST_ALL") else [])]


@pytest.mark.usefixtures("empty_store")
@pytest.mark.parametrize("release", RELEASES)
def test_a_package_for_cuda_is_built_without_nvcc_and_torch(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)
    project = CudaProject(tmp_path).write("9.0")
    for_release(project, release)
    built(tmp_path, cli)
    tag = f"torch-stable-abi210-cu{release.replace('.', '')}-x86_64-linux"
    (file,) = (tmp_path / "build/cu-add" / tag).glob("*.abi3.so")
    assert read_archs(file) == {"9.0"}
    assert json.loads((file.parent / "metadata.json").read_text())["backend"]["archs"] == ["9.0"]
    note: dict[str, Any] = json.loads((file.parent.parent / f"{tag}.build.json").read_text())["toolchain"]
    pinned = {f"sdk {sdk['kind']} {sdk['version']}": sdk["tree"] for sdk in locked_in(tmp_path)}
    assert {name: tree for name, tree in note.items() if name.startswith("sdk ")} == pinned
    assert pinned.keys() == {f"sdk cuda {release}", "sdk torch 2.10"}
    assert note["cuda"] == f"nvcc {release}"
    if os.environ.get("HUBKERNELS_TEST_ALL"):
        ran = cli("check", "reproducible", tmp_path)
        assert ran.code == 0, ran.err


FULL_TOML = """\
[general]
name = "cu-full"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[general.cuda]
minver = "13.0"
maxver = "13.0"

[torch]
src = ["torch-ext/binding.cpp"]
minver = "2.11"
maxver = "2.11"

[kernel.cuda]
backend = "cuda"
depends = ["torch"]
cuda-capabilities = ["9.0"]
src = ["csrc/add.cu"]
"""

FULL_CU = """\
#include <ATen/cuda/CUDAContext.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

__global__ void add_kernel(float* y, int64_t n) {
  int64_t i = blockIdx.x * 256l + threadIdx.x;
  if (i < n) y[i] += 1;
}

void add(at::Tensor y) {
  TORCH_CHECK(at::cuda::getCurrentDeviceProperties()->major > 0, "add: no device");
  c10::cuda::CUDAGuard guard(y.device());
  auto n = y.numel();
  add_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

FULL_BINDING = """\
#include <torch/library.h>

#include "registration.h"

void add(at::Tensor y);
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("add(Tensor(a!) y) -> ()"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, m) { m.impl("add", &add); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


@pytest.mark.skipif(not os.environ.get("HUBKERNELS_TEST_ALL"), reason="minutes: HUBKERNELS_TEST_ALL is not set")
def test_a_package_with_torchs_own_headers_for_cuda_is_built_by_its_lock(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full ABI: headers of just that torch, and those of the math libraries, which torch's include."""
    monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", "locked")
    monkeypatch.setenv("HUBKERNELS_CACHE", KEPT_CACHE)
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)
    texts = {"build.toml": FULL_TOML, "csrc/add.cu": FULL_CU, "torch-ext/binding.cpp": FULL_BINDING}
    for path, text in {**texts, "torch-ext/cu_full/__init__.py": ""}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    built(tmp_path, cli)
    tag = "torch211-cxx11-cu130-x86_64-linux"
    pinned = {f"{sdk['kind']} {sdk['version']}": sdk["tree"] for sdk in locked_in(tmp_path)}
    assert pinned.keys() == {"cuda 13.0", "cuda-math 13.0", "torch 2.11"}
    (file,) = (tmp_path / "build/cu-full" / tag).glob("*.so")
    note = json.loads((file.parent.parent / f"{tag}.build.json").read_text())["toolchain"]
    assert {name: note.get(f"sdk {name}") for name in pinned} == pinned
    assert read_archs(file) == {"9.0"}
    library = read_library(file)
    assert isinstance(library, Library)
    assert {"libc10_cuda.so", "libtorch_cuda.so", "libcudart.so.13"} <= set(library.needed)
    assert {"_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZN2at4cuda26getCurrentDevicePropertiesEv"} <= {
        symbol.name for symbol in library.undefined
    }


def locked_in(project: Path) -> list[dict[str, Any]]:
    return list(json.loads((project / "toolchain.lock").read_text())["sdks"])


@pytest.mark.skipif(find_torch() is None, reason="no torch is installed to compare with")
@pytest.mark.usefixtures("empty_store")
def test_what_is_built_with_the_pinned_torch_is_what_the_installed_one_of_its_release_gives(
    small: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very bytes where all headers that are read are the same, else the same libraries and names."""
    installed = find_torch()
    assert installed
    text = (small.root / "build.toml").read_text().replace('"2.10"', f'"{installed.version.minor}"')
    (small.root / "build.toml").write_text(text)
    made: list[tuple[str, bytes, Library]] = []
    for toolchain in ("locked", "system"):
        monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", toolchain)
        built(small.root, cli)
        file = small.artifact / f"{small.op_id}.abi3.so"
        library = read_library(file)
        assert isinstance(library, Library)
        made.append((small.op_id, file.read_bytes(), library))
    (ours, our_bytes, pinned), (theirs, their_bytes, real) = made
    assert pinned.needed == real.needed
    assert {(symbol.name, symbol.version) for symbol in pinned.undefined} == {
        (symbol.name, symbol.version) for symbol in real.undefined
    }
    assert ours != theirs or our_bytes == their_bytes
