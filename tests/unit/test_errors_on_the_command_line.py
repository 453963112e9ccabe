"""What a user sees of an error: usage, JSON, debug, no colours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.cli.debug import facts
from tests.conftest import Cli, SmallProject, environment, write_noarch


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("biuld", "error: no such command 'biuld'\n  hint: did you mean build?\n"),
        ("build --varian x", "error: no such option: --varian\n  hint: did you mean --variant?\n"),
        ("build --jbos=3", "error: no such option: --jbos\n  hint: did you mean --jobs?\n"),
        ("bench rnu", "error: no such command 'rnu'\n  hint: did you mean run?\n"),
        (
            "explain --jobs 3",
            "error: no such option: --jobs\n  hint: `kernel-builder explain --help` tells what there is\n",
        ),
        ("build --zzz", "error: no such option: --zzz\n  hint: `kernel-builder build --help` tells what there is\n"),
    ],
)
def test_a_usage_error_names_the_nearest(cli: Cli, line: str, message: str) -> None:
    ran = cli(*line.split())
    assert (ran.code, ran.out, ran.err) == (2, "", message)


@pytest.mark.parametrize("line", ["build --jobs x", "build --jobs 0", "build --jobs", "build --memory much"])
def test_a_wrong_value_names_the_option(cli: Cli, line: str) -> None:
    ran = cli(*line.split())
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert line.split()[1] in ran.err


def test_with_json_an_error_is_the_last_line_of_standard_error(tmp_path: Path, cli: Cli) -> None:
    ran = cli("build", "--json", "--project", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    found = json.loads(ran.err.splitlines()[-1])
    assert found["exit-code"] == 2
    assert found["problems"][0]["what"] == f"no build.toml in {tmp_path}"
    assert found["problems"][0]["hint"]


def test_with_json_a_usage_error_is_json_too(cli: Cli) -> None:
    ran = cli("build", "--json", "--varian", "x")
    (problem,) = json.loads(ran.err)["problems"]
    assert problem == {"what": "no such option: --varian", "hint": "did you mean --variant?"}


def test_debug_adds_the_traceback_and_the_environment(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    ran = cli("build", "--debug", "--project", tmp_path)
    assert ran.code == 2
    assert "Traceback (most recent call last):" in ran.err
    assert "$CXX=no-such-compiler" in ran.err
    assert "hf_secret" not in ran.err
    assert ran.err.splitlines()[-2] == f"error: no build.toml in {tmp_path}"
    assert "Traceback" not in cli("build", "--project", tmp_path).err


def test_only_variables_that_a_build_may_depend_on_are_told() -> None:
    given = {"PATH": "/bin", "CXX": "g++", "LD_PRELOAD": "x", "HF_TOKEN": "t", "AWS_SECRET": "t", "CCACHE_DIR": "/c"}
    told = {name for name in facts(given) if name.startswith("$")}
    assert told == {"$PATH", "$CXX", "$LD_PRELOAD", "$CCACHE_DIR"}


@pytest.mark.parametrize("line", [["--help"], ["build", "--help"], ["biuld"], ["list-variants"]])
def test_nothing_is_coloured(small: SmallProject, line: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hubkernels.cli", *line],
        cwd=small.root,
        env=environment(NO_COLOR="1", FORCE_COLOR="1", CLICOLOR_FORCE="1", TERM="xterm-256color"),
        capture_output=True,
        check=False,
    )
    assert done.stdout + done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_the_help_tells_each_verb_to_its_end(cli: Cli) -> None:
    assert "..." not in cli("--help").out.partition("Commands:")[2]


def test_the_groups_help_is_no_error_message(cli: Cli) -> None:
    ran = cli("bench")
    assert "Usage: kernel-builder bench" in ran.out + ran.err
    assert "error:" not in ran.err


def test_a_word_where_no_project_is_says_that_it_is_no_folder_either(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    ran = cli("build", "nosuch", "empty")
    assert ran.code == 2
    assert f"error: nosuch is no folder, and there is no build.toml in {tmp_path}\n  hint: name the folder" in ran.err
    assert f"error: the folder empty has no build.toml, and there is no build.toml in {tmp_path}\n" in ran.err


def test_a_package_for_backends_without_a_toolchain_says_so(small: SmallProject, cli: Cli) -> None:
    text = (small.root / "build.toml").read_text().partition("[kernel")[0]
    (small.root / "build.toml").write_text(text.replace('["cpu"]', '["metal"]'))
    ran = cli("build", small.root)
    assert ran.code == 3
    assert "this hubkernels has no metal toolchain (it has cpu, cuda)" in ran.err
    assert "does not name" not in ran.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "init My_Kernel!",
            "the folder's name, My_Kernel!, is no package name\n  hint: --name: two or more lower-case letters",
        ),
        (
            "init --backends cpu cuda x",
            "backend x\n  hint: if it is the folder, put it first, or separate the backends with commas",
        ),
        ("init --backends metal", "backend metal\n  hint: it has cpu, cuda, rocm, xpu; all stands for them"),
        ("build -v", "no such option: -v\n  hint: did you mean --variant or --verbose?"),
        ("completions tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish', 'powershell'\n"),
        ("create-pyproject ../x", "the folder of the new files comes second: `kernel-builder create-pyproject . ../x`"),
        ("list-variants --since HEAD", "hint: what changed since a commit is known in a git checkout alone"),
    ],
)
def test_the_way_out_is_named(
    small: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    monkeypatch.chdir(small.root)
    ran = cli(*line.split())
    assert (ran.code, message in ran.err) == (2, True), ran.err


def test_python_alone_has_no_cmake_tree_and_no_library_for_check_abi(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path, "my-table", ("cpu",))
    assert "hint: it compiles nothing: `kernel-builder build`, then" in cli("create-pyproject", tmp_path).err
    assert cli("build", tmp_path).code == 0
    ran = cli("check", "abi", tmp_path)
    assert (ran.code, ran.out.split()) == (0, ["-", "abi", "my-table", "torch-cpu:", "no", "library"])


def test_backends_are_listed_with_commas_too(tmp_path: Path, cli: Cli) -> None:
    assert cli("init", tmp_path / "new", "--backends", "xpu,cpu").code == 0
    assert 'backends = ["cpu", "xpu"]' in (tmp_path / "new/build.toml").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("init l --name my-kernel", "  - l is no folder\n"),
        ("init l/ab", "cannot write l/ab/"),
        ("export p l --force", "l is no earlier export of my-table"),
        ("clean -C p", "p/build is a link to "),
        ("build -C p", "p/build is a link to "),
        ("check config -C l", "Too many levels of symbolic links"),
        ("build nothing -C l", "there is no build.toml in "),
    ],
)
def test_a_link_that_leads_to_itself_is_told(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    """Path.resolve raises what is no OSError, before Python 3.13."""
    monkeypatch.chdir(tmp_path)
    write_noarch(Path("p"), "my-table")
    Path("l").symlink_to("l")
    if "-C p" in line:
        Path("p/build").symlink_to("build")
    ran = cli(*line.split())
    assert ran.code in {2, 3}
    assert message in ran.err
