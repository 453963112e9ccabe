"""What a build.toml says against itself, and against the rules of the client, the Hub and git."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubkernels.build.sources import compiled_sources
from hubkernels.check.config import check_config
from hubkernels.config import load_project
from hubkernels.config.document import Document, Problems
from hubkernels.config.edition import UPSTREAM, WORKSPACE, read_package
from hubkernels.config.older import old_edition
from hubkernels.errors import InputError, Problem
from hubkernels.model.backend import CPU
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version
from tests.conftest import Cli, SmallProject
from tests.golden.errors import BAD, EXPECTED, found_in

GOOD = """\
[general]
name = "my-kernel"
version = 1
edition = 5
license = "MIT"
backends = ["cpu", "cuda"]
[general.hub]
repo-id = "org/my-kernel"
[torch]
src = ["b.cpp"]
[kernel.one]
backend = "cpu"
depends = []
src = ["a.cpp", "a.h"]
[kernel.two]
backend = "cuda"
depends = []
src = ["a.cpp", "g.cu"]
"""
THIRD = '[kernel.three]\nbackend = "cpu"\ndepends = []\nsrc = ["./a.cpp", "a.h"]\n'


def load(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """The errors and the warnings of a file, without the folder's name."""
    (folder / "build.toml").write_text(text, encoding="utf-8")
    try:
        return [], shown(load_project(folder).packages[0].warnings, folder)
    except InputError as error:
        return shown(error.problems, folder), []


def shown(problems: Iterable[Problem], folder: Path) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in problems]


def test_a_good_file_has_neither(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == ([], [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ('"cpu", "cuda"', '"cpu"'),
            "section two is for cuda, which general.backends does not name\n  --> build.toml:16: kernel.two.backend\n"
            '  hint: add "cuda" to general.backends, or drop the section',
        ),
        (
            ('[torch]\nsrc = ["b.cpp"]', "[torch-noarch]"),
            "a [torch-noarch] package compiles nothing, and has no kernel sections\n  --> build.toml:10: kernel\n"
            "  hint: say [torch], or drop [kernel.one], [kernel.two]",
        ),
        (
            ("[torch]", '[torch]\nminver = "2.13"\nmaxver = "2.9"'),
            "no version is between minver 2.13 and maxver 2.9\n  --> build.toml:10: torch.minver",
        ),
        (
            ("[torch]", '[general.cuda]\nminver = "13.0"\nmaxver = "12.9"\n[torch]'),
            "no version is between minver 13.0 and maxver 12.9\n  --> build.toml:10: general.cuda.minver",
        ),
        (
            ("[torch]", '[torch]\npyext = ["json", ".txt"]'),
            'pyext has ".txt", which no file name ends in\n  --> build.toml:10: torch.pyext[1]\n  hint: write txt',
        ),
        (("[torch]", '[torch]\npyext = [""]'), 'pyext has "", which no file name ends in'),
        (('"MIT"', '" "'), "license is empty\n  --> build.toml:5: general.license"),
        (
            ('"org/my-kernel"', '"my-kernel"'),
            '"my-kernel" is not a repository of the Hub\n  --> build.toml:8: general.hub.repo-id\n  hint: OWNER/NAME',
        ),
        (('"org/my-kernel"', '"org/my--kernel"'), '"org/my--kernel" is not a repository of the Hub'),
        (('"org/my-kernel"', '"org/.kernel"'), '"org/.kernel" is not a repository of the Hub'),
        (('"org/my-kernel"', '"org/a/b"'), '"org/a/b" is not a repository of the Hub'),
        (('"org/my-kernel"', f'"org/{"a" * 99}"'), f'"org/{"a" * 99}" is not a repository of the Hub'),
        (
            ("[torch]", 'branch = "my branch"\n[torch]'),
            '"my branch" is not the name of a git branch\n  --> build.toml:9: general.hub.branch',
        ),
        (("[torch]", 'branch = "v1..2"\n[torch]'), '"v1..2" is not the name of a git branch'),
        (("[torch]", 'branch = ""\n[torch]'), '"" is not the name of a git branch'),
        (
            ('"MIT"', '"MIT"\nupstream = "github.com/org/x"'),
            'upstream is not the address of a git repository: "github.com/org/x"\n  --> build.toml:6: general.upstream',
        ),
        (('"MIT"', '"MIT"\nsource = "file:///x"'), "source is not the address of a git repository"),
        (
            ('"MIT"', '"MIT"\npython-depends = ["einops", "eniops", "nvidia-cutlass-dsl"]'),
            "the client knows no Python package eniops for every backend\n"
            "  --> build.toml:6: general.python-depends[1]\n  hint: did you mean einops?",
        ),
        (
            ('"MIT"', '"MIT"\npython-depends = ["nvidia-cutlass-dsl"]'),
            "the client knows no Python package nvidia-cutlass-dsl for every backend\n"
            "  --> build.toml:6: general.python-depends[0]\n  hint: name it under general.cuda.python-depends",
        ),
        (
            ("[torch]", '[general.cuda]\npython-depends = ["einops"]\n[torch]'),
            "the client knows no Python package einops for cuda\n"
            "  --> build.toml:10: general.cuda.python-depends[0]\n  hint: name it under general.python-depends",
        ),
        (
            ('"MIT"', '"MIT"\nkernel-depends = [{ repo-id = "x", version = 1 }]'),
            '"x" is not a repository of the Hub\n  --> build.toml:6: general.kernel-depends[0].repo-id',
        ),
        (
            ('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["-DTORCH_EXTENSION_NAME=x"]'),
            "cxx-flags has a macro that is the builder's to define: '-DTORCH_EXTENSION_NAME=x'",
        ),
        (
            ('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["-U", "Py_LIMITED_API"]'),
            "cxx-flags has a macro that is the builder's to define: '-UPy_LIMITED_API'\n"
            "  --> build.toml:15: kernel.one.cxx-flags[1]",
        ),
        (
            ('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["-fplugin=x.so"]'),
            "cxx-flags has a flag that brings in what no compiler lists: '-fplugin=x.so'\n"
            "  --> build.toml:15: kernel.one.cxx-flags[0]\n"
            "  hint: a change of it would not be seen: leave it to a script that CXX names",
        ),
        (
            ('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["$<$<CXX_COMPILER_ID:GNU>:-O2;-o>"]'),
            "cxx-flags has a flag that is the builder's to give: '-o'",
        ),
        (
            ('src = ["a.cpp", "g.cu"]', 'src = ["g.cu"]\ncuda-flags = ["-Xcompiler=@f"]'),
            "cuda-flags reads flags from a file: -Xcompiler=@f",
        ),
        (
            ('src = ["a.cpp", "g.cu"]', 'src = ["g.cu"]\ncuda-flags = ["--options-file", "f"]'),
            "cuda-flags reads flags from a file: --options-file",
        ),
        (
            ('src = ["a.cpp", "g.cu"]', 'src = ["g.cu"]\ncuda-flags = ["-ccbin", "g++"]'),
            "cuda-flags has a flag that is the builder's to give: '-ccbin'",
        ),
    ],
)
def test_a_contradiction_is_an_error_with_its_place(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    assert change[0] in GOOD
    errors, _ = load(tmp_path, GOOD.replace(*change, 1))
    assert any(error.startswith(problem) for error in errors), errors


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            GOOD.replace('"a.cpp", "a.h"', '"a.cpp", "a.h", "a.cpp", "a.h"'),
            "a.cpp is named twice: it is compiled once\n  --> build.toml:14: kernel.one.src[2]",
        ),
        (
            GOOD + THIRD + 'cxx-flags = ["-DX"]\n',
            "a.cpp is in [kernel.one] and [kernel.three]: it is compiled once, with the flags of all\n"
            "  --> build.toml:22: kernel.three.src[0]\n  hint: upstream does the same",
        ),
        (
            GOOD.replace('["b.cpp"]', '["b.cpp", "a.cpp"]\ncxx-flags = ["-DX"]')
            .replace('"cuda"]', "]")
            .split("[kernel.two")[0],
            "a.cpp is in [torch] and [kernel.one]: it is compiled once, with the flags of all",
        ),
        (
            GOOD.replace('"MIT"', '"Apache2"'),
            "the Hub knows no license Apache2\n  --> build.toml:5: general.license\n  hint: did you mean apache-2.0?",
        ),
        (
            GOOD.replace("org/my-kernel", "org/my_kernel"),
            "the repository is spelled my_kernel, the package my-kernel\n  --> build.toml:8: general.hub.repo-id",
        ),
        (
            GOOD.replace('"MIT"', '"MIT"\nkernel-depends = [{ repo-id = "o/x", revision = "main" }]'),
            "revision is not a full commit hash: main\n  --> build.toml:6: general.kernel-depends[0].revision",
        ),
        (
            GOOD.replace('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["-march=native"]'),
            "cxx-flags compiles for the machine that builds: -march=native\n"
            "  --> build.toml:15: kernel.one.cxx-flags[0]",
        ),
        (
            GOOD.replace(
                'src = ["a.cpp", "g.cu"]', 'src = ["g.cu"]\ncuda-flags = ["-gencode=arch=compute_90,code=sm_90"]'
            ),
            "cuda-flags chooses architectures, which have a key of their own: -gencode",
        ),
    ],
)
def test_what_upstream_builds_all_the_same_is_a_warning(tmp_path: Path, text: str, warning: str) -> None:
    errors, warnings = load(tmp_path, text)
    assert errors == []
    assert len(warnings) == 1
    assert warnings[0].startswith(warning), warnings


def test_an_expression_of_cmake_is_no_fault(tmp_path: Path) -> None:
    flags = '["$<$<CXX_COMPILER_ID:MSVC>:/arch:AVX2>", "$<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-mavx2>"]'
    assert load(tmp_path, GOOD.replace('src = ["a.cpp", "a.h"]', f'src = ["a.cpp"]\ncxx-flags = {flags}')) == ([], [])


def test_headers_and_sources_of_equal_flags_may_be_in_several_sections(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD + THIRD) == ([], [])


def test_a_source_of_two_sections_is_compiled_once_with_the_flags_of_both(tmp_path: Path) -> None:
    text = GOOD.replace('src = ["a.cpp", "a.h"]', 'src = ["a.cpp"]\ncxx-flags = ["-DONE"]')
    load(tmp_path, text + THIRD.replace("./a.cpp", "a.cpp") + 'cxx-flags = ["-DTHREE"]\n')
    for name in ("a.cpp", "a.h", "b.cpp"):
        (tmp_path / name).touch()
    (package,) = load_project(tmp_path).packages
    variant = Variant(Version((2, 13)), CPU, Platform("x86_64", "linux"))
    assert [(s.path, s.flags) for s in compiled_sources(package, variant, "g++")] == [
        ("b.cpp", ()),
        ("a.cpp", ("-DONE", "-DTHREE")),
    ]


WORKSPACE_TEXT = """\
[workspace]
schema = 1
general = { license = "MIT", backends = ["cpu"], version = 1 }
torch = { src = ["b.cpp"] }
backend.cpu.depends = []
[package.ab.kernel]
plain = { backend = "cpu", src = ["a.cpp"] }
fast = { backend = "cpu", isa = "avx2", src = ["f.cpp"] }
"""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ('"f.cpp"]', '"f.cpp"], cxx-flags = ["-O2", "-mavx512f"]'),
            "isa gives the flags of the instruction set, beside it stands -mavx512f\n"
            "  --> build.toml:8: package.ab.kernel.fast.cxx-flags[1]\n  hint: drop the flag, or the isa",
        ),
        (
            ('"f.cpp"', '"f.cpp", "a.cpp"'),
            "a.cpp is in [kernel.plain] and [kernel.fast], whose isa differ\n"
            "  --> build.toml:8: package.ab.kernel.fast.src[1]",
        ),
    ],
)
def test_an_isa_owns_its_flags_and_its_files(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    assert load(tmp_path, WORKSPACE_TEXT) == ([], [])
    errors, _ = load(tmp_path, WORKSPACE_TEXT.replace(*change))
    assert len(errors) == 1
    assert errors[0].startswith(problem)


def test_a_warning_is_printed_once_by_a_verb_and_stops_nothing(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "build.toml").write_text(GOOD.replace("MIT", "Apache2"))
    ran = cli("list-variants", "-C", tmp_path)
    assert ran.code == 0
    assert ran.err.count("warning: the Hub knows no license Apache2") == 1


def test_every_kind_of_fault_has_its_golden_text() -> None:
    assert found_in(BAD.read_text(encoding="utf-8")) == EXPECTED.read_text(encoding="utf-8")


KEYS = {
    "general": ("name", "version", "license", "backends", "hub", "cuda", "python-depends", "upstream", "universal"),
    "torch": ("src", "include", "pyext", "minver", "maxver", "stable-abi", "cxx-flags", "universal"),
    "torch-noarch": ("pyext", "cuda_capabilities", "rocm_archs"),
    "tvm-ffi": ("src", "include", "pyext"),
    "section": (
        *("backend", "src", "depends", "include", "cxx-flags", "isa", "language", "cuda-minver"),
        *("cuda-capabilities", "rocm-archs", "cuda-flags"),
    ),
    "hub": ("repo-id", "branch"),
}
WORDS = st.sampled_from(
    ["", "a", "cpu", "cuda", "rocm", "9.0a", "gfx942", "8.1", "2.10", "a.cpp", "-mavx2", "-D", "\x00", "../x"]
)
VALUES: st.SearchStrategy[object] = st.recursive(
    WORDS | st.integers() | st.booleans() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS["hub"]), inner, max_size=2),
    max_leaves=6,
)


def tables(kind: str) -> st.SearchStrategy[object]:
    return st.dictionaries(st.sampled_from(KEYS[kind]), VALUES, max_size=6) | VALUES


FILES = st.fixed_dictionaries(
    {},
    optional={
        **{name: tables(name) for name in ("general", "torch", "torch-noarch", "tvm-ffi")},
        "kernel": st.dictionaries(WORDS, tables("section"), max_size=3) | VALUES,
    },
)


@given(FILES, st.sampled_from([UPSTREAM, WORKSPACE]))
@settings(derandomize=True, database=None, deadline=None, max_examples=300)
def test_whatever_the_tables_hold_is_read_or_refused(table: dict[str, object], form: object) -> None:
    document = Document(Path("build.toml"), "", table)
    problems = Problems(document)
    package = read_package(table, problems, Path(), UPSTREAM if form is UPSTREAM else WORKSPACE)
    assert problems.found or package.name
    assert old_edition(table) in {None, 1, 2, 3}


def test_only_warnings_of_the_packages_that_were_asked_for_are_printed(tmp_path: Path, cli: Cli) -> None:
    text = WORKSPACE_TEXT.replace("[package.ab.kernel]", '[package.cd.general]\nlicense = "X1"\n[package.ab.kernel]')
    text = text.replace("[package.cd.general]", '[package.ab.general]\nlicense = "X2"\n[package.cd.general]')
    (tmp_path / "build.toml").write_text(text)
    of_one = {name: cli("list-variants", "-C", tmp_path, name).err for name in ("ab", "cd")}
    assert {name: ("X1" in err, "X2" in err) for name, err in of_one.items()} == {
        "ab": (False, True),
        "cd": (True, False),
    }
    ran = cli("list-variants", "-C", tmp_path)
    assert (ran.err.count("X1"), ran.err.count("X2")) == (1, 1)


def test_thousands_of_sections_of_one_source_are_checked_in_time(small: SmallProject) -> None:
    """It took 14 s: each section was held against every one before, and they were all named."""
    toml = small.root / "build.toml"
    section = '[kernel.k{0}]\nbackend = "cpu"\ndepends = ["torch"]\ncxx-flags = ["-DK{0}"]\nsrc = ["cpu/kernel.cpp"]\n'
    toml.write_text(toml.read_text() + "".join(section.format(n) for n in range(3000)))
    started = time.process_time()
    report = check_config(small.root)
    assert len(report.warnings) == 3000
    assert report.warnings[-1].what.startswith("cpu/kernel.cpp is in [kernel.cpu] and [kernel.k2999]: ")
    assert time.process_time() - started < 4
