"""What a user sees of an error: usage, JSON, debug, no colours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.cli.debug import facts
from tests.conftest import Cli, SmallProject, environment


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("biuld", "error: no such command 'biuld'\n  hint: did you mean build?\n"),
        ("build --varian x", "error: no such option: --varian\n  hint: did you mean --variant?\n"),
        ("build --jbos=3", "error: no such option: --jbos\n  hint: did you mean --jobs?\n"),
        ("bench rnu", "error: no such command 'rnu'\n  hint: did you mean run?\n"),
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


def test_the_groups_help_is_no_error_message(cli: Cli) -> None:
    ran = cli("bench")
    assert "Usage: kernel-builder bench" in ran.out + ran.err
    assert "error:" not in ran.err
