"""The device sources of `kernel-builder init`, as far as a machine without a GPU can compile them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hubkernels.cli import main
from hubkernels.host.machine import python_include, require_torch, this_machine
from hubkernels.model.version import Version
from hubkernels.toolchain.cpu import stable_abi_macro

HIP = """\
#pragma once
#define __global__ __attribute__((global))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct Stream* hipStream_t;
typedef int hipError_t;
constexpr hipError_t hipSuccess = 0;
struct Index {
  __attribute__((device)) operator unsigned() const { return 0; }
};
struct Place {
  Index x;
};
extern const __attribute__((device)) Place threadIdx, blockIdx, gridDim;
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, hipStream_t = nullptr);
extern "C" hipError_t hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, hipStream_t);
extern "C" hipError_t hipGetLastError();
extern "C" const char* hipGetErrorString(hipError_t);
"""

SYCL = """\
#pragma once
#include <cstddef>
namespace sycl {
template <int> struct range { explicit range(size_t); };
template <int> struct id { operator size_t() const; };
struct queue {
  template <typename F> void parallel_for(range<1>, F f) { f(id<1>{}); }
};
}  // namespace sycl
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    assert main(["init", str(folder), "--name", "org/relu", "--backends", "all"]) == 0
    return folder


def compiles(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_cuda_source_compiles(project: Path, tmp_path: Path, arch: str) -> None:
    flags = ("-std=c++20", f"-arch={arch}", "-DCUDA_KERNEL", "-Werror=all-warnings", "-Xcompiler=-Wall,-Wextra,-Werror")
    compiles("nvcc", *flags, "-c", "relu_cuda/relu_cuda.cu", "-o", tmp_path / "relu.o", cwd=project)


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang is not installed")
@pytest.mark.parametrize("side", ["--cuda-device-only", "--cuda-host-only"])
def test_the_same_source_is_hip(project: Path, tmp_path: Path, side: str) -> None:
    """By clang's HIP front end for a real gfx target; declarations of the runtime are stand-ins."""
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip/hip_runtime.h").write_text(HIP)
    target = ("-x", "hip", "--offload-arch=gfx942" if clang_knows("gfx942") else "--offload-arch=gfx90a", side)
    flags = ("-nogpuinc", "-nogpulib", "-std=c++20", "-DROCM_KERNEL", "-Wall", "-Werror", f"-I{tmp_path}")
    compiles("clang++", *target, *flags, "-fsyntax-only", "relu_cuda/relu_cuda.cu", cwd=project)


def clang_knows(arch: str) -> bool:
    done = subprocess.run(
        ["clang++", "-x", "hip", f"--offload-arch={arch}", "-nogpuinc", "-nogpulib", "-fsyntax-only", "/dev/null"],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def test_the_sycl_source_is_valid_with_stand_ins_for_the_runtime(project: Path, tmp_path: Path) -> None:
    (tmp_path / "sycl").mkdir()
    (tmp_path / "sycl/sycl.hpp").write_text(SYCL)
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}")
    compiles("g++", *flags, "-fsyntax-only", "relu_xpu/relu_xpu.cpp", cwd=project)


@pytest.mark.parametrize(
    ("define", "binding"),
    [
        ("CUDA_KERNEL", "relu_cuda/relu_cuda_torch.cpp"),
        ("ROCM_KERNEL", "relu_cuda/relu_cuda_torch.cpp"),
        ("XPU_KERNEL", "relu_xpu/relu_xpu_torch.cpp"),
        ("CUDA_KERNEL", "torch-ext/torch_binding.cpp"),
    ],
)
def test_bindings_compile_against_the_stable_abi(project: Path, define: str, binding: str) -> None:
    pytest.importorskip("torch")
    own = Path(__file__).parents[2] / "src/hubkernels/toolchain/include/torch-ext"
    torch = require_torch(this_machine())
    system = [word for folder in (*torch.include, python_include()) for word in ("-isystem", folder)]
    macros = (
        f"-D{define}",
        "-DTORCH_EXTENSION_NAME=_relu",
        f"-DTORCH_TARGET_VERSION={stable_abi_macro(Version((2, 10)))}",
    )
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", *macros, "-DPy_LIMITED_API=0x03090000", f"-I{own}")
    compiles("g++", *flags, *system, "-fsyntax-only", binding, cwd=project)
