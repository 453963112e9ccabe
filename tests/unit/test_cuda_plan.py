"""Plans of variants for CUDA, without a compiler: which commands, and what is shared between variants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.archs import compiled_archs, device_archs, left_out
from hubkernels.build.peaks import Peaks
from hubkernels.build.plan import Inputs, plan
from hubkernels.build.scan import ScannedSource
from hubkernels.build.settings import DEVICE_COMPILE, Need, Settings, device_threads, limit_jobs, usual_need
from hubkernels.build.sources import Source
from hubkernels.config.variant_table import load_variant_table
from hubkernels.host.store import Store
from hubkernels.model.arch import FAMILIES
from hubkernels.model.backend import CUDA
from hubkernels.model.plan import BuildPlan, Step
from hubkernels.model.project import KernelSection, Package, Torch
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.cpu import Toolchain
from hubkernels.toolchain.cuda import (
    ByNvcc,
    CudaToolkit,
    for_host,
    gencode,
    preprocessing,
    source_name,
    usual_archs,
    without_lines,
)
from tests.unit.test_plan import TOOLS as HOST

CUDA_130 = CudaToolkit(
    ByNvcc("/opt/cuda/bin/nvcc", Version((13, 0))),
    Version((13, 0)),
    Path("/opt/cuda"),
    (Path("/opt/cuda/include"), Path("/opt/cuda/include/cccl")),
    "cuda-hash",
    Path("/opt/cuda/lib64/libcudart.so.13"),
    "cudart-hash",
)
TOOLS = replace(HOST, cuda=CUDA_130)
VARIANT = Variant(Version((2, 10)), CUDA, Platform("x86_64", "linux"), Version((13, 0)), stable_abi=True)
SECTION = KernelSection("k", CUDA, ("csrc/k.cu",), archs=("8.0", "9.0a", "12.0+PTX"))
PACKAGE = Package(
    "my-kernel", 1, "Apache-2.0", (CUDA,), Torch(("b.cpp",)), Path(), "torch-ext/my_kernel", sections=(SECTION,)
)
DEVICE = ScannedSource(
    Source("csrc/k.cu", ("-Iinclude",), SECTION.archs), (("csrc/k.cu", "s0"),), reads_id=False, reads_torch=False
)
HOST_SOURCE = ScannedSource(Source("b.cpp", ()), (("b.cpp", "s1"),), reads_id=True)


def made(
    device: ScannedSource = DEVICE, variant: Variant = VARIANT, tools: Toolchain = TOOLS, package: Package = PACKAGE
) -> BuildPlan:
    return plan(package, variant, tools, Inputs((HOST_SOURCE, device), (), "/project"))


def compiled(found: BuildPlan) -> Step:
    return next(step for step in found.steps if step.told)


def test_a_source_for_the_device_is_nvccs_and_the_others_see_its_headers() -> None:
    found = made()
    command = compiled(found).command
    assert command[:3] == ("/opt/cuda/bin/nvcc", "-ccbin", "/usr/bin/g++")
    assert "-Xcompiler=-fPIC" in command
    assert "-Xcompiler=-ffile-prefix-map=/opt/cuda=cuda" in command
    assert f"--orig_src_path_name={source_name('csrc/k.cu')}" in command
    (host,) = (step.command for step in found.steps if step.subject == "b.cpp")
    assert "/opt/cuda/include" in host
    assert {"-DCUDA_KERNEL", "-DUSE_CUDA=1"} <= set(host) & set(command)
    link = found.steps[-1].command
    assert link.index("$STUBS/libtorch_cuda.so") < link.index("/opt/cuda/lib64/libcudart.so.13")
    assert found.metadata["backend"] == {"type": "cuda", "archs": ["12.0+PTX", "8.0", "9.0a"]}


def test_capabilities_become_upstreams_flags() -> None:
    assert gencode(("8.0", "9.0a", "10.0f", "12.0+PTX", "8.0")) == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_100f,code=sm_100f",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    )


def test_flags_for_the_host_compiler_survive_nvccs_commas_and_its_shell() -> None:
    assert for_host(("-fPIC", "-fmap=/a b,c=x", '-DX="$1"')) == (
        "-Xcompiler=-fPIC",
        '-Xcompiler="-fmap=/a b\\,c=x"',
        '-Xcompiler="-DX=\\"\\$1\\""',
    )


def test_an_object_without_torch_is_one_for_every_torch_and_every_package() -> None:
    newer, other = replace(VARIANT, torch=Version((2, 12))), replace(PACKAGE, name="another")
    full = replace(VARIANT, torch=Version((2, 13)), stable_abi=False)
    outputs = {compiled(p).output for p in (made(), made(variant=newer), made(variant=full), made(package=other))}
    assert len(outputs) == 1
    assert made(variant=newer).op_id != made().op_id
    assert not any("TORCH" in word or "Py_" in word for word in compiled(made()).command)


def test_an_object_with_torch_is_another_for_each() -> None:
    reads = replace(DEVICE, reads_torch=True)
    newer = replace(VARIANT, torch=Version((2, 12)))
    assert compiled(made(reads)).output != compiled(made(reads, newer)).output
    assert "-DTORCH_TARGET_VERSION=0x020a000000000000" in compiled(made(reads)).command


@pytest.mark.parametrize(
    "tools",
    [
        replace(TOOLS, cuda=replace(CUDA_130, fingerprint="another")),
        replace(TOOLS, compiler=replace(TOOLS.compiler, fingerprint="another")),
    ],
    ids=["nvcc", "host compiler"],
)
def test_an_object_is_another_with_another_compiler(tools: Toolchain) -> None:
    assert compiled(made(tools=tools)).output != compiled(made()).output
    assert made(tools=tools).op_id != made().op_id


def test_another_libcudart_makes_another_library_of_the_same_objects() -> None:
    tools = replace(TOOLS, cuda=replace(CUDA_130, runtime_hash="another"))
    assert compiled(made(tools=tools)).output == compiled(made()).output
    assert made(tools=tools).library != made().library


def test_another_place_of_the_toolkit_makes_the_same() -> None:
    moved = replace(
        CUDA_130,
        compiler=ByNvcc("/home/me/cu da/bin/nvcc", Version((13, 0))),
        root=Path("/home/me/cu da"),
        runtime=Path("/home/me/cu da/lib64/libcudart.so.13"),
    )
    tools = replace(TOOLS, cuda=moved)
    assert made(tools=tools).op_id == made().op_id


def test_threads_change_the_command_and_not_the_object() -> None:
    tools = replace(TOOLS, threads=8)
    assert "--threads=3" in compiled(made(tools=tools)).command
    assert "--threads=1" in compiled(made()).command
    assert compiled(made(tools=tools)).output == compiled(made()).output


def test_memory_limits_threads_and_jobs() -> None:
    settings = Settings(jobs=8, memory=4 * DEVICE_COMPILE)
    assert device_threads(settings) == 4
    jobs, why = limit_jobs(settings, [usual_need(stable_abi=True, device_threads=4)] * 8)
    assert (jobs, why) == (
        1,
        "1 command at a time instead of 8: 4.0 GB of memory may be used, and a compile with "
        "nvcc for 4 architectures at a time takes up to 4 GB (--memory, --jobs)",
    )


def test_a_command_that_alone_takes_more_than_there_is_is_told_of() -> None:
    settings = Settings(jobs=8, memory=2 * DEVICE_COMPILE)
    jobs, why = limit_jobs(settings, [Need(5 * DEVICE_COMPILE, "attention.cu, as measured,")])
    assert (jobs, why) == (
        1,
        "a compile with attention.cu, as measured, takes up to 5 GB, and 2.0 GB of memory may be used: "
        "it runs alone, and may be ended for it (--memory)",
    )


@pytest.mark.parametrize(("memory", "threads"), [(None, 3), (20, 3), (13, 2), (7, 1), (1, 1)])
def test_what_one_architecture_took_limits_how_many_are_compiled_at_a_time(
    tmp_path: Path, memory: int | None, threads: int
) -> None:
    planned = made(tools=replace(TOOLS, threads=8))
    step = compiled(planned)
    assert step.command.count("--threads=3") == 1
    peaks = Peaks(Store(tmp_path / "store"), planned, TOOLS)
    assert peaks.fitted(step, 1) == step  # nothing is known yet
    (tmp_path / f"{step.output}.peak").write_text("5000000000")
    peaks.keep([step], tmp_path)
    fitted = peaks.fitted(step, memory and memory * DEVICE_COMPILE)
    assert f"--threads={threads}" in fitted.command
    assert replace(fitted, command=step.command) == step
    usual = usual_need(stable_abi=True, device_threads=3)
    assert peaks.need(fitted, usual).size == threads * 6_250_000_000


def test_a_section_without_capabilities_has_upstreams() -> None:
    bare = replace(SECTION, archs=())
    assert compiled_archs((bare,), VARIANT) == usual_archs(Version((13, 2)))
    assert device_archs(replace(PACKAGE, sections=(bare,)), VARIANT) == usual_archs(Version((13, 2)))


@pytest.mark.parametrize(("release", "last"), [("12.6", "9.0+PTX"), ("12.9", "12.0+PTX"), ("13.0", "12.1+PTX")])
def test_what_is_usual_is_what_the_release_compiles_for(release: str, last: str) -> None:
    version = Version.parse(release)
    assert usual_archs(version)[-1] == last
    assert not [arch for arch in usual_archs(version) if FAMILIES["cuda"].why_not(arch, version)]


def test_a_section_without_a_source_for_the_device_has_no_device_code() -> None:
    assert device_archs(replace(PACKAGE, sections=(replace(SECTION, sources=("k.cpp",)),)), VARIANT) == ()


def test_what_nvcc_would_preprocess_with_is_read_from_what_it_says() -> None:
    said = (
        '#$ TOP=/opt/cuda\n#$ g++ -E -x c++ -DA="b c" -I"my dir" "k.cu" -o "x.cpp4.ii" \n'
        '#$ cudafe++ "x.cpp4.ii"\n#$ "/usr/bin"/g++ -D__CUDA_ARCH__=900 -E -x c++ "k.cu" -o "x.cpp1.ii" \n'
    )
    assert preprocessing(said) == (
        ("g++", "-E", "-x", "c++", "-DA=b c", "-Imy dir", "k.cu"),
        ("/usr/bin/g++", "-D__CUDA_ARCH__=900", "-E", "-x", "c++", "k.cu"),
    )


def test_line_numbers_are_left_out_and_said() -> None:
    section = replace(SECTION, device_flags=("-lineinfo", "--use_fast_math"))
    rows = load_variant_table()
    assert without_lines(section.device_flags) == ("--use_fast_math",)
    assert left_out(replace(PACKAGE, sections=(section,)), rows)[-1].startswith(
        "kernel.k: left out: -lineinfo (with it"
    )
    assert not any("-lineinfo" in line for line in left_out(PACKAGE, rows))
