"""Nothing behind a link below build/ is written, replaced or deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Cli, write_noarch
from tests.unit.test_clean import times


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    write_noarch(root, "my-table", ("cpu",))
    return root


@pytest.mark.parametrize(
    "link",
    ["build", "build/.hubkernels", "build/my-table", "build/.hubkernels/lock", "build/.hubkernels/.ninja_log"],
)
def test_a_build_refuses_a_link_and_names_it(project: Path, cli: Cli, link: str) -> None:
    assert cli("build", "-C", project).code == 0
    elsewhere = project.parent / "elsewhere"
    if (project / link).exists():
        (project / link).rename(elsewhere)
    else:
        elsewhere.touch()
    (project / link).symlink_to(elsewhere)
    if elsewhere.is_dir():
        (elsewhere / "runs").mkdir(exist_ok=True)
        (elsewhere / "runs/mine").touch()
        (elsewhere / "mine.1.old").mkdir()
    python = next(project.glob("torch-ext/*/__init__.py"))
    python.write_text(python.read_text() + "changed = True\n")
    before = times(elsewhere)
    ran = cli("build", "-C", project)
    assert ran.code == 2
    assert f"{project / link} is a link to {elsewhere}, and no link is followed: nothing was built" in ran.err
    assert "hint: remove the link" in ran.err
    assert times(elsewhere) == before


def test_a_folder_of_the_users_that_ends_like_one_that_was_moved_away_is_not_swept(project: Path, cli: Cli) -> None:
    (project / "build/.hubkernels/mine.old").mkdir(parents=True)
    assert cli("build", "-C", project).code == 0
    assert (project / "build/.hubkernels/mine.old").is_dir()
