"""The memory of each compile: measured, remembered, and what the next build goes by."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.build.peaks import SUFFIX
from hubkernels.host import measured
from tests.conftest import Cli, SmallProject

pytestmark = pytest.mark.compiler
MB = 10**6


def run(tmp_path: Path, *command: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    figure = tmp_path / "figure"
    words = [sys.executable, "-ISs", measured.__file__, str(figure), *command]
    return subprocess.run(words, capture_output=True, text=True, check=False), figure


def test_the_largest_process_is_what_counts(tmp_path: Path) -> None:
    inner = f"{sys.executable} -c 'x = bytearray({200 * MB})'; {sys.executable} -c 'x = bytearray({100 * MB})'"
    done, figure = run(tmp_path, "sh", "-c", inner)
    assert done.returncode == 0
    assert 200 * MB < int(figure.read_text()) < 300 * MB


def test_it_ends_as_the_command_does(tmp_path: Path) -> None:
    done, figure = run(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert figure.is_file()
    (tmp_path / "figure").unlink()
    (tmp_path / "figure").mkdir()  # a figure that cannot be written is no failure of the command
    unwritten, _ = run(tmp_path, "true")
    assert (unwritten.returncode, unwritten.stderr) == (0, "")
    killed, figure = run(tmp_path / "none", "sh", "-c", "kill -9 $$")
    assert killed.returncode == -signal.SIGKILL
    assert not figure.exists()
    assert run(tmp_path, "sh", "-c", "kill -SEGV $$")[0].returncode == -signal.SIGSEGV
    absent, _ = run(tmp_path, "/no/such/compiler")
    assert (absent.returncode, absent.stderr) == (127, "/no/such/compiler: No such file or directory\n")


def test_a_build_remembers_what_its_compiles_took_and_goes_by_it(
    small: SmallProject, cli: Cli, cold_cache: Path
) -> None:
    first = cli("build", "-C", small.without_torch().root, "--memory", "2GB")
    assert first.code == 0, first.err
    peaks = sorted(cold_cache.rglob(f"*{SUFFIX}"))
    assert peaks
    source = small.root / "cpu/kernel.cpp"
    source.write_text(source.read_text() + "// changed\n")
    binding = small.root / "torch-ext/binding.cpp"
    binding.write_text(binding.read_text() + "// changed\n")
    again = cli("build", "-C", small.root, "--jobs", "2", "--memory", "20MB")
    assert again.code == 0, again.err
    assert "1 command at a time instead of 2: 0.0 GB of memory may be used" in again.err
    assert ", as measured, takes up to 0.0" in again.err


@pytest.mark.skipif(os.geteuid() != 0, reason="a process is ended")
def test_a_compiler_that_is_killed_is_told_of_as_ever(small: SmallProject, cli: Cli, tmp_path: Path) -> None:
    gxx = tmp_path / "killed"
    gxx.write_text('#!/bin/sh\ncase "$*" in *"-c cpu/"*) kill -9 $$;; esac\nexec g++ "$@"\n')
    gxx.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(gxx))
        failed = cli("build", "-C", small.without_torch().root)
    assert failed.code == 3
    assert "the compiler was killed, most likely for want of memory" in failed.err
    assert cli("build", "-C", small.root).code == 0
