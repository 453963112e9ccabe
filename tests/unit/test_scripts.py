"""The shell scripts: what they refuse, and what they say is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = ["scripts/quickstart", "scripts/readme", "scripts/test"]

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
def active(tmp_path: Path) -> Path:
    """An environment, as the scripts make them but for pip."""
    venv.create(tmp_path / "env")
    return tmp_path / "env"


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
    assert bash(f"find_python .venv {sys.executable}").stdout.strip() == sys.executable


def test_inside_the_environment_to_be_made_the_interpreter_behind_it_is_taken(active: Path) -> None:
    """`source .venv/bin/activate && scripts/quickstart` removed the interpreter that it was about to use."""
    for name in ("", f"{active}/bin/python"):
        done = bash(f"find_python {active} {name}", PATH=f"{active}/bin:{os.environ['PATH']}")
        assert Path(done.stdout.strip()).is_file()
        assert active not in Path(done.stdout.strip()).parents


def test_that_interpreter_is_the_one_that_made_the_environment(active: Path) -> None:
    """Another one may lack the torch that the environment shares."""
    (active / "made-from").write_text(f"{sys.executable}\n", encoding="utf-8")
    assert bash(f"find_python {active.parent} {active}/bin/python").stdout.strip() == sys.executable
    (active / "made-from").write_text("/nowhere/python3\n", encoding="utf-8")
    assert "nowhere" not in bash(f"find_python {active.parent} {active}/bin/python").stdout


def test_an_environment_elsewhere_is_taken_as_it_is(active: Path, tmp_path: Path) -> None:
    wanted = f"{active}/bin/python"
    assert bash(f"find_python {tmp_path}/en {wanted}").stdout.strip() == wanted


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path, no_programs: str) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python3.11").symlink_to(sys.executable)
    assert bash("find_python .venv", PATH=no_programs).stdout.strip() == f"{no_programs}/python3.11"


def test_an_empty_machine_lacks_python_its_headers_and_a_compiler(no_programs: str) -> None:
    done = bash('unset CXX; missing_packages "$(find_python .venv)"', PATH=no_programs)
    assert done.stdout.split() == ["python3", "python3-venv", "python3-dev", "g++"]


def test_missing_packages_are_one_apt_line_and_exit_code_3_without_root(no_programs: str) -> None:
    done = bash("id() { echo 1000; }; unset CXX; need_system .venv", PATH=no_programs)
    line = "apt-get install -y --no-install-recommends python3 python3-venv python3-dev g++"
    assert (done.returncode, done.stdout) == (3, f"missing: {line}\n")


def test_an_environment_is_made_again_when_its_stamp_differs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "stamp").write_text("pyproject one\n", encoding="utf-8")
    assert bash(f"is_installed {tmp_path} 'pyproject one'").returncode == 0
    assert bash(f"is_installed {tmp_path} 'pyproject two'").returncode != 0


def test_a_new_environment_remembers_its_interpreter_and_forgets_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env/stamp").touch()
    (tmp_path / "fake").write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo {sys.executable}; fi\n', encoding="utf-8")
    (tmp_path / "fake").chmod(0o755)
    assert bash(f"make_venv {tmp_path}/env {tmp_path}/fake").returncode == 0
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["made-from"]
    assert (tmp_path / "env/made-from").read_text(encoding="utf-8") == f"{sys.executable}\n"


def test_an_environment_that_somebody_else_made_is_refused(tmp_path: Path) -> None:
    done = bash(f"refuse_foreign {tmp_path}")
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path} was not made by this script: move it away\n")
    (tmp_path / "made-from").touch()
    assert bash(f"refuse_foreign {tmp_path}; refuse_foreign {tmp_path}/new").returncode == 0


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("__version__ = '2.13.0+cpu'", ""),
        ("__version__ = '2.10.0a0+git1a2b3c4'", ""),
        ("__version__ = '2.9.1'", "it is older than 2.10\n"),
        (
            "raise OSError('libgomp.so.1: no such file\\nand more')",
            "it does not import: OSError libgomp.so.1: no such file\n",
        ),
        ("import os; os.abort()", "importing it ends Python\n"),
    ],
)
def test_a_torch_is_used_when_it_imports_and_is_new_enough(tmp_path: Path, module: str, reason: str) -> None:
    (tmp_path / "torch.py").write_text(module, encoding="utf-8")
    assert bash(f"why_not_torch {sys.executable}", PYTHONPATH=str(tmp_path)).stdout == reason


def test_shellcheck_looks_at_every_script_of_bash() -> None:
    text = (REPOSITORY / "scripts/test").read_text(encoding="utf-8")
    (looking,) = [line for line in text.splitlines() if "mapfile -t scripts" in line]
    folders = {word.removesuffix("/*") for word in looking.rstrip(")").split() if word.endswith("/*")}
    first = {path: path.read_bytes().partition(b"\n")[0] for path in REPOSITORY.glob("*/*") if path.is_file()}
    of_bash = {path.parent.name for path, line in first.items() if line.startswith(b"#!") and b"bash" in line}
    assert of_bash
    assert of_bash <= folders
