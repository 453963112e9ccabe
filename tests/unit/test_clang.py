"""clang for the device code of CUDA 12: when it is taken, what is said where it is not, and its words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.build.plan import Inputs, plan
from hubkernels.build.select import select
from hubkernels.build.supply import Programs
from hubkernels.host.files import FileHashes
from hubkernels.model.backend import CUDA
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.clang import ByClang, clang_toolkit, find_clang, list_devices, translated, without_counterpart
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.nvcc import Nvcc
from hubkernels.toolchain.sdk.fatbinary import PROGRAM, translator
from tests.unit.test_cuda_plan import CUDA_130, DEVICE, HOST_SOURCE, SECTION, TOOLS
from tests.unit.test_cuda_plan import PACKAGE as PLANNED
from tests.unit.test_select import CUDA_PACKAGE, ROWS, accepted, reasons, supply

CLANG = Compiler(("/usr/bin/clang++-19",), "clang", Version((19, 1, 7)), "clang-hash", {})
CU126, CU128 = (f"torch-stable-abi210-cu12{minor}-x86_64-linux" for minor in (6, 8))
V12_6, V12_8 = Version((12, 6)), Version((12, 8))
PACKAGE = replace(CUDA_PACKAGE, sections=(replace(CUDA_PACKAGE.sections[0], archs=("8.0", "9.0a", "10.0")),))
PINS = ("torch 2.10", "cuda 12.6", "cuda 12.8")


def programs(clang: Compiler | str = CLANG, nvcc: str | None = "13.0", devices: str = "80 90 90a") -> Programs:
    own = Nvcc("/opt/cuda/bin/nvcc", Version.parse(nvcc), "", {"g++": 15}) if nvcc else None
    codes = frozenset({"80", "90", "100"})
    return Programs(
        lambda: own, lambda _: None, lambda _: codes, lambda: None, lambda: clang, lambda _: devices.split()
    )


def test_clang_compiles_where_the_toolkit_is_pinned_and_no_nvcc_of_its_release_is_here() -> None:
    for nvcc, others in (("13.0", [CU126.replace("cu126", "cu130")]), (None, [])):
        decisions = select(PACKAGE, ROWS, supply(*PINS, programs=programs(nvcc=nvcc)))
        assert accepted(decisions) == [CU126, *others]
        assert decisions.made_by == {CU126: "clang 19.1.7 with ptxas 12.6"}
        assert reasons(decisions, CU128) == ("clang 19.1.7 does not know sm_100",)


def test_an_nvcc_of_just_that_release_wins_and_its_pinned_toolkit_is_not_fetched() -> None:
    here = supply(*PINS, programs=programs(nvcc="12.6"))
    decisions = select(PACKAGE, ROWS, here)
    assert CU126 in accepted(decisions)
    assert decisions.made_by == {}
    (variant,) = (each for each in decisions.accepted if isinstance(each, Variant) and each.backend_version == V12_6)
    assert here.trees(variant).keys() == {"torch 2.10"}
    assert [name.kind for name in here.lacking([variant])] == ["torch"], "a build told of more, at each run"
    assert here.nvcc(V12_6) is not None


def test_without_clang_both_ways_out_are_told() -> None:
    none = supply(*PINS, programs=programs("there is no clang++ on PATH"))
    assert reasons(select(PACKAGE, ROWS, none), CU126) == (
        "needs nvcc 12.6, or clang 16 or newer, and there is no clang++ on PATH: "
        "on Debian and Ubuntu: apt-get install clang-19",
    )


def test_clang_is_not_looked_for_where_nothing_of_the_release_is_pinned() -> None:
    def never(*_: object) -> None:
        raise AssertionError("it was looked for")

    nothing = Programs(lambda: None, lambda _: None, lambda _: (), lambda: None, never, never)  # type: ignore[arg-type]
    assert reasons(select(PACKAGE, ROWS, supply("torch 2.10", programs=nothing)), CU126) == (
        "there is no nvcc in CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda; clang does it, with what "
        f"`kernel-builder toolchain lock --variant {CU126}` pins",
    )


def test_a_flag_that_clang_has_no_word_for_is_the_reason() -> None:
    sections = (replace(PACKAGE.sections[0], device_flags=("-lineinfo", "--use_fast_math", "-rdc=true")),)
    decisions = select(replace(PACKAGE, sections=sections), ROWS, supply(*PINS, programs=programs()))
    assert reasons(decisions, CU126) == (
        "clang has no counterpart of nvcc's -rdc=true of kernel.k: nvcc 12.6 is needed",
    )


def test_a_letter_of_a_device_counts_for_clang() -> None:
    decisions = select(PACKAGE, ROWS, supply(*PINS, programs=programs(devices="80 90")))
    assert reasons(decisions, CU126) == ("clang 19.1.7 does not know sm_90a",)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--expt-relaxed-constexpr", "-expt-extended-lambda", "--threads", "4", "-t=2"), ()),
        (("-Xptxas=-O2,--verbose",), ("-Xcuda-ptxas", "-O2", "-Xcuda-ptxas", "--verbose")),
        (("--ptxas-options", "-v"), ("-Xcuda-ptxas", "-v")),
        (("-maxrregcount=64",), ("-Xcuda-ptxas", "--maxrregcount=64")),
        (("-Xcompiler", "-fopenmp,-Wall"), ("-Xarch_host", "-fopenmp", "-Xarch_host", "-Wall")),
        (("--std=c++17", "-O2", "-DA=1", "-D", "B", "-U__X__", "-Iinclude"),) * 2,
        (("-fmad=false", "--ftz=true"), ("-ffp-contract=off", "-fcuda-flush-denormals-to-zero")),
        (("-prec-div=false",), ("-mllvm", "-nvptx-prec-divf32=1")),
    ],
    ids=" ".join,
)
def test_flags_of_nvccs_become_clangs(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    expected = tuple(word.replace("--std", "-std") for word in words)
    assert compiler().from_nvcc(flags) == expected
    assert without_counterpart(flags) == ()


def test_fast_mathematics_is_told_llvm_once() -> None:
    words = compiler().from_nvcc(("-use_fast_math", "--use_fast_math"))
    assert words.count("-nvptx-prec-sqrtf32=0") == 1
    assert words[0] == "-fcuda-flush-denormals-to-zero"


@pytest.mark.parametrize("flag", ["-rdc=true", "--default-stream=per-thread", "-prec-sqrt=true", "-Xcompiler='-a b'"])
def test_what_clang_cannot_be_told_is_named(flag: str) -> None:
    assert without_counterpart((flag, "-O3")) == (flag,)
    assert dict(translated((flag,))) == {flag: None}


def compiler(root: Path = Path("/sdk/nvidia/cu12")) -> ByClang:
    system = ("/opt/llvm/lib/clang/19/include/cuda_wrappers", "/usr/include", f"{root}/include")
    return ByClang(CLANG, V12_6, root, system)


CUDA_126 = replace(
    CUDA_130,
    compiler=compiler(),
    release=V12_6,
    root=Path("/sdk/nvidia/cu12"),
    include=(Path("/sdk/nvidia/cu12/include"),),
    runtime=Path("/sdk/nvidia/cu12/lib/libcudart.so.12"),
)


def test_the_command_names_devices_and_puts_ptx_in_where_it_is_asked_for() -> None:
    tools = replace(TOOLS, cuda=CUDA_126, threads=8)
    variant = Variant(Version((2, 10)), CUDA, supply().machine.platform, V12_6, stable_abi=True)
    package = replace(PLANNED, sections=(replace(SECTION, archs=("8.0", "9.0+PTX")),))
    device = replace(DEVICE, source=replace(DEVICE.source, archs=("8.0", "9.0+PTX")))
    made = plan(package, variant, tools, Inputs((HOST_SOURCE, device), (), "/project"))
    (command,) = (step.command for step in made.steps if step.told)
    assert command[:4] == ("/usr/bin/clang++-19", "-x", "cuda", "--cuda-path=/sdk/nvidia/cu12")
    at = command.index("--cuda-gpu-arch=sm_80")
    ptx = ("--no-cuda-include-ptx=all", "--cuda-include-ptx=sm_90")
    assert command[at : at + 4] == ("--cuda-gpu-arch=sm_80", "--cuda-gpu-arch=sm_90", *ptx)
    assert {"-fPIC", "-fvisibility=hidden", "-fuse-cuid=none", "-ffile-prefix-map=/sdk/nvidia/cu12=cuda"} <= set(
        command
    )
    assert command[-7:-4] == ("-fuse-cuid=none", "-Xcuda-ptxas", "-v")
    nvccs = [word for word in command if word.startswith(("-Xcompiler", "--expt", "-ccbin", "--threads", "-gencode"))]
    assert nvccs == []
    assert not any("/sdk" in tools.portable(word) for word in command if word != command[3])
    assert tools.portable("/opt/llvm/lib/clang/19/include/cuda_wrappers") == "<sys0>"
    assert tools.portable("-I/sdk/nvidia/cu12/include") == "-I<cuda>/include"
    assert str(tools.cuda) == "clang 19.1.7 with ptxas 12.6"


def test_what_a_source_reads_is_asked_for_the_host_and_for_each_device() -> None:
    device = compiler()
    archs = ("8.0", "9.0+PTX")
    passes = device.passes("g++", ("-O3", *device.archs(archs)), "a.cu", archs, lambda _: "")
    ends = [command[-3:] for command in passes]
    assert ends[0][1:] == ("--cuda-host-only", "a.cu")
    assert ends[1:] == [(f"--cuda-gpu-arch=sm_{code}", "--cuda-device-only", "a.cu") for code in (80, 90)]
    assert [sum("--cuda-gpu-arch" in word for word in command) for command in passes] == [0, 1, 1]


def test_its_own_wrappers_are_looked_in_behind_named_folders_and_the_toolkit_last() -> None:
    named = ("own", "/sdk/nvidia/cu12/include", "torch")
    found = compiler().folders(named, ("/of/g++",), CUDA_126.include)
    assert found == ("own", "torch", *compiler().system)


def test_a_comma_in_a_name_is_refused_since_fatbinary_parts_words_there() -> None:
    assert compiler().why_unspeakable("csrc/my add's.cu", ()) is None
    assert "rename it, without commas" in (compiler().why_unspeakable("csrc/a,b.cu", ()) or "")


def test_the_script_asks_fatbinary_in_the_words_of_cuda_13(tmp_path: Path) -> None:
    script = tmp_path / "my tools/fatbinary"
    for path, text in {script: translator(), script.with_name(PROGRAM): b'#!/bin/sh\nprintf "%s\\n" "$@"\n'}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
        path.chmod(0o755)
    images = (
        "--image=profile=sm_90a,file=my a.o",
        "--image=profile=compute_90,file=x.s",
        "--image3=kind=elf,sm=1",
    )
    words = (str(script), "-64", "--create", "a b", *images)
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "--compress-mode=none",
        "-64",
        "--create",
        "a b",
        "--image3=kind=elf,sm=90a,file=my a.o",
        "--image3=kind=ptx,sm=90,file=x.s",
        "--image3=kind=elf,sm=1",
    ]


def programs_at(folder: Path, **texts: str) -> Mapping[str, str]:
    """An environment whose PATH has these scripts alone."""
    for name, text in texts.items():
        file = folder / name.replace("clang", "clang++").replace("_", "-")
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    return {"PATH": str(folder)}


def found(environment: Mapping[str, str], tmp_path: Path) -> Compiler | str:
    return find_clang(environment, FileHashes(tmp_path / "hashes"))


def test_the_newest_clang_is_taken_and_one_that_is_too_old_is_named(tmp_path: Path) -> None:
    assert found({"PATH": str(tmp_path)}, tmp_path) == "there is no clang++ on PATH"
    old = programs_at(tmp_path, clang_9="exit 9", clang="echo 14.0.6")
    assert found(old, tmp_path) == f"{tmp_path}/clang++ is clang 14"
    newer = programs_at(tmp_path, clang_17="exit 17", clang_19="echo broken >&2; exit 19")
    assert found(newer, tmp_path) == f"{tmp_path}/clang++-19 is not a working C++ compiler: broken"


def test_the_clang_that_cudacxx_names_is_taken_and_an_nvcc_there_is_none(tmp_path: Path) -> None:
    path = programs_at(tmp_path, clang_17="echo seventeen >&2; exit 1", clang_19="exit 19")
    named = {**path, "CUDACXX": "clang++-17"}
    assert found(named, tmp_path) == f"{tmp_path}/clang++-17 is not a working C++ compiler: seventeen"
    gone = {**path, "CUDACXX": "clang++-21"}
    assert found(gone, tmp_path) == "CUDACXX names clang++-21, and there is no such program"
    nvcc = {**path, "CUDACXX": "/usr/local/cuda/bin/nvcc"}
    assert "clang++-19 is not a working" in str(found(nvcc, tmp_path))


def test_what_a_clang_compiles_for_is_what_it_says(tmp_path: Path) -> None:
    said = "Available CPUs for this target:\\n\\n\\tsm_80\\n\\tsm_90a\\n\\nUse -mcpu or -mtune"
    environment = programs_at(tmp_path, clang_19=f"printf '{said}' >&2")
    clang = replace(CLANG, command=(str(tmp_path / "clang++-19"),))
    assert list_devices(clang, {**os.environ, **environment}) == {"80", "90a"}


def test_a_toolkit_that_is_not_whole_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"CUDA 12\.6 is not whole: it has no .*/bin/ptxas, .*libcudart") as error:
        clang_toolkit(CLANG, tmp_path, V12_6, FileHashes(tmp_path / "hashes"), {})
    assert "toolchain verify" in str(error.value)
