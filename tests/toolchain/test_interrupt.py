"""Ctrl-C or SIGTERM during a build: its exit code, no traceback, nothing that runs on, what was compiled is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SmallProject, environment

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
    pytest.mark.usefixtures("cold_cache"),
]

TIMEOUT_S = 180

SLOW_COMPILER = """\
#!/bin/sh
folder=$(dirname "$0")
echo "$*" >> "$folder/log"
case " $* " in
  *" -c torch-ext"*) if [ -e "$folder/hang" ]; then touch "$folder/hangs"; sleep 120; fi ;;
esac
exec {compiler} "$@"
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A compiler that hangs once it compiles, as long as there is a file `hang` beside it."""
    real = shutil.which("g++") or shutil.which("c++")
    if real is None:
        pytest.skip("there is no C++ compiler on PATH")
    path = tmp_path / "bin/g++"
    path.parent.mkdir()
    path.write_text(SLOW_COMPILER.format(compiler=real), encoding="utf-8")
    path.chmod(0o755)
    return path


def start(project: SmallProject, compiler: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hubkernels.cli", "build", "--jobs", "2", "--project", str(project.root)],
        env=environment(CXX=str(compiler)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def running(session: int) -> list[str]:
    """The programs of a session that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, _, fields = (process / "stat").read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, its_session = fields.split()[:4]
        if int(its_session) == session and state != "Z":
            found.append(name)
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("send", "signal_sent", "code"),
    [(os.kill, signal.SIGINT, 130), (os.killpg, signal.SIGINT, 130), (os.kill, signal.SIGTERM, 143)],
    ids=["to the builder alone", "to all, as Ctrl-C does", "as CI and containers do"],
)
def test_an_interrupted_build_ends_its_compilers_and_leaves_the_next_one_right(  # noqa: PLR0913, PLR0917 - cases
    tmp_path: Path,
    compiler: Path,
    cold_cache: Path,
    send: Callable[[int, int], None],
    signal_sent: signal.Signals,
    code: int,
) -> None:
    project = SmallProject(tmp_path / "project", "my-kernel").write()
    (compiler.parent / "hang").touch()
    process = start(project, compiler)
    wait_for((compiler.parent / "hangs").exists)
    wait_for(lambda: any("sleep" in name for name in running(process.pid)))
    wait_for(lambda: bool(list((project.root / "build/.hubkernels/runs").glob("*/*.o"))))
    send(process.pid, signal_sent)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code
    assert "Traceback" not in errors
    wait_for(lambda: not running(process.pid))
    assert not list((project.root / "build").glob("my-kernel/*"))

    kept = {path: path.stat().st_ino for path in cold_cache.rglob("*.o")}  # one or both that can end
    assert kept

    (compiler.parent / "hang").unlink()
    again = start(project, compiler)
    out, errors = again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0, errors
    assert out.startswith("built")
    now = {path: path.stat().st_ino for path in kept}
    assert now == kept, "what was compiled before the interrupt is not compiled again"


def test_an_interrupt_is_not_followed_by_a_scan(tmp_path: Path, compiler: Path) -> None:
    """A source that asks for what a macro names is scanned for each plan: what it reads is not known without."""
    project = SmallProject(tmp_path / "project", "my-kernel").write()
    source = project.root / "cpu/kernel.cpp"
    source.write_text(source.read_text() + "#define NOWHERE <nowhere.h>\n#if __has_include(NOWHERE)\n#endif\n")
    (compiler.parent / "hang").touch()
    process = start(project, compiler)
    wait_for((compiler.parent / "hangs").exists)
    wait_for(lambda: bool(list((project.root / "build/.hubkernels/runs").glob("*/*.o"))))
    before = (compiler.parent / "log").read_text().count(" -M ")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=TIMEOUT_S)
    assert before > 2
    assert (compiler.parent / "log").read_text().count(" -M ") == before
