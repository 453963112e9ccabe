"""Devices: which names exist, which releases compile for them, and that nothing is dropped without a word."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hubkernels.build.select import BINDING_ALONE, select
from hubkernels.build.supply import Supply
from hubkernels.config import load_project
from hubkernels.config.variant_table import VariantRow
from hubkernels.errors import InputError
from hubkernels.host.machine import Machine, this_machine
from hubkernels.model.arch import FAMILIES, Choice, choose_archs
from hubkernels.model.backend import CPU, CUDA, ROCM
from hubkernels.model.project import Package
from hubkernels.model.variant import Decisions, Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import Cli

LINUX = Platform("x86_64", "linux")
ROWS = (
    VariantRow(CPU, None, (Version((2, 13)),), (LINUX,)),
    *(VariantRow(CUDA, Version.parse(release), (Version((2, 13)),), (LINUX,)) for release in ("12.6", "12.8", "13.0")),
    VariantRow(ROCM, Version((7, 2)), (Version((2, 13)),), (LINUX,)),
)
CUDA_13_0 = ("7.5", "8.0", "8.6", "8.7", "8.8", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
"""What `nvcc --list-gpu-code` of CUDA 13.0 and 13.2 prints."""

TEXT = """\
[general]
name = "ab"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda", "rocm"]
[torch]
src = ["b.cpp"]
"""


def package(folder: Path, sections: str) -> Package:
    (folder / "build.toml").write_text(TEXT + sections)
    (found,) = load_project(folder).packages
    return found


def section(backend: str, name: str = "x", /, **keys: object) -> str:
    lines = [f"[kernel.{name}]", f'backend = "{backend}"', "src = []"]
    lines += [f"{key.replace('_', '-')} = {value!r}" for key, value in ({"depends": []} | keys).items()]
    return "\n".join(lines) + "\n"


def decide(folder: Path, sections: str, machine: Machine | None = None) -> Decisions:
    return select(package(folder, sections), ROWS, Supply(machine or this_machine()))


def reasons(decided: Decisions) -> dict[str, tuple[str, ...]]:
    return {f"{r.variant.backend.name}": r.of_package for r in decided.rejected} | {
        f"{r.variant.backend.name} {r.variant.backend_version}": r.of_package
        for r in decided.rejected
        if isinstance(r.variant, Variant) and r.variant.backend_version
    }


@pytest.mark.parametrize("release", ["13.0", "13.2"])
def test_the_table_agrees_with_what_nvcc_says(release: str) -> None:
    family = FAMILIES["cuda"]
    plain = [name for name in family.archs if name[-1].isdigit()]
    assert sorted(n for n in plain if family.why_not(n, Version.parse(release)) is None) == sorted(CUDA_13_0)


@pytest.mark.parametrize(
    ("entry", "first", "before"),
    [("9.0a", "12.6", None), ("10.0f", "12.9", "12.8"), ("12.0a", "12.8", "12.6"), ("11.0+PTX", "13.0", "12.9")],
)
def test_suffixed_capabilities_are_understood(entry: str, first: str, before: str | None) -> None:
    family = FAMILIES["cuda"]
    assert choose_archs([entry], lambda e: family.why_not(e, Version.parse(first))) == Choice((entry,), ())
    if before:
        choice = choose_archs([entry], lambda e: family.why_not(e, Version.parse(before)))
        assert choice == Choice((), ((entry, f"new in CUDA {first}"),))


def test_a_compiler_that_is_at_hand_decides_in_the_tables_place() -> None:
    can = {"8.0", "9.0"}
    choice = choose_archs(["8.0", "12.0+PTX"], lambda entry: None if entry in can else "this nvcc does not know it")
    assert choice == Choice(("8.0",), (("12.0+PTX", "this nvcc does not know it"),))


@pytest.mark.parametrize(
    ("backend", "key", "entries", "problem"),
    [
        ("cuda", "cuda_capabilities", ["99999.0"], "there is no CUDA capability 99999.0, as of 2026-11\n"),
        ("cuda", "cuda_capabilities", ["8.0", "99999.0"], "there is no CUDA capability 99999.0"),
        ("cuda", "cuda_capabilities", ["8.1"], "there is no CUDA capability 8.1"),
        ("cuda", "cuda_capabilities", ["8.0a"], "there is no CUDA capability 8.0a"),
        ("cuda", "cuda_capabilities", ["99.9z"], '"99.9z" is not a CUDA capability'),
        ("cuda", "cuda_capabilities", ["sm_90"], '"sm_90" is not a CUDA capability'),
        ("cuda", "cuda_capabilities", ["9.0+ptx"], '"9.0+ptx" is not a CUDA capability'),
        ("cuda", "cuda_capabilities", ["90"], '"90" is not a CUDA capability'),
        ("rocm", "rocm_archs", ["gfx942", "gfx99999"], '"gfx99999" is not a ROCm architecture'),
        ("rocm", "rocm_archs", ["gfx943"], "there is no ROCm architecture gfx943"),
        ("rocm", "rocm_archs", ["GFX942"], '"GFX942" is not a ROCm architecture'),
        ("rocm", "rocm_archs", ["mi300"], '"mi300" is not a ROCm architecture'),
    ],
)
def test_a_device_that_does_not_exist_is_an_error(
    tmp_path: Path, backend: str, key: str, entries: list[str], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        package(tmp_path, section(backend, **{key: entries}))
    (found,) = caught.value.problems
    assert str(found).startswith(problem.rstrip("\n"))
    index = len(entries) - 1
    assert found.where == f"{tmp_path}/build.toml:13: kernel.x.{key.replace('_', '-')}[{index}]"
    assert found.hint


@pytest.mark.parametrize(
    ("backend", "entry", "hint"),
    [
        ("cuda", "9.0+ptx", "did you mean 9.0+PTX?"),
        ("cuda", "9.0b", "spelled as 9.0, 9.0a, 10.0f, 12.0+PTX"),
        ("cuda", "sm_90", "spelled as 9.0, 9.0a, 10.0f, 12.0+PTX"),
        ("cuda", "90", "did you mean 9.0?"),
        ("rocm", "GFX90A", "did you mean gfx90a?"),
        ("rocm", "gfx942:xnack", "spelled as gfx90a, gfx942:xnack+, gfx11-generic"),
        ("rocm", "gxf942", "did you mean gfx942?"),
    ],
)
def test_a_device_that_is_misspelled_has_the_hint_that_leads_to_it(
    tmp_path: Path, backend: str, entry: str, hint: str
) -> None:
    key = {"cuda": "cuda_capabilities", "rocm": "rocm_archs"}[backend]
    with pytest.raises(InputError) as caught:
        package(tmp_path, section(backend, **{key: [entry]}))
    assert [problem.hint for problem in caught.value.problems] == [hint]


@pytest.mark.parametrize(
    "entries", [["9.0a", "10.0f", "12.0+PTX", "10.3f", "9.0a+PTX"], ["5.0", "7.0", "10.1"]], ids=["suffixed", "retired"]
)
def test_devices_that_exist_or_existed_are_kept_as_declared(tmp_path: Path, entries: list[str]) -> None:
    (found,) = package(tmp_path, section("cuda", cuda_capabilities=entries)).sections
    assert found.archs == tuple(entries)


def test_a_minor_number_newer_than_the_table_is_a_warning_beside_known_ones(tmp_path: Path) -> None:
    package(tmp_path, section("cuda", cuda_capabilities=["8.0", "11.8"]))
    (warning,) = load_project(tmp_path).packages[0].warnings
    assert (warning.what, warning.hint) == (
        "there is no CUDA capability 11.8, as of 2026-11: it is left out",
        "did you mean 11.0?",
    )


def test_what_a_release_does_not_compile_for_is_said_with_what_stays(tmp_path: Path) -> None:
    sections = section("cuda", cuda_capabilities=["7.0", "8.0", "9.0a", "10.1", "11.8"])
    decided = decide(tmp_path, sections + section("rocm", "y", rocm_archs=["gfx940", "gfx942", "gfx90a:xnack+"]))
    unknown = "11.8 (no such CUDA capability is known)"
    assert decided.left_out == (
        f"kernel.x, CUDA 12.6: left out: 10.1 (new in CUDA 12.8), {unknown}; 7.0, 8.0, 9.0a stay",
        f"kernel.x, CUDA 12.8: left out: {unknown}; 7.0, 8.0, 9.0a, 10.1 stay",
        f"kernel.x, CUDA 13.0: left out: 7.0, 10.1 (removed in CUDA 13.0), {unknown}; 8.0, 9.0a stay",
        "kernel.y, ROCm 7.2: left out: gfx940 (removed in ROCm 7.0); gfx942, gfx90a:xnack+ stay",
        f"cpu: {BINDING_ALONE}",
    )
    assert not any(r.of_package for r in decided.rejected)


def test_a_variant_that_nothing_is_left_for_is_rejected(tmp_path: Path) -> None:
    sections = section("cuda", cuda_capabilities=["10.0f"]) + section("rocm", "y", rocm_archs=["gfx940", "gfx941"])
    found = reasons(decide(tmp_path, sections))
    none = "nothing is left to compile for with"
    assert found["cuda 12.6"] == (f"kernel.x: {none} CUDA 12.6: 10.0f (new in CUDA 12.9)",)
    assert found["cuda 13.0"] == ()
    assert found["rocm 7.2"] == (f"kernel.y: {none} ROCm 7.2: gfx940, gfx941 (removed in ROCm 7.0)",)


def test_a_section_below_its_cuda_minver_is_left_out_and_said(tmp_path: Path) -> None:
    decided = decide(tmp_path, section("cuda", cuda_capabilities=["10.0f"], cuda_minver="12.9"))
    assert decided.left_out[0] == "kernel.x, CUDA 12.6, 12.8: the section is left out, its cuda-minver is 12.9"
    assert reasons(decided)["cuda 12.6"] == ()


def test_a_dependency_that_no_toolchain_provides_rejects_the_variants_of_its_backend_alone(tmp_path: Path) -> None:
    sections = section("cuda", depends=["torch", "cutlass_4_0"]) + section("cpu", "y", depends=["torch"])
    decided = decide(tmp_path, sections)
    assert reasons(decided)["cuda 13.0"] == ("this hubkernels does not provide cutlass_4_0 for kernel.x",)
    assert reasons(decided).get("cpu", ()) == ()
    assert reasons(decided)["rocm 7.2"] == ()


def test_two_sections_keep_the_devices_of_their_own(tmp_path: Path) -> None:
    sections = section("rocm", "one", rocm_archs=["gfx942"]) + section("rocm", "two", rocm_archs=["gfx1100", "gfx90a"])
    assert [s.archs for s in package(tmp_path, sections).sections] == [("gfx942",), ("gfx1100", "gfx90a")]


def test_the_verbs_that_list_variants_tell_what_is_left_out(tmp_path: Path, cli: Cli) -> None:
    sections = section("rocm", rocm_archs=["gfx940", "gfx942"])
    (tmp_path / "build.toml").write_text(TEXT.replace('"cpu", "cuda", ', "") + sections)
    note = "kernel.x, ROCm 7.1, 7.2: left out: gfx940 (removed in ROCm 7.0); gfx942 stays"
    assert f"  note: {note}\n" in cli("list-variants", "-C", tmp_path).out
    assert json.loads(cli("list-variants", "-C", tmp_path, "--json").out)["ab"]["left-out"] == [note]
    assert re.search(rf"note +{re.escape(note)}\n", cli("explain", "-C", tmp_path).out)
    assert json.loads(cli("explain", "-C", tmp_path, "--json").out)[0]["left-out"] == [note]
