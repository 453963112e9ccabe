"""A variant for CUDA 12, whose nvcc no index has: clang's device code with ptxas of the release. No GPU takes part."""

from __future__ import annotations

import json
import os
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
from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import FileHashes
from hubkernels.host.machine import Machine
from hubkernels.host.store import Store
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.model.sdk import SdkName, lock_text
from hubkernels.model.variant import Platform
from hubkernels.model.version import Version
from hubkernels.toolchain.clang import find_clang
from hubkernels.toolchain.sdk.index import Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Transfer, read_settings
from hubkernels.toolchain.usage import parse_usage
from tests.conftest import KEPT_CACHE, REPOSITORY, Cli, kept_name
from tests.toolchain.test_cuda import ADD_CU, HARD, CudaProject, device_objects

CLANG = find_clang(os.environ, FileHashes(Path(os.devnull)))
pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.skipif(isinstance(CLANG, str), reason=f"no clang for CUDA 12: {CLANG}"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels that are asked for are for x86_64"),
]
TAG = "torch-stable-abi210-cu126-x86_64-linux"
LABEL = f"{CLANG} with ptxas 12.6"

CROWDED = ADD_CU.replace(
    "  if (threadIdx.x < n) y[threadIdx.x] += 1;\n",
    "  float a[48];\n"
    "#pragma unroll\n  for (int i = 0; i < 48; i++) a[i] = y[i * n];\n"
    "  __syncthreads();\n"
    "#pragma unroll\n  for (int i = 0; i < 48; i++) y[i + threadIdx.x] = a[i] * a[(i * 7 + 1) % 48];\n",
)
"""Values for more registers than a flag leaves it."""


FLAGS = ("-maxrregcount=24",)


@dataclass(frozen=True)
class Sdks:
    """What is pinned, and the store that has it."""

    lock: str
    store: Path

    def give(self, project: CudaProject, cache: Path) -> CudaProject:
        """Let a project for CUDA 12.6 be built with these, on an otherwise empty cache."""
        bounds = '[general.cuda]\nminver = "12.6"\nmaxver = "12.6"\n\n[torch]'
        text = (project.root / "build.toml").read_text()
        (project.root / "build.toml").write_text(text.replace("[torch]", bounds, 1))
        (project.root / "toolchain.lock").write_text(self.lock)
        cache.mkdir()
        (cache / "sdk").symlink_to(self.store)
        return project


@pytest.fixture(scope="module")
def sdks(tmp_path_factory: pytest.TempPathFactory) -> Sdks:
    """Those of CUDA 12.6 and torch 2.10, by the configured index: 27 MB, unless an earlier run kept them."""
    store = SdkStore(Path(KEPT_CACHE, "sdk") if KEPT_CACHE else tmp_path_factory.mktemp("sdk"))
    maker = Maker(store, Index(os.environ, store.answers), lambda: Transfer(read_settings(os.environ)), print)
    names = (
        SdkName(kind, Version(release), "x86_64-linux") for kind, release in (("cuda", (12, 6)), ("torch", (2, 10)))
    )
    try:
        return Sdks(lock_text([maker.lock(name) for name in names]), store.folder)
    except EnvironmentLacksError as error:
        pytest.skip(f"no index that has them can be asked: {error.problems[0].what}")


@pytest.fixture
def project(sdks: Sdks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CudaProject:
    """One of a kernel for two devices, on a machine without torch, whose nvcc is of another release."""
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: Machine(Platform("x86_64", "linux"), None))
    monkeypatch.delenv("HUBKERNELS_TOOLCHAIN")
    monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / "cache"))
    made = CudaProject(tmp_path / "one").write("8.0", "9.0+PTX", flags=FLAGS, source=CROWDED)
    return sdks.give(made, tmp_path / "cache")


def artifact(project: CudaProject) -> Path:
    return project.root / "build" / project.name / TAG


def library(project: CudaProject) -> Path:
    (found,) = artifact(project).glob("*.abi3.so")
    return found


def note(project: CudaProject) -> dict[str, Any]:
    return dict(json.loads(artifact(project).with_name(f"{TAG}.build.json").read_text()))


def test_what_is_built_names_its_devices_its_compiler_and_what_spills(project: CudaProject, cli: Cli) -> None:
    listed = json.loads(cli("list-variants", "--json", project.root).out)[project.name]
    assert (listed["accepted"], listed["made-by"]) == ([TAG], {TAG: LABEL})
    assert f"device code by {LABEL}" in cli("list-variants", project.root).out
    ran = cli("build", project.root)
    assert ran.code == 0, ran.err
    assert f"{TAG}: device code by {LABEL}, not by nvcc" in ran.err
    assert "csrc/add.cu: add_kernel(float*, int) for sm_90 spills" in ran.err
    assert read_archs(library(project)) == {"8.0", "9.0", "9.0+PTX"}
    metadata = json.loads((artifact(project) / "metadata.json").read_text())
    assert metadata["backend"]["archs"] == ["8.0", "9.0+PTX"]
    read = read_library(library(project))
    assert not isinstance(read, str)
    assert read.needed[-2:] == ("libtorch_cuda.so", "libcudart.so.12")
    assert note(project)["toolchain"]["cuda"] == LABEL
    assert {"sdk cuda 12.6", "sdk torch 2.10"} <= note(project)["toolchain"].keys()
    kernels = note(project)["kernels"]
    assert [(kernel["arch"], kernel["registers"]) for kernel in kernels] == [("sm_80", 24), ("sm_90", 24)]
    assert all(kernel["spill-stores"] > 0 for kernel in kernels)


def test_the_bytes_are_the_same_in_any_folder(
    project: CudaProject, sdks: Sdks, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Static device variables, anonymous namespaces, __FILE__ and assert are in it."""
    two = sdks.give(
        CudaProject(tmp_path / "two folders/deep, 'quoted'").write("8.0", "9.0+PTX", flags=FLAGS), tmp_path / "other"
    )
    made = []
    for here, cache in ((project, "cache"), (two, "other")):
        monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / cache))
        (here.root / "csrc/add.cu").write_text(HARD.replace("NAME", "add"))
        ran = cli("build", here.root)
        assert ran.code == 0, ran.err
        made.append((library(here).name, library(here).read_bytes()))
    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0][1]


def test_a_header_that_one_device_alone_reads_is_an_input(project: CudaProject) -> None:
    text = ADD_CU.replace("__global__", '#if __CUDA_ARCH__ >= 900\n#include "only.h"\n#endif\n__global__', 1)
    (project.root / "csrc/add.cu").write_text(text)
    only = project.root / "csrc/only.h"
    plans = []
    for number in (1, 1, 2):
        only.write_text(f"__device__ inline int only() {{ return {number}; }}\n")
        plans.append(planned(project))
    assert plans[0] == plans[1]
    assert device_objects(plans[0]).isdisjoint(device_objects(plans[2]))


def planned(project: CudaProject) -> BuildPlan:
    builder = Builder(load_project(project.root), dict(os.environ), Settings(jobs=2))
    (package,) = builder.project.packages
    (variant,) = builder.decide(package).accepted
    return builder.plan(package, variant)


def test_our_own_kernel_compiles_for_the_devices_of_the_release(
    project: CudaProject, sdks: Sdks, tmp_path: Path
) -> None:
    """rms_norm of this repository: clang warns of nothing, and next to nothing spills."""
    builder = Builder(load_project(REPOSITORY), dict(os.environ), Settings(jobs=2))
    builder.pin_by(project.root / "toolchain.lock", (sdks.store,))
    package = next(package for package in builder.project.packages if package.name == "rms-norm")
    (variant,) = (each for each in builder.decide(package).accepted if each.tag == TAG)
    (step,) = (each for each in builder.plan(package, variant).steps if each.told)
    assert {"--cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90", "-std=c++20"} <= set(step.command)
    name, kept = kept_name(step.output, *step.command), Store(Path(KEPT_CACHE, "objects")) if KEPT_CACHE else None
    said = kept.get(name) if kept else None
    if said is None:
        command = [str(tmp_path / "x.o") if word == Step.OUTPUT else word for word in step.command]
        done = subprocess.run([*command, "-Wall", "-Werror"], cwd=REPOSITORY, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        said = done.stderr
        if kept:
            kept.put(name, said)
    usages = parse_usage(said.decode())
    assert {usage.arch for usage in usages} == {"80", "90"}
    spilling = [usage.spill_stores for usage in usages if usage.spill(usage.name)]
    assert len(spilling) < len(usages) / 4
    assert max(spilling, default=0) <= 32
