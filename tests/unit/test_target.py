"""The words after a verb: which is the project's folder, which are packages, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.cli.options import HERE
from hubkernels.cli.target import find_target
from hubkernels.errors import InputError
from tests.conftest import Cli, SmallProject

WORKSPACE = """\
[workspace]
schema = 1
general = { edition = 5, license = "MIT", backends = ["cpu"], version = 1 }
[package.rms-norm]
general = { version = 1 }
torch = { src = [] }
[package.relu]
general = { version = 1 }
torch = { src = [] }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with a workspace in it, and two projects beside that are no members."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/build.toml").write_text(WORKSPACE, encoding="utf-8")
    for path, name in (("other", "my-kernel"), ("mine/relu", "relu-inside"), ("mine/gelu", "gelu")):
        SmallProject(tmp_path / path, name).write()
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path


def found(*words: str, given: Path = HERE) -> tuple[str, list[str], bool]:
    target = find_target(given, words)
    return str(target.project.root), [package.name for package in target.packages], target.named


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), (".", ["rms-norm", "relu"], False)),
        (("rms_norm",), (".", ["rms-norm"], True)),
        (("../other",), ("../other", ["my-kernel"], False)),
        (("../other", "my_kernel"), ("../other", ["my-kernel"], True)),
        (("my-kernel", "../other"), ("../other", ["my-kernel"], True)),
        (("relu",), (".", ["relu"], True)),  # a package here comes before a folder of that name
        (("./relu",), ("relu", ["relu-inside"], False)),
        (("gelu",), ("gelu", ["gelu"], False)),
        ((".",), (".", ["rms-norm", "relu"], False)),
    ],
)
def test_a_word_is_a_folder_or_a_package(words: tuple[str, ...], expected: tuple[str, list[str], bool]) -> None:
    assert found(*words) == expected


def test_a_project_named_by_option_gives_the_packages(here: Path) -> None:
    assert found("my-kernel", given=here / "other") == (str(here / "other"), ["my-kernel"], True)


def test_beside_no_build_toml_a_plain_word_is_a_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    assert found("other") == ("other", ["my-kernel"], False)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "given", "message"),
    [
        (("gelu", "../other"), HERE, "other/build.toml, and the folder gelu is another project"),
        (("./gelu", "../other"), HERE, "2 projects are named: ./gelu, ../other"),
        (("./gelu",), Path("../other"), "2 projects are named: --project ../other, ./gelu"),
        (("rms_nrom",), HERE, "no package rms_nrom in build.toml\n  hint: did you mean rms-norm?"),
        (("../nowhere",), HERE, "no build.toml in "),
    ],
)
def test_what_is_neither_or_too_much_is_refused(words: tuple[str, ...], given: Path, message: str) -> None:
    with pytest.raises(InputError) as refused:
        find_target(given, words)
    assert message in str(refused.value)


def test_a_folder_without_build_toml_is_told_from_a_typo(here: Path) -> None:
    (here / "mine/docs").mkdir()
    with pytest.raises(InputError) as refused:
        find_target(HERE, ["docs"])
    assert str(refused.value) == (
        f"docs is no package of {here}/mine/build.toml, and the folder docs has no build.toml"
    )


def test_a_missing_build_toml_is_told_with_the_folder_that_was_searched(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("build")
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: no build.toml in {tmp_path}")


@pytest.mark.parametrize("verb", ["list-variants", "clean", "build"])
def test_verbs_take_the_folder_where_upstreams_do(small: SmallProject, cli: Cli, verb: str) -> None:
    ran = cli(verb, small.root, "no-such-package")
    assert ran.code == 2
    assert f"no package no-such-package in {small.root}/build.toml" in ran.err


def test_list_variants_of_a_folder_for_this_platform(small: SmallProject, cli: Cli) -> None:
    every, here = (cli("list-variants", small.root, *options).out for options in ((), ("--arch",)))
    assert "-aarch64-linux" in every
    assert "-x86_64-linux" in every
    assert len({line.split()[1].rsplit("-", 2)[1] for line in here.splitlines()[1:]}) == 1
