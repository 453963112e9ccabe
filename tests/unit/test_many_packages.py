"""A workspace of 52 packages: nothing is read or written twice when there is nothing to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hubkernels.config import load_project
from hubkernels.host import files
from tests.conftest import Cli, write_noarch

FIXTURES = os.environ.get("HUBKERNELS_FIXTURES", "")
NO_FIXTURES = pytest.mark.skipif(
    not FIXTURES, reason="HUBKERNELS_FIXTURES names no folder with build-toml/*.toml: no real file is read"
)


def test_a_build_without_a_change_reads_no_source(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(52):
        write_noarch(tmp_path / f"kernel-{number:02}", f"kernel-{number:02}", ("cpu", "cuda"))
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    assert cli("build", "-C", tmp_path).code == 0
    monkeypatch.setattr(files, "hash_file", lambda path: pytest.fail(f"read {path} again"))
    assert cli("build", "-C", tmp_path).out.count("up to date") == 104


def test_all_of_them_are_listed_and_checked(tmp_path: Path, cli: Cli) -> None:
    for number in range(52):
        write_noarch(tmp_path / f"kernel-{number:02}", f"kernel-{number:02}", ("cpu", "cuda"))
    assert cli("list-variants", "-C", tmp_path).out.count("  build") == 104
    assert cli("check", "config", "-C", tmp_path).out.count("ok") == 52


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A folder of 52 projects of other people: their build.toml alone."""
    files = sorted((Path(FIXTURES) / "build-toml").glob("community__*.toml"))
    assert len(files) == 52
    for file in files:
        folder = tmp_path / file.stem.removeprefix("community__")
        folder.mkdir()
        (folder / "build.toml").write_bytes(file.read_bytes())
    return tmp_path


@NO_FIXTURES
def test_real_projects_load_by_pattern_and_without_a_file_that_lists_them(real: Path) -> None:
    names = [package.name for package in load_project(real).packages]
    (real / "build.toml").write_text('[workspace]\nschema = 1\nmembers = ["*"]\n')
    assert len(set(names)) == 52
    assert [package.name for package in load_project(real).packages] == names


@NO_FIXTURES
def test_every_variant_of_real_projects_is_built_or_has_a_reason(real: Path, cli: Cli) -> None:
    ran = cli("list-variants", "-C", real, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert len(found) == 52
    assert all(len(each["accepted"]) + len(each["rejected"]) > 4 for each in found.values())
    assert all(reasons for each in found.values() for reasons in each["rejected"].values())
    backends = ("cpu", "cuda", "rocm", "xpu", "metal")
    assert found["einops"]["accepted"] == [f"torch-{name}" for name in backends]


@NO_FIXTURES
def test_of_real_projects_nothing_is_wrong_but_the_files_that_are_not_here(real: Path, cli: Cli) -> None:
    ran = cli("check", "config", "-C", real, "--json")
    assert ran.code == 2
    verdicts = json.loads(ran.out)
    assert len(verdicts) == 52
    what = {problem["what"] for verdict in verdicts for problem in verdict["problems"]}
    absent = ("source file does not exist: ", "include folder does not exist: ")
    assert [w for w in what if not w.startswith(absent) and "has no Python package: " not in w] == []


@NO_FIXTURES
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_of_real_projects_those_that_a_change_affects_are_looked_at(
    real: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_git = tmp_path_factory.mktemp("only-git")
    (only_git / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(only_git))  # a machine without a compiler
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "1")):
        subprocess.run(["git", "-C", str(real), *words], check=True)
    for name in ("einops", "relu"):
        with (real / name / "build.toml").open("a") as file:
            file.write("# a word\n")
    assert set(json.loads(cli("list-variants", "-C", real, "--since", "HEAD", "--json").out)) == {"einops", "relu"}
    verdicts = json.loads(cli("check", "config", "-C", real, "--since", "HEAD", "--json").out)
    assert {verdict["package"] for verdict in verdicts} == {"einops", "relu"}
