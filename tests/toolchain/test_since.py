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
        assert reasons(built)["bb-kernel"] == "first/x.h is gone, where it looks for a file"
    finally:
        (built / "first/x.h").write_text("#pragma once\n")


def test_submodules_links_and_files_of_other_projects_that_were_read(tmp_path: Path) -> None:
    for name in ("aa", "bb"):
        (tmp_path / name).mkdir()
        SmallProject(tmp_path / name, f"{name}-kernel").write().without_torch()
    for path in ("third/e.h", "sh/v1/l.h", "sh/v2/l.h", "bb/include/extra.h"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"// {path}\n")
    (tmp_path / "sh/cur").symlink_to("v2")
    commit(tmp_path / "third")
    source = tmp_path / "aa/cpu/kernel.cpp"
    names = ("third/e.h", "sh/cur/l.h", "bb/include/extra.h")
    source.write_text("".join(f'#include "../../{name}"\n' for name in names) + source.read_text())
    commit(tmp_path)
    assert main(["build", "-q", "-C", str(tmp_path)]) == 0
    assert reasons(tmp_path) == {}

    edit(tmp_path / "bb/include/extra.h")
    assert set(reasons(tmp_path)) == {"aa-kernel", "bb-kernel"}
    assert main(["build", "-q", "-C", str(tmp_path)]) == 0
    assert reasons(tmp_path)["aa-kernel"] == "bb/include/extra.h changed, which it reads"
    commit(tmp_path)

    edit(tmp_path / "third/e.h")
    assert main(["build", "-q", "-C", str(tmp_path)]) == 0
    assert reasons(tmp_path) == {"aa-kernel": "third changed, which it reads"}
    commit(tmp_path / "third")
    commit(tmp_path)
    assert reasons(tmp_path) == {}

    (tmp_path / "sh/cur").unlink()
    (tmp_path / "sh/cur").symlink_to("v1")
    assert set(reasons(tmp_path)) == {"aa-kernel"}
    assert main(["build", "-q", "-C", str(tmp_path)]) == 0
    assert reasons(tmp_path) == {"aa-kernel": "sh/cur changed, which it reads"}
