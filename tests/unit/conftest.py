"""Unit tests start no compiler: whoever does meets one that says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "c89", "c99")


@pytest.fixture(scope="session")
def failing_compilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that note in ``called`` how they were called, and fail."""
    folder = tmp_path_factory.mktemp("no-compiler")
    for name in COMPILERS:
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>"{folder}/called"\nexit 97\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def no_compiler(failing_compilers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put these programs first on PATH, for the processes that a test starts too; it must not have called one."""
    monkeypatch.setenv("PATH", f"{failing_compilers}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CXX", raising=False)
    yield
    called = failing_compilers / "called"
    if called.exists():
        calls = called.read_text(encoding="utf-8")
        called.unlink()
        pytest.fail(f"a unit test started a compiler: {calls}")
