"""`kernel-builder explain --config`: the edition-5 text of a package, and where each line comes from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hubkernels.cli import main
from hubkernels.config import load_project
from hubkernels.config.explain import edition5_text
from hubkernels.model.project import Package
from tests.conftest import Cli, write_noarch

REPOSITORY = Path(__file__).parents[2]

WORKSPACE = """\
[workspace]
schema = 1
general = { edition = 5, license = "MIT", backends = ["cpu", "cuda"] }
torch = { stable-abi = { cpu = "2.10", cuda = "2.11" }, include = ["shared"] }
members = ["member"]

[workspace.backend]
cpu = { depends = ["torch"] }
cuda = { depends = ["torch"], cuda-capabilities = ["9.0"] }

[package.two-words]
torch = { src = ["binding.cpp"] }
[package.two-words.general]
version = 3
upstream = "https://example.org/a\\"b\\"\\u007f"
hub = { repo-id = "org/two-words", branch = "v3" }
kernel-depends = [{ repo-id = "org/other", version = 1 }]
cuda = { minver = "12.6", python-depends = ["nvidia-cutlass-dsl"] }
[package.two-words.kernel.cpu]
backend = "cpu"
src = [
    "cpu.cpp",
    "cpu.h",
]
[package.two-words.kernel.gpu]
backend = "cuda"
depends = []
src = ["gpu.cu"]
"""

EXTENDED = """\
[workspace]
schema = 1
general = { license = "MIT", backends = ["cpu"] }
torch = { src = [] }
[package.norm]
parity = ["cases.py"]
general = { version = 1 }
[package.norm.kernel]
fast = { backend = "cpu", isa = "avx2", cxx-flags = ["-O2"], depends = [], src = ["fast.cpp"] }
"""

MEMBER = """\
[general]
name = "member"
version = 1
license = "MIT"
backends = ["cpu"]
[torch-noarch]
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write(tmp_path / "member", MEMBER)
    return write(tmp_path, WORKSPACE)


def explained(root: Path, name: str) -> tuple[Package, str]:
    package = next(package for package in load_project(root).packages if package.name == name)
    return package, edition5_text(package, root)


def line_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_the_text_of_a_workspace_package_reads_back_as_the_same_package(workspace: Path) -> None:
    package, text = explained(workspace, "two-words")
    (again,) = load_project(write(workspace / "again", text)).packages
    assert again == dataclasses.replace(
        package, root=workspace / "again", python_source="torch-ext/two_words", home=()
    )  # the three that depend on where the file is


def test_the_text_of_a_member_reads_back_as_the_same_package(workspace: Path) -> None:
    package, text = explained(workspace, "member")
    (again,) = load_project(write(workspace / "again", text)).packages
    assert again == dataclasses.replace(package, root=workspace / "again")


def test_the_text_of_an_edition_5_file_is_the_same_again(workspace: Path) -> None:
    _, text = explained(workspace, "two-words")
    _, again = explained(write(workspace / "again", text), "two-words")
    strip = [line.partition("  # ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert [line.partition("  # ")[0] for line in again.splitlines()] == strip[1:]


def test_every_key_names_the_line_that_it_comes_from(workspace: Path) -> None:
    _, text = explained(workspace, "two-words")
    origins = {
        "license": "build.toml:3 workspace.general.license",
        "name": "build.toml:11 package.two-words",
        "version": "build.toml:14 package.two-words.general.version",
        "include": "build.toml:4 workspace.torch.include",
        'cpu = "2.10"': "build.toml:4 workspace.torch.stable-abi.cpu",
        "branch": "build.toml:16 package.two-words.general.hub.branch",
        "cuda-capabilities": "build.toml:9 workspace.backend.cuda.cuda-capabilities",
        "[kernel.gpu]": "build.toml:25 package.two-words.kernel.gpu",
        "depends = []": "build.toml:27 package.two-words.kernel.gpu.depends",
    }
    assert {start: line_of(text, start).partition("  # ")[2] for start in origins} == origins
    keys = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all("  # build.toml:" in line for line in keys)


def test_a_member_names_its_own_file(workspace: Path) -> None:
    _, text = explained(workspace, "member")
    assert line_of(text, "name") == 'name = "member"  # member/build.toml:2 general.name'


def test_isa_becomes_flags_before_the_sections_own(tmp_path: Path) -> None:
    package, text = explained(write(tmp_path, EXTENDED), "norm")
    assert line_of(text, "cxx-flags") == (
        'cxx-flags = ["-mavx2", "-mfma", "-mf16c", "-O2"]  # isa = "avx2", '
        "build.toml:9 package.norm.kernel.fast.isa and build.toml:9 package.norm.kernel.fast.cxx-flags"
    )
    (again,) = load_project(write(tmp_path / "again", text)).packages
    assert again.sections[0].cxx_flags == ("-mavx2", "-mfma", "-mf16c", *package.sections[0].cxx_flags)


def test_parity_and_moved_python_files_become_comments(tmp_path: Path) -> None:
    _, text = explained(write(tmp_path, EXTENDED), "norm")
    assert text.startswith(
        "# Python files: torch-ext/norm/norm, where an edition-5 file has torch-ext/norm\n"
        '# parity = ["cases.py"]  build.toml:6 package.norm.parity\n'
    )


def test_keys_are_quoted_as_toml_wants_them(tmp_path: Path) -> None:
    text = MEMBER.replace(
        "[torch-noarch]", '[torch]\n[kernel."a\\"b\\\\\\u007f"]\nbackend = "cpu"\ndepends = []\nsrc = []'
    )
    package, text = explained(write(tmp_path, text), "member")
    (again,) = load_project(write(tmp_path / "again", text)).packages
    assert [section.name for section in again.sections] == ['a"b\\\x7f'] == [s.name for s in package.sections]


def test_a_file_without_an_edition_gets_one(tmp_path: Path) -> None:
    _, text = explained(write(tmp_path, MEMBER), "member")
    assert line_of(text, "edition").startswith("edition = 5  # the file says none")


@pytest.mark.parametrize("name", ["two-words", "member"])
def test_the_stock_client_accepts_the_text(workspace: Path, name: str) -> None:
    client = pytest.importorskip("kernels._rust")
    _, text = explained(workspace, name)
    client.Build.open(str(write(workspace / "again", text)))


def test_the_stock_client_accepts_every_package_of_this_repository(tmp_path: Path) -> None:
    client = pytest.importorskip("kernels._rust")
    project = load_project(REPOSITORY)
    for package in project.packages:
        client.Build.open(str(write(tmp_path / package.name, edition5_text(package, project.root))))


def test_the_verb_prints_one_text_a_package(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--config", "-C", str(workspace), "two_words"]) == 0
    assert capsys.readouterr().out == explained(workspace, "two-words")[1]


def test_backends_that_a_package_does_not_declare_are_one_line_unless_they_are_asked_about(
    tmp_path: Path, cli: Cli
) -> None:
    write_noarch(tmp_path, "my-table", ("cpu",))
    told = [line.split(maxsplit=2) for line in cli("explain", tmp_path).out.splitlines()]
    assert [line for line in told if line[0] == "not"] == [
        ["not", "declared", "cuda, rocm, xpu, metal, neuron, tpu, cann"]
    ]
    asked = cli("explain", tmp_path, "--variant", "torch-cuda").out
    assert "not built  torch-cuda: general.backends does not name cuda" in asked
    (found,) = json.loads(cli("explain", tmp_path, "--json").out)
    assert len(found["rejected"]) == 7
