"""`check config`: what needs the files beside build.toml, of all packages in one run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from hubkernels.build.sources import compiled_sources, refuse_missing
from hubkernels.check.config import check_config
from hubkernels.config import load_project
from hubkernels.errors import InputError
from tests.conftest import Cli, SmallProject, write_noarch
from tests.unit.test_config import CPU_VARIANT

UPSTREAM = os.environ.get("HUBKERNELS_UPSTREAM", "")
MEMBERS = """\
[workspace]
schema = 1
general = { license = "MIT", backends = ["cpu"], version = 1 }
torch = { src = ["b.cpp"], include = ["inc"] }
members = ["member"]
backend.cpu.depends = []
[package.ab]
parity = ["cases/ab.py"]
[package.ab.kernel]
cpu = { backend = "cpu", src = ["cpu/a.cpp"] }
"""
MEMBER = """\
[general]
name = "member"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]
[torch]
minver = "9.9"
src = ["own.cpp"]
"""


def test_a_whole_project_has_neither_errors_nor_warnings(small: SmallProject, cli: Cli) -> None:
    ran = cli("check", "config", "-C", small.root)
    assert (ran.code, ran.out, ran.err) == (0, "ok  config  my-kernel  build.toml and the files that it names\n", "")


@pytest.mark.parametrize(("named", "hint"), [("/nothing/x.cpp", None), ("../beside/kernl.cpp", "../beside/kernel.cpp")])
def test_a_missing_file_elsewhere_is_named_as_it_is_spelled(tmp_path: Path, cli: Cli, named: str, hint: str) -> None:
    small = SmallProject(tmp_path / "project", "my-kernel").write()
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/kernel.cpp").touch()
    toml = small.root / "build.toml"
    toml.write_text(toml.read_text().replace("cpu/kernel.cpp", named))
    what = f"source file does not exist: {named}"
    ran = cli("check", "config", "-C", small.root)
    assert what in ran.err
    assert (f"did you mean {hint}?" in ran.err) == (hint is not None)
    (package,) = load_project(small.root).packages
    with pytest.raises(InputError) as told:
        refuse_missing(package, {("kernel", "cpu"): (named,)})
    assert [(p.what, p.hint) for p in told.value.problems] == [(what, f"did you mean {hint}?" if hint else None)]


def test_files_that_do_not_exist_are_found_in_every_package_in_one_run(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "member").mkdir()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/aa.cpp").touch()
    (tmp_path / "build.toml").write_text(MEMBERS)
    (tmp_path / "member/build.toml").write_text(MEMBER)
    report = check_config(tmp_path)
    assert [(p.what, (p.where or "").replace(f"{tmp_path}/", ""), p.hint) for p in report.errors] == [
        ("source file does not exist: b.cpp", "build.toml:4: workspace.torch.src[0]", None),
        (
            "source file does not exist: cpu/a.cpp",
            "build.toml:10: package.ab.kernel.cpu.src[0]",
            "did you mean cpu/aa.cpp?",
        ),
        ("case file does not exist: cases/ab.py", "build.toml:8: package.ab.parity[0]", None),
        (
            "ab has no Python package: torch-ext/ab/ab/__init__.py does not exist",
            "build.toml",
            "the client imports this file; `kernel-builder init` writes one to start from",
        ),
        ("source file does not exist: own.cpp", "member/build.toml:9: torch.src[0]", None),
        (
            "member has no Python package: torch-ext/member/__init__.py does not exist",
            "member/build.toml",
            "the client imports this file; `kernel-builder init` writes one to start from",
        ),
    ]
    assert [p.what for p in report.warnings] == [
        "include folder does not exist: inc",
        "no variant for cpu is left: torch.minver is 9.9",
    ]
    ran = cli("check", "config", "-C", tmp_path, "--json")
    assert ran.code == 2
    found = json.loads(ran.out)
    assert [verdict["package"] for verdict in found] == ["ab", "member"]
    assert [len(verdict["problems"]) for verdict in found] == [4, 2]
    assert found[0]["problems"][0] == {
        "what": "source file does not exist: b.cpp",
        "where": f"{tmp_path}/build.toml:4: workspace.torch.src[0]",
    }


def test_limits_that_leave_no_variant_are_a_warning(small: SmallProject) -> None:
    path = small.root / "build.toml"
    path.write_text(path.read_text().replace('stable-abi = "2.10"', 'minver = "9.9"'))
    (warning,) = check_config(small.root).warnings
    assert (warning.what, warning.where) == (
        "no variant for cpu is left: torch.minver is 9.9",
        f"{path}:6: general.backends",
    )


def test_a_stable_abi_that_no_torch_has_is_a_warning(small: SmallProject) -> None:
    path = small.root / "build.toml"
    path.write_text(path.read_text().replace('stable-abi = "2.10"', 'stable-abi = "9.9"'))
    (warning,) = check_config(small.root).warnings
    assert warning.what.startswith("stable-abi 9.9 is newer than every known torch for cpu, the newest is 2.")
    assert warning.where == f"{path}:10: torch.stable-abi"


@pytest.mark.parametrize("words", [("build",), ("check", "config")])
def test_a_warning_is_told_once_and_ends_nothing(tmp_path: Path, cli: Cli, words: tuple[str, ...]) -> None:
    path = write_noarch(tmp_path, "ab") / "build.toml"
    path.write_text(path.read_text().replace("Apache-2.0", "Apache2"))
    ran = cli(*words, "-C", tmp_path)
    assert (ran.code, ran.err.count("warning: the Hub knows no license Apache2")) == (0, 1)
    assert (tmp_path / "build/ab/torch-cpu").is_dir() == (words == ("build",))


@pytest.mark.skipif(not UPSTREAM, reason="HUBKERNELS_UPSTREAM names no checkout of huggingface/kernels")
@pytest.mark.parametrize(
    "project", sorted(Path(UPSTREAM, "examples/kernels").glob("*/build.toml")), ids=lambda p: p.parent.name
)
def test_upstreams_examples_have_no_errors_but_the_one_that_is_to_be_refused(project: Path) -> None:
    report = check_config(project.parent)
    expected = 2 if project.parent.name == "relu-invalid-capability" else 0
    assert len(report.errors) == expected, [str(error) for error in report.errors]


def test_a_backend_that_no_section_is_for_is_said_and_stays(small: SmallProject, cli: Cli) -> None:
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('["cpu"]', '["cpu", "cuda", "metal"]'))
    what = "only torch.src is compiled, no kernel section is for it"
    report = check_config(small.root)
    assert not report.errors
    assert [each.what for each in report.warnings] == [f"{name} is declared, but {what}" for name in ("cuda", "metal")]
    assert {each.where for each in report.warnings} == {f"{small.root / 'build.toml'}:6: general.backends"}
    assert f"note: cuda: {what}" in cli("list-variants", small.root).out
    # Nobody forgot a section where there is none at all: torch.src serves every backend.
    (small.root / "build.toml").write_text(text.partition("[kernel")[0].replace('["cpu"]', '["cpu", "metal"]'))
    assert not check_config(small.root).warnings


@pytest.mark.parametrize("version", ["1.13", "2.8"])
def test_a_release_of_torch_without_a_stable_abi_is_an_error(small: SmallProject, version: str) -> None:
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('"2.10"', f'"{version}"'))
    (error,) = check_config(small.root).errors
    assert error.what == f"torch has no stable ABI before 2.9, found {version}"
    assert error.where == f"{small.root / 'build.toml'}:10: torch.stable-abi"
    (small.root / "build.toml").write_text(text.replace('"2.10"', '"2.9"'))
    assert not check_config(small.root).errors


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('include = ["include"]', 'include = ["include", "x.hmap"]', "kernel.cpu.include[1]"),
        ('include = ["include"]', 'include = ["include"]\ncxx-flags = ["-Ix.hmap/"]', "kernel.cpu.cxx-flags"),
    ],
)
def test_a_file_where_headers_are_looked_for_is_refused(small: SmallProject, old: str, new: str, place: str) -> None:
    """To clang it may be a map to headers anywhere, and no list of what it reads names it."""
    toml = small.root / "build.toml"
    assert old in toml.read_text()
    toml.write_text(toml.read_text().replace(old, new))
    (package,) = load_project(small.root).packages
    compiled_sources(package, CPU_VARIANT, "clang")  # a folder that is not there is no error
    (small.root / "x.hmap").write_bytes(b"pamh")
    with pytest.raises(InputError, match=r"headers are looked for in folders, and this is a file: x\.hmap") as told:
        compiled_sources(package, CPU_VARIANT, "clang")
    assert (told.value.problems[0].where or "").endswith(place)
    assert check_config(small.root).errors == told.value.problems


def test_a_source_that_no_src_names_is_told_with_its_section(small: SmallProject) -> None:
    cpu = small.root / "cpu"
    (cpu / "kernel.cpp").write_text('#include "part.cpp"\n')
    for name in ("part.cpp", "notes.md", "forgotten.cpp", "near.h", "other.cu", "else.cpp"):
        (cpu / name).touch()
    toml = small.root / "build.toml"
    other = '\n[kernel.gpu]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["csrc/a.cu", "cpu/else.cpp"]\n'
    toml.write_text(toml.read_text().replace('["cpu"]', '["cpu", "cuda"]') + other)
    (small.root / "csrc").mkdir()
    (small.root / "csrc/a.cu").touch()
    told = check_config(small.root).warnings
    assert [(each.what, each.where and each.where.rpartition(" ")[2]) for each in told] == [
        ("no src names cpu/forgotten.cpp, beside these sources: not compiled", "kernel.cpu.src"),
        ("no src names cpu/other.cu, beside these sources: not compiled", "kernel.gpu.src"),
    ]
    for number in range(4):
        (cpu / f"{number}.cpp").touch()
    assert (
        check_config(small.root).warnings[0].what.startswith("no src names cpu/0.cpp, cpu/1.cpp, cpu/2.cpp and 2 more")
    )
    (cpu / "kernel.cpp").write_text("#include PART\n")  # which file that is, the text does not tell
    assert not check_config(small.root).warnings


def test_a_source_that_another_package_of_the_file_names_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    for name in ("a.cpp", "b.cpp"):
        (tmp_path / "cpu" / name).touch()
    text = (
        MEMBERS.replace('members = ["member"]\n', "")
        .replace('src = ["b.cpp"]', "src = []")
        .split("parity", maxsplit=1)[0]
    )
    one = '[package.{0}.kernel]\ncpu = {{ backend = "cpu", src = ["cpu/{1}.cpp"] }}\n'
    two = f"{text}{one.format('ab', 'a')}[package.cd]\n{one.format('cd', 'b')}"
    (tmp_path / "build.toml").write_text(two)
    assert not [each for each in check_config(tmp_path).warnings if "no src" in each.what]
    (tmp_path / "build.toml").write_text(f"{text}{one.format('ab', 'a')}")
    assert [each.what for each in check_config(tmp_path).warnings if "no src" in each.what] == [
        "no src names cpu/b.cpp, beside these sources: not compiled"
    ]


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("cpu", "cpu is a folder\n  --> build.toml:16: kernel.cpu.src[0]\n  hint: name its files"),
        (
            "cpu/*.cpp",
            "src takes no patterns: cpu/*.cpp\n  --> build.toml:16: kernel.cpu.src[0]\n  hint: name the files",
        ),
    ],
)
def test_folders_and_patterns_are_no_sources(small: SmallProject, named: str, told: str) -> None:
    toml = small.root / "build.toml"
    toml.write_text(toml.read_text().replace("cpu/kernel.cpp", named))
    assert [str(error).replace(f"{small.root}/", "") for error in check_config(small.root).errors] == [told]
    (package,) = load_project(small.root).packages
    with pytest.raises(InputError, match=re.escape(told.partition("\n")[0])):
        refuse_missing(package, {("kernel", "cpu"): (named,)})
