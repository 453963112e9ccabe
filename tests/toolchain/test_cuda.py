"""Variants for CUDA, built with the toolkit of this machine: no GPU takes part."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hubkernels.abi.fatbin import read_archs
from hubkernels.abi.library import read_library
from hubkernels.build.pipeline import Builder
from hubkernels.build.settings import Settings
from hubkernels.config import load_project
from hubkernels.host.process import run
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import compiler_environment
from hubkernels.toolchain.nvcc import find_nvcc
from hubkernels.toolchain.usage import parse_usage
from tests.conftest import KEPT_CACHE, REPOSITORY, Cli, environment, kept_name

RELEASE = Version((13, 0))
FOUND = find_nvcc(os.environ)
pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(FOUND is None or FOUND.release != RELEASE, reason=f"this machine has no nvcc {RELEASE}"),
]
TAG = "torch-stable-abi210-cu130-x86_64-linux"

BUILD_TOML = """\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cuda"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"

[kernel.cuda]
backend = "cuda"
depends = []
cuda-capabilities = {archs}
cuda-flags = {flags}
src = ["csrc/add.cu", "csrc/add.h"]
"""

ADD_H = """\
#pragma once
#include <cuda_runtime_api.h>
cudaError_t add(float* y, int n, cudaStream_t stream);
"""

ADD_CU = """\
#include "add.h"

__global__ void add_kernel(float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] += 1;
}

cudaError_t add(float* y, int n, cudaStream_t stream) {
  add_kernel<<<1, 256, 0, stream>>>(y, n);
  return cudaGetLastError();
}
"""

BINDING = """\
#include "../csrc/add.h"
cudaError_t TORCH_EXTENSION_NAME() { return add(nullptr, 0, nullptr); }
"""


@dataclass(frozen=True)
class CudaProject:
    """A project of one kernel, without a header of torch: it compiles in seconds and cannot be loaded."""

    root: Path
    name: str = "cu-add"

    def write(self, *archs: str, flags: tuple[str, ...] = (), source: str = ADD_CU) -> CudaProject:
        for path, text in {
            "build.toml": BUILD_TOML.format(
                name=self.name, archs=json.dumps(archs or ("9.0",)), flags=json.dumps(flags)
            ),
            "csrc/add.h": ADD_H,
            "csrc/add.cu": source,
            "torch-ext/binding.cpp": BINDING,
            f"torch-ext/{self.name.replace('-', '_')}/__init__.py": "",
        }.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")
        return self

    @property
    def artifact(self) -> Path:
        return self.root / "build" / self.name / TAG

    @property
    def library(self) -> Path:
        (found,) = self.artifact.glob("*.abi3.so")
        return found

    @property
    def metadata(self) -> dict[str, Any]:
        return dict(json.loads((self.artifact / "metadata.json").read_text()))

    @property
    def note(self) -> dict[str, Any]:
        return dict(json.loads((self.artifact.parent / f"{TAG}.build.json").read_text()))

    def plan(self, environment: dict[str, str] | None = None) -> BuildPlan:
        builder = Builder(load_project(self.root), environment or dict(os.environ), Settings(jobs=2))
        (package,) = builder.project.packages
        (variant,) = builder.decide(package).accepted
        return builder.plan(package, variant)


def device_objects(plan: BuildPlan) -> set[str]:
    return {step.output for step in plan.steps if step.told}


def test_an_artifact_for_cuda_names_its_devices_and_libraries_and_what_its_kernels_take(
    tmp_path: Path, cli: Cli
) -> None:
    project = CudaProject(tmp_path).write("9.0a", "8.0", "12.0+PTX")
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err
    assert "spill" not in ran.err
    assert project.metadata["backend"] == {"type": "cuda", "archs": ["12.0+PTX", "8.0", "9.0a"]}
    assert read_archs(project.library) == {"8.0", "9.0a", "12.0", "12.0+PTX"}
    library = read_library(project.library)
    assert not isinstance(library, str)
    assert library.needed[-2:] == ("libtorch_cuda.so", "libcudart.so.13")
    kernels = project.note["kernels"]
    assert [kernel["arch"] for kernel in kernels] == ["sm_120", "sm_80", "sm_90a"]
    assert {kernel["kernel"] for kernel in kernels} == {"add_kernel(float*, int)"}
    assert all(kernel["registers"] > 0 and kernel["spill-stores"] == 0 for kernel in kernels)
    assert project.note["toolchain"]["cuda"] == "nvcc 13.0"
    checked = cli("check", "abi", project.root)
    assert checked.code == 0
    assert "not looked up" not in checked.err  # the toolkit's library and the headers of torch's C shim are at hand


def test_a_finished_library_that_calls_what_libcudart_lacks_is_found(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write()
    assert cli("build", project.root).code == 0
    content = project.library.read_bytes()
    assert content.count(b"\0__cudaRegisterFunction\0") == 1
    project.library.write_bytes(content.replace(b"__cudaRegisterFunction", b"__cudaRegisterFunctiox"))
    checked = cli("check", "abi", project.root)
    assert checked.code == 1
    assert "no needed library provides __cudaRegisterFunctiox" in checked.err


def test_a_header_that_one_device_alone_reads_is_an_input(tmp_path: Path) -> None:
    text = ADD_CU.replace("__global__", '#if __CUDA_ARCH__ >= 900\n#include "only.h"\n#endif\n__global__', 1)
    project = CudaProject(tmp_path).write("8.0", "9.0", source=text)
    only = project.root / "csrc/only.h"
    only.write_text("__device__ inline int only() { return 1; }\n")
    before = project.plan()
    assert before == project.plan()
    only.write_text("__device__ inline int only() { return 2; }\n")
    after = project.plan()
    assert device_objects(before).isdisjoint(device_objects(after))
    assert before.op_id != after.op_id


def test_a_header_that_one_device_alone_asks_for_is_an_input(tmp_path: Path) -> None:
    text = ADD_CU.replace(
        "__global__", '#if __CUDA_ARCH__ && __has_include("may.h")\n#include "may.h"\n#endif\n__global__'
    )
    project = CudaProject(tmp_path).write(source=text)
    before = project.plan()
    (project.root / "csrc/may.h").write_text("#define MAY 1\n")
    assert device_objects(before).isdisjoint(device_objects(project.plan()))


def test_two_packages_with_one_source_compile_it_once(tmp_path: Path, cli: Cli, cold_cache: Path) -> None:
    first, second = (CudaProject(tmp_path / name, name).write() for name in ("cu-one", "cu-two"))
    assert cli("build", first.root).code == 0
    assert device_objects(first.plan()) == device_objects(second.plan())
    ran = cli("build", second.root)
    assert ran.code == 0, ran.err
    assert "compile csrc/add.cu" not in ran.err
    assert second.note["kernels"] == first.note["kernels"]
    assert any(cold_cache.rglob("*.told"))


HARD = """\
#include <cassert>
#include "add.h"
namespace { __device__ int counter; template <int N> struct Tagged { int value; }; }
static __device__ float table[4];
__device__ inline const char* where() { return __FILE__; }
template <int N> __global__ void hard(Tagged<N> t, float* y) {
  assert(t.value > 0);
  static __shared__ int shared;
  shared = atomicAdd(&counter, 1);
  y[0] = table[shared & 3] + where()[0];
}
const char* NAME_OF() { return __FILE__; }
cudaError_t NAME(float* y, int n, cudaStream_t stream) {
  hard<3><<<1, 1, 0, stream>>>(Tagged<3>{n}, y);
  return cudaGetLastError();
}
"""


def test_the_bytes_are_the_same_in_any_folder_and_with_any_number_of_jobs(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sources of one name, static device variables, anonymous namespaces, __FILE__, assert; -lineinfo."""
    libraries, objects = [], []
    for folder, jobs in (("one", "1"), ("two folders/deep, 'quoted'", "4")):
        monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / f"cache-{jobs}"))
        source = HARD.replace("NAME", "add")
        project = CudaProject(tmp_path / folder).write("8.0", "9.0", flags=("-lineinfo",), source=source)
        text = (project.root / "build.toml").read_text().replace('"csrc/add.h"', '"csrc/add.h", "csrc/sub/add.cu"')
        (project.root / "build.toml").write_text(text)
        (project.root / "csrc/sub").mkdir()
        again = HARD.replace("NAME", "sub").replace('"add.h"', '"../add.h"')
        (project.root / "csrc/sub/add.cu").write_text(again)
        os.utime(project.root / "csrc/add.cu", (int(jobs), int(jobs)))
        ran = cli("build", project.root, "--jobs", jobs)
        assert ran.code == 0, ran.err
        libraries.append((project.library.name, project.library.read_bytes()))
        kept = (path for path in (tmp_path / f"cache-{jobs}").rglob("*.o"))
        objects.append({path.name: path.read_bytes() for path in kept})
        assert str(tmp_path).encode() not in project.library.read_bytes()
    assert libraries[0] == libraries[1]
    assert len(objects[0]) == 4
    assert objects[0] == objects[1]


def test_check_reproducible_passes(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write()
    assert cli("build", project.root).code == 0
    ran = cli("check", "reproducible", project.root)
    assert ran.code == 0, ran.err
    assert "the same bytes twice" in ran.out


SPILLING = ADD_CU.replace(
    "__global__ void add_kernel(float* y, int n) {",
    "__global__ void __launch_bounds__(1024, 2) add_kernel(float* y, int n) {\n"
    "  float a[64];\n"
    "  for (int i = 0; i < 64; i++) a[i] = y[i * threadIdx.x];\n"
    "  __syncthreads();\n"
    "  for (int r = 0; r < 10; r++) for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + r) & 63] + y[i];\n"
    "  for (int i = 0; i < 64; i++) y[i + threadIdx.x] = a[i];",
)


def test_a_kernel_that_spills_is_told_of_when_it_was_kept_too(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write(source=SPILLING)
    for _ in range(2):
        ran = cli("build", project.root)
        assert ran.code == 0, ran.err
        assert "csrc/add.cu: add_kernel(float*, int) for sm_90 spills" in ran.err
        (kernel,) = project.note["kernels"]
        assert kernel["spill-stores"] > 0
        shutil.rmtree(project.root / "build")


def test_device_code_that_is_not_declared_is_refused(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write(flags=("-gencode=arch=compute_80,code=sm_80",))
    ran = cli("build", project.root)
    assert ran.code == 1
    assert f"the library for {TAG} has code for 8.0, which is not declared" in ran.err
    assert not project.artifact.exists()


def test_flags_and_toolkit_are_explained(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write("8.0", "12.0+PTX", flags=("--use_fast_math",))
    (told,) = json.loads(cli("explain", "--json", project.root).out)
    assert told["toolchain"]["cuda"] == "nvcc 13.0"
    (target,) = told["targets"]
    section = target["sections"]["nvcc csrc/add.cu"]
    assert section["sources"] == ["csrc/add.cu"]
    assert "-gencode=arch=compute_120,code=compute_120" in section["flags"]
    assert section["flags"][-1] == "--use_fast_math"


def test_an_error_in_device_code_is_told_as_the_compiler_tells_it(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write(source=ADD_CU.replace("+= 1", "+= nothing"))
    ran = cli("build", project.root)
    assert ran.code == 2
    assert 'csrc/add.cu(4): error: identifier "nothing" is undefined' in ran.err
    assert f"csrc/add.cu does not compile for {TAG}" in ran.err


def toolkit(folder: Path) -> Path:
    """A toolkit in a folder of its own: nvcc by itself, since it looks beside itself; all else by links."""
    assert FOUND is not None
    real = Path(os.path.normpath(FOUND.own["TOP"]))
    (folder / "bin").mkdir(parents=True)
    for path in (real / "bin").iterdir():
        if path.name in {"nvcc", "nvcc.profile"}:
            shutil.copy(path, folder / "bin")
        else:
            (folder / "bin" / path.name).symlink_to(path)
    (folder / "nvvm/bin").mkdir(parents=True)
    (folder / "nvvm/libdevice").symlink_to(real / "nvvm/libdevice")
    (folder / "nvvm/bin/cicc").symlink_to(real / "nvvm/bin/cicc")
    (folder / "targets").symlink_to(real / "targets")
    return folder


def test_a_toolkit_in_a_folder_with_spaces_makes_the_same(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, cold_cache: Path
) -> None:
    project = CudaProject(tmp_path / "project").write()
    assert cli("build", project.root).code == 0
    usual = project.library.name, project.library.read_bytes()
    shutil.rmtree(project.root / "build")
    shutil.rmtree(cold_cache)
    home = tmp_path / "my cuda, 13"
    assert FOUND is not None
    home.symlink_to(os.path.normpath(FOUND.own["TOP"]))
    monkeypatch.setenv("CUDA_HOME", str(home))
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err
    assert (project.library.name, project.library.read_bytes()) == usual
    assert any(cold_cache.rglob("*.told"))  # it was compiled once more


def test_a_compiler_that_is_killed_is_told_with_the_way_out_and_the_next_build_is_right(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, cold_cache: Path
) -> None:
    project = CudaProject(tmp_path / "project").write()
    home = toolkit(tmp_path / "cuda")
    cicc = home / "nvvm/bin/cicc"
    real = cicc.readlink()
    cicc.unlink()
    cicc.write_text("#!/bin/sh\nkill -9 $$\n")
    cicc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    ran = cli("build", project.root)
    assert ran.code == 3
    assert "hint: the compiler was killed, most likely for want of memory" in ran.err
    assert not project.artifact.exists()
    assert not any(cold_cache.rglob("*.told"))
    cicc.unlink()
    cicc.symlink_to(real)
    assert cli("build", project.root).code == 0


def test_a_capability_that_the_compiler_does_not_know_is_named_and_nothing_is_built(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = CudaProject(tmp_path / "project").write("9.0", "12.0")
    home = toolkit(tmp_path / "cuda")
    real = (home / "bin/nvcc").rename(home / "bin/nvcc.real")
    older = f'[ "$1" = --list-gpu-code ] && exec echo sm_80 sm_90\nexec -a "$0" "{real}" "$@"\n'
    (home / "bin/nvcc").write_text(f"#!/bin/bash\n{older}")
    (home / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    ran = cli("build", project.root)
    assert ran.code == 3
    assert "this compiler does not know sm_120" in ran.err
    assert "hint: `kernel-builder list-variants` tells every reason" in ran.err
    assert not project.artifact.exists()
    project.write("9.0")
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err


def test_a_host_compiler_that_is_too_new_is_named_with_one_that_is_not(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = CudaProject(tmp_path / "project").write()
    home = toolkit(tmp_path / "cuda")
    real, own = (home / "targets").resolve(), home / "targets/x86_64-linux"
    (home / "targets").unlink()
    (own / "include/crt").mkdir(parents=True)
    (own / "lib").symlink_to(real / "x86_64-linux/lib")
    for folder in ("include", "include/crt"):
        for path in (real / "x86_64-linux" / folder).iterdir():
            if path.name not in {"crt", "host_config.h"}:
                (own / folder / path.name).symlink_to(path)
    header = (real / "x86_64-linux/include/crt/host_config.h").read_text()
    limit = own / "include/crt/host_config.h"
    limit.write_text(re.sub(r"__GNUC__ > \d+", "__GNUC__ > 10", header))
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("CXX", "g++")
    ran = cli("build", project.root)
    assert ran.code == 3
    assert re.search(r"g\+\+ [\d.]+ is too new for nvcc 13.0, which accepts g\+\+ up to 10: name an older", ran.err)
    assert "CXX=g++-10" in ran.err
    assert not project.artifact.exists()
    limit.write_text(header)
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err


def test_a_toolkit_that_is_not_whole_says_what_it_lacks(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = CudaProject(tmp_path / "project").write()
    home = toolkit(tmp_path / "cuda")
    (home / "nvvm/bin/cicc").unlink()
    monkeypatch.setenv("CUDA_HOME", str(home))
    ran = cli("build", project.root)
    assert ran.code == 3
    assert f"is not whole: it has no {home}/nvvm/bin/cicc" in ran.err


@pytest.mark.parametrize("name", ["csrc/a,b.cu", "csrc/a$b.cu", 'csrc/a"b.cu'])
def test_a_source_that_nvcc_cannot_be_told_of_is_named(tmp_path: Path, cli: Cli, name: str) -> None:
    project = CudaProject(tmp_path).write()
    (project.root / "csrc/add.cu").rename(project.root / name)
    text = (project.root / "build.toml").read_text().replace('"csrc/add.cu"', f"'{name}'")
    (project.root / "build.toml").write_text(text)
    ran = cli("build", project.root)
    assert ran.code == 2
    assert f"nvcc cannot be told of {name}: rename it" in ran.err


def test_a_source_with_a_space_is_compiled(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write()
    (project.root / "csrc/add.cu").rename(project.root / "csrc/my add's.cu")
    text = (project.root / "build.toml").read_text().replace("csrc/add.cu", "csrc/my add's.cu")
    (project.root / "build.toml").write_text(text)
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err


def test_flags_of_the_environment_do_not_reach_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    project = CudaProject(tmp_path).write()
    before = project.plan()
    for variable in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        monkeypatch.setenv(variable, "-gencode=arch=compute_80,code=sm_80")
    monkeypatch.setenv("NVCC_CCBIN", "/nowhere")
    assert project.plan() == before
    assert cli("build", project.root).code == 0


READ_BY_NVCC = (
    *("INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS"),
    *("NVVM_FLAGS", "OCG_FLAGS", "NV_NVVM_VERSION"),
)


@pytest.mark.parametrize("variable", READ_BY_NVCC)
def test_no_variable_that_nvcc_reads_reaches_its_commands(variable: str) -> None:
    """nvcc appends to some of them, which are names that a Makefile may export."""
    given = {**os.environ, variable: "-hk-marker "}

    def commands(environment: dict[str, str]) -> str:
        nvcc = find_nvcc(environment)
        assert nvcc
        return run((nvcc.path, "--dryrun", "-c", "-x", "cu", "/dev/null", "-o", "x.o"), env=environment).errors

    assert "-hk-marker" in commands(given)
    assert "-hk-marker" not in commands(compiler_environment(given))


def test_a_function_that_torch_does_not_have_is_found_without_a_torch_for_cuda(tmp_path: Path, cli: Cli) -> None:
    project = CudaProject(tmp_path).write()
    text = """
#include "../csrc/add.h"
extern "C" int aoti_torch_get_current_cuda_stream(int, void**);
extern "C" int aoti_torch_get_the_cuda_stream(int, void**);
__attribute__((visibility("default"))) int TORCH_EXTENSION_NAME(void** s) {
  return aoti_torch_get_current_cuda_stream(0, s) + aoti_torch_get_the_cuda_stream(0, s) + add(nullptr, 0, nullptr);
}
"""
    (project.root / "torch-ext/binding.cpp").write_text(text)
    ran = cli("build", project.root)
    assert ran.code == 1
    assert "no needed library provides aoti_torch_get_the_cuda_stream" in ran.err
    assert "current_cuda_stream" not in ran.err


OUR_SOURCES = {
    "rms-norm": {"csrc/rms_norm/rms_norm.cu", "torch-ext/rms_norm/gpu.cpp"},
    "ms-deform-attn": {
        "csrc/ms_deform_attn/forward.cu",
        "csrc/ms_deform_attn/backward.cu",
        "torch-ext/ms_deform_attn/gpu.cpp",
    },
}


@pytest.mark.parametrize("name", OUR_SOURCES)
def test_our_own_sources_compile_without_a_warning(tmp_path: Path, name: str) -> None:
    """For one architecture; nvcc has no -Wextra that its own generated code would pass."""
    builder = Builder(load_project(REPOSITORY), environment(HUBKERNELS_CACHE=KEPT_CACHE), Settings(jobs=2, system=True))
    package = next(package for package in builder.project.packages if package.name == name)
    (variant,) = (v for v in builder.decide(package).accepted if v.tag == TAG)
    for step in builder.plan(package, variant).steps:
        if step.subject not in OUR_SOURCES[name]:
            continue
        strict = ("-Xcompiler=-Wall", "--Werror=all-warnings") if step.told else ("-Wall", "-Wextra", "-Werror")
        others = [word for word in step.command if word.startswith("-gencode") and "sm_90" not in word]
        words = [word for word in step.command if word not in others]
        key, kept = kept_name(step.output, *words, *strict), builder.cache.store
        said = kept.get(key)
        if said is None:
            command = [str(tmp_path / "x.o") if word == Step.OUTPUT else word for word in words]
            done = subprocess.run([*command, *strict], cwd=REPOSITORY, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()
            kept.put(key, said := done.stderr)
        assert not [usage for usage in parse_usage(said.decode()) if usage.spill(usage.name)]
