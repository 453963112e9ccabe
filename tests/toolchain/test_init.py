"""`kernel-builder init`: the project that it writes builds, loads and passes its own tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubkernels.cli import main
from hubkernels.config import load_project
from hubkernels.errors import InputError
from hubkernels.init.scaffold import TAKEN, TEMPLATE, parse_start, render

NAME = "org/a-relu2"  # sorts before the template's other words, and capitalizes to ARelu2


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("init") / "new"
    assert main(["init", str(folder), "--name", NAME]) == 0
    return folder


def test_the_new_project_builds_and_passes_its_own_tests_unchanged(project: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("kernels")
    assert main(["build", "--project", str(project)]) == 0
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert " passed" in tests.stdout


def test_the_stock_client_reads_its_build_toml(project: Path) -> None:
    client = pytest.importorskip("kernels._rust")
    assert [str(backend) for backend in client.Build.open(str(project)).general.backends] == ["cpu"]


def test_every_word_of_the_template_is_replaced(project: Path) -> None:
    files = [path for path in project.rglob("*") if path.is_file() and "build" not in path.relative_to(project).parts]
    left = ("my-kernel", "my_kernel", "MyKernel", "owner/")
    assert [f for f in files if any(word in str(f) or word in f.read_text(encoding="utf-8") for word in left)] == []
    assert load_project(project).packages[0].repo_id == NAME


def test_files_in_the_way_are_listed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "build.toml").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), "--name", "relu2"]) == 2
    assert "already has\n  - build.toml\n" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["build.toml"]
    assert (tmp_path / "build.toml").read_text(encoding="utf-8") == "mine"


def test_overwrite_replaces_files_that_are_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text("mine", encoding="utf-8")
    assert main(["init", str(tmp_path), "--name", "relu2", "--overwrite", "--license", "MIT"]) == 0
    assert load_project(tmp_path).packages[0].license == "MIT"


def test_the_name_of_the_folder_is_the_default(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "my_norm")]) == 0
    package = load_project(tmp_path / "my_norm").packages[0]
    assert (package.name, package.repo_id) == ("my-norm", None)


def test_a_word_of_the_template_inside_the_new_name_is_not_replaced_again() -> None:
    files = render(parse_start("owner/amy-kernel", "Apache-2.0"))
    assert 'hub.repo-id = "owner/amy-kernel"' in files["build.toml"]
    assert "torch-ext/amy_kernel/__init__.py" in files


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("My_Kernel", "lower-case letters, digits and dashes"),
        ("2d", "a letter first"),
        ("relu-", "no dash last"),
        ("../relu", "not an owner"),
        ("lambda", "means something else in Python"),
        ("layers", "means something else in Python"),
        ("nn", "means something else in Python"),
        ("tensor", "means something else in Python"),
        ("add-op-namespace-prefix", "means something else in Python"),
    ],
)
def test_a_bad_name_is_refused_with_the_rule_it_breaks(name: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        parse_start(name, "MIT")


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_taken_names_are_those_that_the_template_gives_to_something_else() -> None:
    torch = pytest.importorskip("torch", reason="the namespace of ops is torch's")
    python = {path: ast.parse(path.read_text(encoding="utf-8")) for path in TEMPLATE.rglob("*.py")}
    modules = {path.stem for path in python if "torch-ext" in path.parts and path.stem != "__init__"}
    ops = set(re.findall(r'm\.def\("(\w+)\(', (TEMPLATE / "torch-ext/torch_binding.cpp").read_text(encoding="utf-8")))
    attributes = {name for name in dir(torch._ops._OpNamespace("any")) if not name.startswith("_")}
    found = {name for tree in python.values() for name in imported(tree)} | modules | ops | attributes
    assert found - {"my_kernel"} == TAKEN


def test_a_license_that_would_break_the_toml_is_refused() -> None:
    with pytest.raises(InputError, match="SPDX"):
        parse_start("relu", 'MIT"\n')


def test_a_backend_without_a_template_is_refused_with_those_that_have_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "nowhere", "--backends", "cuda"]) == 2
    assert "no template for backend cuda\n  hint: it has cpu" in capsys.readouterr().err
    assert not Path("nowhere").exists()
