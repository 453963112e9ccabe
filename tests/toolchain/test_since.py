"""`--since` with packages that were built: what the compiler read is known, inside the project's folder and outside."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hubkernels.cli import main
from tests.conftest import SmallProject
from tests.unit.test_since import commit, edit, reasons

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two projects, built: each reads a header outside its folder, of which one stands before another of its name."""
    root = tmp_path_factory.mktemp("shared")
    for name in ("aa", "bb"):
        (root / name).mkdir()
        project = SmallProject(root / name, f"{name}-kernel").write()
        text = (project.root / "build.toml").read_text()
        folders = '["include", "../first", "../second"]'
        (project.root / "build.toml").write_text(text.replace('include = ["include"]', f"include = {folders}"))
    for path in ("first/x.h", "second/x.h", "second/y.h", "README.md"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("#pragma once\n")
    for name, header in (("aa", "y.h"), ("bb", "x.h")):
        source = root / name / "cpu/kernel.cpp"
        source.write_text(f'#include "{header}"\n{source.read_text()}')
    commit(root)
    assert main(["build", "-C", str(root)]) == 0
    return root


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", {}),
        ("second/x.h", {}),
        ("second/z.h", {}),
        ("bb/notes.md", {"bb-kernel": "bb/notes.md is new"}),
    ],
)
def test_what_no_source_reads_affects_nothing_outside_its_folder(
    built: Path, path: str, expected: dict[str, str]
) -> None:
    file = built / path
    before = file.read_text() if file.exists() else None
    try:
        file.write_text((before or "") + "// more\n")
        assert reasons(built) == expected
    finally:
        file.unlink() if before is None else file.write_text(before)


def test_a_header_outside_its_folder_affects_who_reads_it(built: Path) -> None:
    edit(built / "second/y.h")
    try:
        found = reasons(built)
    finally:
        (built / "second/y.h").write_text("#pragma once\n")
    assert found["aa-kernel"].startswith("second/y.h changed, which it ")
    assert "bb-kernel" not in found


def test_a_header_that_is_gone_affects_who_reads_another_of_that_name(built: Path) -> None:
    commit(built)
    (built / "first/x.h").unlink()
    try:
        assert main(["build", "-C", str(built)]) == 0  # now bb reads second/x.h
        assert reasons(built)["bb-kernel"] == "first/x.h is gone, in whose stead it reads another"
    finally:
        (built / "first/x.h").write_text("#pragma once\n")
