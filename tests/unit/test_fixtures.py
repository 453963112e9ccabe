"""Real build.toml files of other people: each is read, or refused for a reason that names line and key."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hubkernels.config import load_project
from hubkernels.errors import InputError

FIXTURES = os.environ.get("HUBKERNELS_FIXTURES", "")
FILES = sorted((Path(FIXTURES) / "build-toml").glob("*.toml")) if FIXTURES else []

REFUSALS = {"examples__relu-invalid-capability.toml": ("gfx99999", "there is no CUDA capability 99999.0")}
"""File name -> words of its refusals, for files that must not be read."""

pytestmark = pytest.mark.skipif(
    not FILES, reason="HUBKERNELS_FIXTURES names no folder with build-toml/*.toml: real build.toml files not read"
)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_a_real_build_toml_is_read_or_refused_as_listed(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "build.toml")
    if file.name in REFUSALS:
        with pytest.raises(InputError) as caught:
            load_project(tmp_path)
        for problem, words in zip(caught.value.problems, REFUSALS[file.name], strict=True):
            assert words in problem.what
    else:
        assert len(load_project(tmp_path).packages) == 1


def test_there_are_as_many_files_as_there_were() -> None:
    assert len(FILES) >= 75
