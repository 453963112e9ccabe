"""Unit tests start no compiler: whoever does meets one that says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "c89", "c99")


@pytest.fixture(scope="session", autouse=True)
def no_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put programs first on PATH that note their name and fail; at the end nobody must have called one.

    This holds for the processes that tests start too. Returns the file of the notes.
    """
    folder = tmp_path_factory.mktemp("no-compiler")
    notes = folder / "called"
    for name in COMPILERS:
        (folder / name).write_text(
            f'#!/bin/sh\necho "$PYTEST_CURRENT_TEST: {name} $*" >>"{notes}"\nexit 97\n', encoding="utf-8"
        )
        (folder / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.delenv("CXX", raising=False)
        yield notes
    assert not notes.exists(), f"a unit test started a compiler: {notes.read_text(encoding='utf-8')}"
