"""A link against torch's stubs names what a link against torch names: libraries, and symbols that torch has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hubkernels.abi.installed import Installed
from hubkernels.abi.library import Library, read_library
from hubkernels.host.machine import TorchSdk, find_torch, this_machine
from hubkernels.toolchain.cpu import stable_abi_macro
from hubkernels.toolchain.sdk.draft import Draft
from hubkernels.toolchain.sdk.recipes import RECIPES, TORCH_LIBRARIES

STABLE = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
torch::stable::Tensor twice(torch::stable::Tensor x) {
  STD_TORCH_CHECK(x.dim() > 0, "no dimension of ", x.numel());
  return torch::stable::empty_like(x);
}
STABLE_TORCH_LIBRARY(stubs, m) { m.def("twice(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(stubs, CPU, m) { m.impl("twice", TORCH_BOX(&twice)); }
"""

FULL = """\
#include <ATen/ATen.h>
#include <torch/library.h>
at::Tensor twice(const at::Tensor& x) { TORCH_CHECK(x.dim() > 0, "no"); return at::cat({x + x, at::zeros({3})}); }
TORCH_LIBRARY(stubs, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
"""

FOR_CUDA = """\
#include <ATen/ATen.h>
namespace c10::cuda { c10::DeviceIndex current_device(); }
namespace at::cuda { void* getCurrentDeviceProperties(); }
extern "C" int aoti_torch_get_current_cuda_stream(int device, void** stream);
at::Tensor properties(void** stream) {
  TORCH_CHECK(aoti_torch_get_current_cuda_stream(c10::cuda::current_device(), stream) == 0, "no stream");
  return at::from_blob(at::cuda::getCurrentDeviceProperties(), {1});
}
"""
"""Its names of CUDA are declared by hand: headers that declare them ask for a toolkit, and a torch for CUDA."""

STAND_INS = {
    "libc10_cuda": "namespace c10::cuda { signed char current_device() { return 0; } }",
    "libtorch_cuda": 'extern "C" int aoti_torch_get_current_cuda_stream(int, void**) { return 0; }\n'
    "namespace at::cuda { void* getCurrentDeviceProperties() { return nullptr; } }",
}

LINKED = ("libtorch", "libtorch_cpu", "libc10")
SYSTEM = ("-lstdc++", "-lm", "-lgcc_s", "-lc")  # before torch, as a build has them

found = find_torch()
pytestmark = pytest.mark.skipif(
    found is None or this_machine().platform.os != "linux", reason="no torch for Linux is installed to compare with"
)


@pytest.fixture(scope="module")
def torch() -> TorchSdk:
    assert found
    return found


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    names = [f"torch/lib/{name}.so" for name in TORCH_LIBRARIES]
    RECIPES["torch"].finish(Draft(folder), names, this_machine().platform.cpu)
    return folder / "torch/lib"


def compile_with(torch: TorchSdk, folder: Path, text: str) -> Path:
    (folder / "x.cpp").write_text(text)
    target = f"-DTORCH_TARGET_VERSION={stable_abi_macro(torch.version)}"
    headers = [word for place in torch.include for word in ("-isystem", str(place))]
    language = ["-std=c++20", target] if "stable" in text else ["-std=c++20"]
    subprocess.run(["g++", *language, "-O1", "-fPIC", *headers, "-c", "x.cpp", "-o", "x.o"], cwd=folder, check=True)
    return folder / "x.o"


def link(item: Path, libraries: Path, linker: str, names: tuple[str, ...]) -> Library:
    words = [f"-l{name.removeprefix('lib')}" for name in names]
    flags = ("-shared", "-nodefaultlibs", f"-fuse-ld={linker}", "-Wl,--no-as-needed,-z,now,-s")
    subprocess.run(["g++", *flags, item, *SYSTEM, f"-L{libraries}", *words, "-o", item.with_suffix(".so")], check=True)
    made = read_library(item.with_suffix(".so"))
    assert isinstance(made, Library)
    return made


def hold(libraries: Path, stubs: Path, item: Path, linker: str, names: tuple[str, ...] = LINKED) -> set[str]:
    """The names of torch that are the same in both links."""
    real, ours = link(item, libraries, linker, names), link(item, stubs, linker, names)
    assert ours.needed == real.needed
    assert {f"{name}.so" for name in names} <= set(ours.needed)
    assert set(ours.undefined) == set(real.undefined)
    installed = Installed(libraries)
    of_torch = {symbol.name for symbol in ours.undefined if not symbol.version and not symbol.weak}
    assert {name for name in of_torch if not installed.provider(name, [f"{each}.so" for each in names])} == set()
    return of_torch


LINKERS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(f"ld.{name}"), reason=f"no ld.{name} is installed"))
    for name in ("bfd", "gold", "lld", "mold")
]


@pytest.mark.parametrize("linker", LINKERS)
def test_a_link_of_the_stable_abi_is_the_same(torch: TorchSdk, stubs: Path, tmp_path: Path, linker: str) -> None:
    assert len(hold(torch.lib, stubs, compile_with(torch, tmp_path, STABLE), linker)) > 5


@pytest.mark.slow
def test_a_link_of_the_full_abi_is_the_same(torch: TorchSdk, stubs: Path, tmp_path: Path) -> None:
    assert len(hold(torch.lib, stubs, compile_with(torch, tmp_path, FULL), "bfd")) > 5


def cuda_libraries(torch: TorchSdk, folder: Path) -> Path:
    """torch's libraries, with stand-ins for those of CUDA where it has none."""
    if (torch.lib / "libtorch_cuda.so").is_file():
        return torch.lib
    folder.mkdir()
    for library in torch.lib.glob("*.so*"):
        (folder / library.name).symlink_to(library)
    for name, text in STAND_INS.items():
        (folder / "stand_in.cpp").write_text(text)
        made = ("-o", f"{name}.so", f"-Wl,-soname,{name}.so")
        subprocess.run(["g++", "-shared", "-fPIC", *made, "stand_in.cpp"], cwd=folder, check=True)
    return folder


@pytest.mark.slow
def test_a_link_with_the_libraries_for_cuda_is_the_same(torch: TorchSdk, stubs: Path, tmp_path: Path) -> None:
    """With a torch for CUDA these are its own, else stand-ins.

    Those show what a link makes of the stubs, but not that torch's libraries for CUDA go by these names and have these
    symbols.
    """
    item = compile_with(torch, tmp_path, FOR_CUDA)
    names = hold(cuda_libraries(torch, tmp_path / "cuda"), stubs, item, "bfd", TORCH_LIBRARIES)
    assert names >= {
        "aoti_torch_get_current_cuda_stream",
        "_ZN3c104cuda14current_deviceEv",
        "_ZN2at4cuda26getCurrentDevicePropertiesEv",
    }
