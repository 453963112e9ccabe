"""The rules of the ABI policy, each on a library that breaks it and one that does not. No compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.abi.installed import Installed
from hubkernels.abi.library import Library, Symbol
from hubkernels.abi.rules import Subject, find, unchecked
from hubkernels.build.artifacts import variants_by_tag
from hubkernels.check.abi import check_abi
from hubkernels.config.abi_policy import load_abi_policy
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import Problem
from hubkernels.model.backend import CPU, CUDA
from hubkernels.model.project import Torch, TorchNoarch
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from tests.unit.test_select import package

STABLE = Variant(Version((2, 10)), CPU, Platform("x86_64", "linux"), stable_abi=True)
FULL = Variant(Version((2, 13)), CPU, Platform("x86_64", "linux"))
CLEAN = Library(
    cpu="x86_64",
    needed=("libc.so.6", "libstdc++.so.6", "libtorch_cpu.so"),
    undefined=(
        Symbol("memcpy", "GLIBC_2.14", "libc.so.6"),
        Symbol("_ZNSt6thread4joinEv", "GLIBCXX_3.4.11", "libstdc++.so.6"),
        Symbol("PyModule_Create2"),
        Symbol("aoti_torch_get_dtype"),
        Symbol("__gmon_start__", weak=True),
    ),
    versions=(("libc.so.6", "GLIBC_2.14"), ("libstdc++.so.6", "GLIBCXX_3.4.11")),
    unique=(),
    search_paths=(),
    executable_stack=False,
    writable_code=False,
    relocated_text=False,
    packed_relocations=False,
    static_tls=False,
    cpu_levels=(),
)


def found(library: Library, variant: Variant = STABLE) -> list[str]:
    return [finding.what for finding in find(Subject(library, variant, load_abi_policy(), None))]


def test_a_clean_library_has_no_finding() -> None:
    assert found(CLEAN) == []
    assert found(CLEAN, FULL) == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"cpu": "aarch64"}, "is made for aarch64, not for x86_64"),
        ({"search_paths": ("$ORIGIN",)}, "has the search path $ORIGIN"),
        ({"executable_stack": True}, "asks for an executable stack"),
        ({"writable_code": True}, "has a segment that is writable and executable"),
        ({"relocated_text": True}, "has relocations in its code"),
        ({"packed_relocations": True}, "has packed relocations, which glibc reads from 2.36 on"),
        ({"static_tls": True}, "has thread-local variables in the room that a process has for those of its program"),
        ({"cpu_levels": ("x86-64-v3",)}, "is marked as for processors with x86-64-v3 only"),
        ({"unique": ("_ZZ5callsvE5count",)}, "_ZZ5callsvE5count is one for the whole process (GNU unique)"),
        ({"needed": ("libnuma.so.1",)}, "needs the library libnuma.so.1, which not every system has"),
        ({"needed": ("libtorch_python.so",)}, "needs the library libtorch_python.so"),
        ({"needed": ("libtorch_cuda.so",)}, "needs the library libtorch_cuda.so"),
        ({"needed": ("libc.musl-x86_64.so.1",)}, "needs the library libc.musl-x86_64.so.1"),
        ({"versions": (("libc.so.6", "GLIBC_ABI_DT_RELR"),)}, "needs GLIBC_ABI_DT_RELR of libc.so.6, a version that"),
    ],
)
def test_what_is_wrong_with_a_file_is_found(changes: dict[str, object], what: str) -> None:
    (only,) = found(replace(CLEAN, **changes))  # type: ignore[arg-type]
    assert what in only


@pytest.mark.parametrize(
    ("symbol", "what"),
    [
        (
            Symbol("close_range", "GLIBC_2.34", "libc.so.6"),
            "close_range needs GLIBC_2.34 of libc.so.6; the limit is GLIBC_2.28",
        ),
        (
            Symbol("_ZNSt10filesystem6statusERKNS_7__cxx114pathE", "GLIBCXX_3.4.26", "libstdc++.so.6"),
            "needs GLIBCXX_3.4.26 of libstdc++.so.6; the limit is GLIBCXX_3.4.24",
        ),
        (Symbol("nothing", "GLIBC_2.14", "libc.so.6"), "nothing is not in libc.so.6 as GLIBC_2.14"),
        (Symbol("memcpy", "GLIBC_2.17", "libc.so.6"), "memcpy is not in libc.so.6 as GLIBC_2.17"),
        (Symbol("errno", "GLIBC_PRIVATE", "libc.so.6"), "errno is private to glibc (libc.so.6)"),
        (Symbol("x", "GLIBC_2.28x", "libc.so.6"), "x needs GLIBC_2.28x of libc.so.6, a version that the table of 20"),
        (Symbol("PyObject_GetTypeData"), "PyObject_GetTypeData is in Python's stable ABI only from 3.12 on"),
        (Symbol("PyType_FromMetaclass"), "PyType_FromMetaclass is in Python's stable ABI only from 3.12 on"),
        (Symbol("_PyObject_GetDictPtr"), "_PyObject_GetDictPtr is not in Python's stable ABI"),
        (Symbol("PyNever_Heard"), "PyNever_Heard is unknown: neither this Python nor the table of 20"),
        (Symbol("torch_from_blob"), "torch_from_blob is in torch's C shim only from 2.11 on"),
        (Symbol("_ZN2at6detail10empty_cpuEv"), "_ZN2at6detail10empty_cpuEv is no part of torch's stable ABI"),
    ],
)
def test_what_is_wrong_with_a_symbol_is_found(symbol: Symbol, what: str) -> None:
    versions = ((symbol.library, symbol.version),) if symbol.version else ()
    (only,) = found(replace(CLEAN, undefined=(symbol,), versions=versions))
    assert what in only


def test_torch_is_free_in_a_variant_of_one_torch_release() -> None:
    assert found(replace(CLEAN, undefined=(Symbol("_ZN2at6detail10empty_cpuEv"),)), FULL) == []


def test_each_backend_has_its_libraries() -> None:
    cuda = Variant(Version((2, 13)), CUDA, Platform("x86_64", "linux"), Version((13, 0)))
    assert found(replace(CLEAN, needed=("libtorch_cuda.so", "libcudart.so.13")), cuda) == []


def test_libraries_that_are_not_here_are_told() -> None:
    assert unchecked(Subject(CLEAN, STABLE, load_abi_policy(), None)) == ("libtorch_cpu.so",)


def test_the_headers_of_the_shim_stand_for_the_libraries_of_torch_alone(tmp_path: Path) -> None:
    headers, policy = Installed(headers=tmp_path), load_abi_policy()
    assert unchecked(Subject(CLEAN, STABLE, policy, headers)) == ()
    assert unchecked(Subject(CLEAN, FULL, policy, headers)) == ("libtorch_cpu.so",)
    for_cuda = replace(CLEAN, needed=("libtorch_cuda.so", "libcudart.so.13"))
    assert unchecked(Subject(for_cuda, STABLE, policy, headers)) == ("libtorch_cuda.so", "libcudart.so.13")


KNOWN = variants_by_tag(package(), load_variant_table())


@pytest.mark.parametrize(
    ("tag", "content", "what"),
    [
        (STABLE.tag, b"text", "is no ELF file"),
        (STABLE.tag, b"", "is no ELF file"),
        (STABLE.tag, b"\x7fELF\2\1\1" + bytes(57), "is an ELF file that is cut off"),
        (STABLE.tag, b"\x7fELF" + b"\xff" * 100, "is a damaged ELF file"),
        ("torch-stable-abi11-cpu-x86_64-linux", b"", "is no variant of build.toml now"),
        (FULL.tag, b"", "is no variant of build.toml now"),
    ],
)
def test_a_file_that_is_no_library_is_a_violation(tmp_path: Path, tag: str, content: bytes, what: str) -> None:
    folder = tmp_path / tag
    folder.mkdir()
    (folder / "x.abi3.so").write_bytes(content)
    (violation,) = check_abi(folder, KNOWN, load_abi_policy(), lambda _: None).violations
    assert what in violation.what


def test_what_cannot_be_checked_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "torch-stable-abi210-cpu-aarch64-darwin"
    folder.mkdir()
    assert check_abi(folder, KNOWN, load_abi_policy(), lambda _: None).notes == (
        "not checked: aarch64-darwin has no ABI policy here",
    )


def test_a_release_that_only_build_toml_names_is_known_as_it_is_to_the_build(tmp_path: Path) -> None:
    """The variant table lists releases from 2.10 on; a stable ABI may be older."""
    older = Torch(("b.cpp",), stable_abi={"cpu": Version((2, 9))})
    folder = tmp_path / "torch-stable-abi29-cpu-x86_64-linux"
    folder.mkdir()
    known = variants_by_tag(package(older), load_variant_table())
    assert check_abi(folder, known, load_abi_policy(), lambda _: None).violations == ()


def test_a_variant_without_compiled_code_has_nothing_to_check(tmp_path: Path) -> None:
    folder, known = tmp_path / "torch-cpu", variants_by_tag(package(TorchNoarch()), load_variant_table())
    folder.mkdir()
    report = check_abi(folder, known, load_abi_policy(), lambda _: None)
    assert (report.libraries, report.violations, report.notes) == (0, (), ())
    (folder / "x.so").touch()
    (violation,) = check_abi(folder, known, load_abi_policy(), lambda _: None).violations
    assert violation.problem() == Problem("x.so: is a library in a variant of Python alone", "torch-cpu")


def test_what_is_wrong_with_an_artifact_itself_is_said_of_it_once(tmp_path: Path) -> None:
    (violation,) = check_abi(tmp_path / FULL.tag, KNOWN, load_abi_policy(), lambda _: None).violations
    assert str(violation.problem()).count(FULL.tag) == 1
    assert str(violation.problem()).startswith(f"{FULL.tag} is no variant of build.toml now")
    assert violation.problem().hint == "delete it, or check others by --variant"
