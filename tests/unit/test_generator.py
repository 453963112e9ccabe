"""CMake's generator expressions in flags: what CMake itself makes of them, for the two compiler families."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.build.generator import GeneratorError, expand
from hubkernels.build.sources import compiled_sources
from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.model.backend import CPU
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import SmallProject

VARIANT = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)


@pytest.mark.parametrize(
    ("word", "gnu", "clang"),
    [
        ("-O3", ["-O3"], ["-O3"]),
        ("-DA=$B", ["-DA=$B"], ["-DA=$B"]),
        ("-DA=a;b", ["-DA=a;b"], ["-DA=a;b"]),
        ("$<$<CXX_COMPILER_ID:MSVC>:/arch:AVX2>", [], []),
        ("$<$<CXX_COMPILER_ID:GNU>:-fno-tree-vectorize>", ["-fno-tree-vectorize"], []),
        ("$<$<CXX_COMPILER_ID:MSVC,Clang>:-Wno-psabi>", [], ["-Wno-psabi"]),
        ("$<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-mavx2;-mfma>", ["-mavx2", "-mfma"], ["-mavx2", "-mfma"]),
        ("$<$<AND:$<PLATFORM_ID:Linux>,$<CXX_COMPILER_ID:GNU>>:-fopenmp>", ["-fopenmp"], []),
        ("$<$<OR:$<PLATFORM_ID:Darwin>,$<CXX_COMPILER_ID:Clang>>:-a>", [], ["-a"]),
        ("$<IF:$<CXX_COMPILER_ID:GNU>,-a,-b>", ["-a"], ["-b"]),
        ("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-a>", ["-a"], []),
        ("$<$<COMPILE_LANGUAGE:CUDA>:--fast>", [], []),
        ("$<$<CONFIG:Debug>:-g>", [], []),
        ("$<$<BOOL:ON>:-Wl,-a>$<$<BOOL:libx-NOTFOUND>:-b>", ["-Wl,-a"], ["-Wl,-a"]),
        ("-DID=$<CXX_COMPILER_ID>", ["-DID=GNU"], ["-DID=Clang"]),
        ("$<1:-DA=a$<SEMICOLON>b$<COMMA>c$<ANGLE-R>;-d>", ["-DA=a;b,c>", "-d"], ["-DA=a;b,c>", "-d"]),
        ("$<$<STREQUAL:$<CXX_COMPILER_ID>,GNU>:-a>", ["-a"], []),
    ],
)
def test_an_expression_gives_the_flags_that_cmake_gives(word: str, gnu: list[str], clang: list[str]) -> None:
    assert list(expand(word, "g++")) == gnu
    assert list(expand(word, "clang")) == clang


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("$<$<CXX_COMPILER_ID:GNU>:-a", "an expression is not closed"),
        ("$<$<CXX_COMPILER_ID:GNU", "an expression is not closed"),
        ("$<TARGET_FILE:torch>", "TARGET_FILE is not known here"),
        ("$<CXX_COMPILER_VERSION>", "CXX_COMPILER_VERSION is not known here"),
        ("$<NOT:maybe>", "a condition is 0 or 1, found 'maybe'"),
        ("$<IF:1,-a>", "IF is not known here"),
        ("$<>", "an empty name is not known here"),
    ],
)
def test_an_expression_that_only_cmake_can_answer_is_refused(word: str, why: str) -> None:
    with pytest.raises(GeneratorError, match=why):
        expand(word, "g++")


def with_flags(project: SmallProject, flags: str) -> SmallProject:
    """The project with these flags on its kernel section."""
    path = project.root / "build.toml"
    path.write_text(path.read_text() + f"cxx-flags = {flags}\n")
    return project


def test_a_section_gets_the_flags_of_the_compiler_at_hand(tmp_path: Path) -> None:
    with_flags(SmallProject(tmp_path, "x2").write(), '["-O2", "$<$<CXX_COMPILER_ID:Clang>:-Wno-psabi>"]')
    (package,) = load_project(tmp_path).packages
    found = {family: compiled_sources(package, VARIANT, family)[1].flags for family in ("g++", "clang")}
    assert found == {
        "g++": ("-Iinclude", "-Itorch-ext", "-O2"),
        "clang": ("-Iinclude", "-Itorch-ext", "-O2", "-Wno-psabi"),
    }


def test_an_expression_that_cannot_be_evaluated_is_named_by_line_and_key(tmp_path: Path) -> None:
    with_flags(SmallProject(tmp_path, "x2").write(), '["-O2", "$<TARGET_FILE:torch>"]')
    (package,) = load_project(tmp_path).packages
    with pytest.raises(InputError) as caught:
        compiled_sources(package, VARIANT, "g++")
    assert str(caught.value) == (
        "an expression of CMake that cannot be evaluated: $<TARGET_FILE:torch>: TARGET_FILE is not known here\n"
        f"  --> {tmp_path}/build.toml:17: kernel.cpu.cxx-flags[1]\n"
        "  hint: write the flag itself"
    )
