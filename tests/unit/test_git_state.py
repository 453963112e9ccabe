"""Whether a checkout is as its commit says: the disk counts, whatever git was told to overlook. Against real git."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from hubkernels.host.git import git_state, why_no_state
from tests.conftest import environment

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ALONE = environment(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", GIT_ALLOW_PROTOCOL="file")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=author", "-c", "user.email=author@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], env=ALONE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package in a folder of its checkout, and a submodule in the package's."""
    for name in ("other", "top"):
        git(tmp_path, "init", "-q", name)
    (tmp_path / "other/lib.h").write_text("// lib\n", encoding="utf-8")
    commit(tmp_path / "other")
    top = tmp_path / "top"
    (top / "package").mkdir()
    (top / "package/op.py").write_text("OP = 1\n", encoding="utf-8")
    git(top, "submodule", "--quiet", "add", str(tmp_path / "other"), "package/lib")
    commit(top)
    return top


def is_dirty(checkout: Path) -> bool:
    state = git_state(checkout / "package", ALONE)
    assert state is not None, why_no_state(checkout / "package", ALONE)
    assert state["commit"] == git(checkout, "rev-parse", "HEAD").strip()
    assert isinstance(state["dirty"], bool)
    return state["dirty"]


def overlook(top: Path, file: str, how: str, beside: Path) -> None:
    """Tell git not to look at a file of a checkout, or at none of it."""
    if how == "core.worktree":
        clean = beside / "clean"
        shutil.copytree(top, clean, ignore=shutil.ignore_patterns(".git"))
        git(top, "config", "core.worktree", str(clean))
    elif how == "core.fsmonitor":
        hook = beside / "nothing-changed"
        hook.write_text("#!/bin/sh\nprintf 'now\\0'\n", encoding="utf-8")
        hook.chmod(0o755)
        git(top, "config", "core.fsmonitor", str(hook))
        git(top, "status")
    else:
        git(top, "update-index", f"--{how}", file)


HOW = ["assume-unchanged", "skip-worktree", "core.worktree", "core.fsmonitor"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("where", "file"), [("", "package/op.py"), ("package/lib", "lib.h")], ids=["own", "submodule"])
def test_what_git_was_told_to_overlook_counts_as_it_is_on_the_disk(
    checkout: Path, tmp_path: Path, where: str, file: str, how: str
) -> None:
    """A changed file passed as committed, so what was published did not come of the commit that it named."""
    changed = checkout / where / file
    before = changed.read_bytes()
    overlook(checkout / where, file, how, tmp_path)
    assert not is_dirty(checkout), "nothing differs"
    changed.write_bytes(before + b"# new\n")
    assert is_dirty(checkout)
    changed.unlink()
    assert is_dirty(checkout), "it is gone"
    changed.write_bytes(before)
    assert not is_dirty(checkout), "as it was"


@pytest.mark.parametrize("setting", ["core.trustctime=false", "core.checkStat=minimal"])
def test_a_file_that_was_changed_with_its_size_and_time_put_back_counts(checkout: Path, setting: str) -> None:
    git(checkout, "config", *setting.split("="))
    changed = checkout / "package/op.py"
    os.utime(changed, (1, 1))
    git(checkout, "status")
    while int(time.time()) == int(changed.stat().st_ctime):  # git looks at its seconds
        time.sleep(0.05)
    changed.write_text("OP = 2\n", encoding="utf-8")
    os.utime(changed, (1, 1))
    assert is_dirty(checkout)


def test_what_stands_in_for_a_commit_is_not_that_commit(checkout: Path) -> None:
    """`git replace`: the commit that was named had another content for everybody else."""
    named = git(checkout, "rev-parse", "HEAD").strip()
    (checkout / "package/op.py").write_text("OP = 2\n", encoding="utf-8")
    commit(checkout)
    git(checkout, "replace", named, "HEAD")
    git(checkout, "reset", "-q", "--soft", named)
    assert git(checkout, "status", "--porcelain") == ""
    assert is_dirty(checkout)


def test_an_empty_folder_is_no_repository_for_its_name(checkout: Path) -> None:
    """git passes it over; it made all that is committed beside it uncommitted."""
    (checkout / "package/.git").mkdir()
    assert not is_dirty(checkout)
    (checkout / "package/op.py").write_text("OP = 2\n", encoding="utf-8")
    assert is_dirty(checkout)


def test_a_temporary_folder_is_made_only_for_what_git_was_told_to_overlook(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it was FileNotFoundError."""
    monkeypatch.setattr("tempfile.tempdir", str(checkout / "gone"))
    assert not is_dirty(checkout)
    git(checkout, "update-index", "--skip-worktree", "package/op.py")
    assert git_state(checkout / "package", ALONE) is None
    why = str(why_no_state(checkout / "package", ALONE))
    assert "no temporary folder can be made: No such file or directory" in why
    assert "hint: TMPDIR" in why


def test_a_state_leaves_what_git_was_told_as_it_was(checkout: Path) -> None:
    git(checkout, "update-index", "--skip-worktree", "package/op.py")
    index = checkout / ".git/index"
    before = (index.read_bytes(), index.stat().st_mtime_ns)
    assert not is_dirty(checkout)
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before
    assert git(checkout, "ls-files", "-v", "package/op.py") == "S package/op.py\n"


def test_what_a_sparse_checkout_leaves_out_elsewhere_does_not_count(checkout: Path) -> None:
    (checkout / "else").mkdir()
    (checkout / "else/other.py").write_text("OTHER = 1\n", encoding="utf-8")
    commit(checkout)
    git(checkout, "sparse-checkout", "set", "package")
    assert not os.path.lexists(checkout / "else")
    assert not is_dirty(checkout)
