"""Where headers are looked for, and what lies there."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from hubkernels.build.search import is_absent, look


def test_what_would_come_first_if_it_were_there(tmp_path: Path) -> None:
    (tmp_path / "include/hk").mkdir(parents=True)
    (tmp_path / "include/hk/x.h").touch()
    names = ["x.h", "hk/x.h", "hk/y.h", "c10/d/e.h"]
    found = look(tmp_path, product(["include", "cpu", "new/deep"], names))
    assert found.absent == {"include/x.h", "include/hk/y.h", "include/c10", "cpu", "new"}
    assert found.there == {"include/hk/x.h"}
    assert found.folders == {"include", "include/hk", "."}


def test_a_file_where_the_compiler_runs_is_spelled_as_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "x.h").touch()
    assert look(tmp_path, [(".", "x.h"), (".", "y.h")]).there == {"x.h"}


@pytest.mark.parametrize("after", ["a folder", "a file", "nothing"])
def test_a_folder_with_the_name_of_a_header_is_watched(tmp_path: Path, after: str) -> None:
    """The compiler passes over it, until there is a file or nothing."""
    folder = tmp_path / "include/x.h"
    folder.mkdir(parents=True)
    (absent,) = look(tmp_path, [("include", "x.h")]).absent
    assert absent == "include/x.h/"
    if after != "a folder":
        folder.rmdir()
    if after == "a file":
        folder.touch()
    assert is_absent(f"{tmp_path}/{absent}") == (after == "a folder")
