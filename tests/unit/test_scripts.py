"""The shell scripts: what they refuse, and what they say is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = ["scripts/quickstart", "scripts/test"]

pytestmark = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="this machine has no /bin/bash")


def bash(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run bash code after the scripts' common part."""
    return subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f"source scripts/lib.sh; {code}"],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def no_programs(tmp_path: Path) -> str:
    """A PATH with the few programs that the scripts call, but no Python and no compiler."""
    for name in ("id", "mkdir"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    return str(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unknown_option_is_refused_with_the_usage(script: str) -> None:
    done = bash(f"{script} --wat")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert done.stderr.endswith("error: unknown option: --wat\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_is_printed_and_nothing_is_done(script: str) -> None:
    done = bash(f"{script} --help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {script}")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_python_that_does_not_run_is_refused(script: str) -> None:
    done = bash(f"{script} --python /nowhere/python3")
    assert (done.returncode, done.stderr) == (2, "error: /nowhere/python3 is no Python >= 3.10 that runs\n")


def test_a_python_that_is_named_is_taken() -> None:
    assert bash(f"find_python {sys.executable}").stdout.strip() == sys.executable


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path, no_programs: str) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python3.11").symlink_to(sys.executable)
    assert bash("find_python", PATH=no_programs).stdout.strip() == f"{no_programs}/python3.11"


def test_an_empty_machine_lacks_python_its_headers_and_a_compiler(no_programs: str) -> None:
    done = bash('unset CXX; missing_packages "$(find_python)"', PATH=no_programs)
    assert done.stdout.split() == ["python3", "python3-venv", "python3-dev", "g++"]


def test_missing_packages_are_one_apt_line_and_exit_code_3_without_root(no_programs: str) -> None:
    done = bash("id() { echo 1000; }; unset CXX; need_system", PATH=no_programs)
    line = "apt-get install -y --no-install-recommends python3 python3-venv python3-dev g++"
    assert (done.returncode, done.stdout) == (3, f"missing: {line}\n")


def test_an_environment_is_made_again_when_its_stamp_differs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "stamp").write_text("pyproject one\n", encoding="utf-8")
    assert bash(f"is_installed {tmp_path} 'pyproject one'").returncode == 0
    assert bash(f"is_installed {tmp_path} 'pyproject two'").returncode != 0
