"""Hashes that are remembered, and writing that leaves nothing half done."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from pathlib import Path

import pytest

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.host import files
from hubkernels.host.files import (
    FileHashes,
    came_since,
    follow,
    hash_file,
    read_regular,
    replace_folder,
    write_atomically,
)
from hubkernels.host.store import Store
from hubkernels.host.tree import write_tree

LONG_AGO_NS = 10**9 * 1_000_000_000


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file count as settled at once."""
    later = time.time_ns() + 3_600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)


def test_a_hash_is_that_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    hashes = FileHashes(tmp_path / "memory.json")
    assert hashes.sha256(str(tmp_path / "a")) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert hashes.sha256(str(tmp_path / "none")) is None


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    (tmp_path / "a").write_text("one")
    first = FileHashes(tmp_path / "memory.json")
    digest = first.sha256(str(tmp_path / "a"))
    first.save()
    monkeypatch.setattr(files, "hash_file", lambda path: pytest.fail(f"read {path} again"))
    assert FileHashes(tmp_path / "memory.json").sha256(str(tmp_path / "a")) == digest


def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    path = tmp_path / "a"
    path.write_text("one")
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    hashes = FileHashes(tmp_path / "memory.json")
    before = hashes.sha256(str(path))
    hashes.save()
    time.sleep(0.02)  # longer than one tick of the file system's clock
    path.write_text("two")
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    assert FileHashes(tmp_path / "memory.json").sha256(str(path)) != before


def test_a_file_that_was_just_written_is_not_trusted_to_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    hashes = FileHashes(tmp_path / "memory.json")
    hashes.sha256(str(tmp_path / "a"))
    hashes.save()
    assert (tmp_path / "memory.json").read_text() == '{"form": 1, "entries": {}}'


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff"])
def test_a_damaged_memory_is_the_same_as_none(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "memory.json").write_bytes(damage)
    (tmp_path / "a").write_text("one")
    assert FileHashes(tmp_path / "memory.json").sha256(str(tmp_path / "a"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_failing_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    target = tmp_path / "f"
    target.write_text("old")

    def full(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "replace", full)
    what = rf"cannot write .*/f: {re.escape(os.strerror(code))}\n  hint: free some"
    with pytest.raises(EnvironmentLacksError, match=what):
        write_atomically(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert target.read_text() == "old"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Run by root, a write to /dev/full took the device away."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(EnvironmentLacksError, match=rf"cannot write .*/{name}: is no regular file"):
            write_atomically(tmp_path / name, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("new", "target", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "new/a").write_text("new")
    (tmp_path / "target/b").write_text("old")
    replace_folder(tmp_path / "new", tmp_path / "target", tmp_path / "scratch")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scratch", "target"]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory.json")
    assert FileHashes(tmp_path / "memory.json").sha256(str(tmp_path / "nothing")) is None
    store = Store(tmp_path / "store")
    name = f"{'0' * 32}.o"
    (store.folder / "00").mkdir(parents=True)
    os.mkfifo(store.folder / "00" / name)
    assert store.get(name) is None
    store.put(name, b"content")
    assert store.get(name) == b"content"


def test_a_folder_that_is_asked_for_as_a_file_leaves_nothing_open(tmp_path: Path) -> None:
    """A server that was asked often enough ran out of handles."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(IsADirectoryError):
            read_regular(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_regular_file_has_no_hash(tmp_path: Path, kind: str) -> None:
    """It may have come where a file was, on another branch."""
    path = tmp_path / "x.h"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert FileHashes(tmp_path / "hashes.json").sha256(str(path)) is None
    with pytest.raises(EnvironmentLacksError, match=r"cannot read .*x\.h"):
        hash_file(path)


def test_the_links_on_a_way_are_told_and_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("deep/er")
    assert follow(f"{tmp_path}/one/../x", {}) == tuple(f"{tmp_path}/{name}" for name in ("one", "two", "deep/x"))
    (tmp_path / "round").symlink_to("about")
    (tmp_path / "about").symlink_to("round")
    assert set(follow(f"{tmp_path}/round", {})) == {f"{tmp_path}/round", f"{tmp_path}/about"}


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "new/in").mkdir(parents=True)
    (tmp_path / "new/torch-ext").symlink_to("../out")
    for overwrite in (False, True):
        with pytest.raises(
            InputError, match="links lead out of .*new, where nothing may be written:\n  - .*new/torch-ext"
        ):
            write_tree({"a.txt": "", "torch-ext/a.txt": ""}, tmp_path / "new", overwrite=overwrite, hint="")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "new/a.txt").exists()
    (tmp_path / "new/alias").symlink_to("in")
    write_tree({"alias/a.txt": "text"}, tmp_path / "new", overwrite=False, hint="")
    assert (tmp_path / "new/in/a.txt").read_text() == "text"


def test_a_file_that_was_written_after_it_was_read_is_told(tmp_path: Path) -> None:
    """By what it was when it was read: a build compares later on, after other sources were scanned."""
    hashes = FileHashes(tmp_path / "hashes.json")
    (tmp_path / "a").write_text("old")
    hashes.sha256(str(tmp_path / "a"))
    assert hashes.written() == set()
    (tmp_path / "a").write_text("newer")
    assert hashes.written() == {str(tmp_path / "a")}
    (tmp_path / "a").unlink()
    assert hashes.written() == {str(tmp_path / "a")}
    hashes.renew()
    assert hashes.written() == set()


@pytest.mark.parametrize(("made", "what"), [("b", "b is a folder"), ("c", "c is no folder")])
def test_what_is_no_file_in_the_way_is_found_before_any_is_written(tmp_path: Path, made: str, what: str) -> None:
    if made == "b":
        (tmp_path / "b").mkdir()
    else:
        (tmp_path / "c").touch()
    (tmp_path / "a").write_text("old")
    with pytest.raises(InputError, match=re.escape(f"  - {tmp_path}/{what}")):
        write_tree({"a": "new", "b": "", "c/d/e": ""}, tmp_path, overwrite=True, hint="")
    assert (tmp_path / "a").read_text() == "old"


def test_a_folder_that_got_its_name_since_is_told(tmp_path: Path) -> None:
    below = tmp_path / "root"
    (below / "a/b").mkdir(parents=True)
    (below / "a/b/x.h").touch()
    time.sleep(0.03)
    moment = time.time_ns()
    paths = [str(below / "a/b/x.h")]
    (tmp_path / "beside").touch()  # above: whoever writes there
    assert not came_since(paths, str(below), moment)
    (below / "a").rename(below / "c")
    (below / "c").rename(below / "a")
    assert came_since(paths, str(below), moment)


@pytest.mark.parametrize("by", ["a link", "a file"])
def test_what_came_into_a_folder_below_is_told(tmp_path: Path, by: str) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    time.sleep(0.03)
    moment = time.time_ns()
    if by == "a link":
        (tmp_path / "link").symlink_to("a")
        paths = [str(tmp_path / "link/b/x.h")]
    else:
        (tmp_path / "a/new").touch()
        paths = [str(tmp_path / "a/b/x.h")]
    assert came_since(paths, str(tmp_path), moment)


def test_a_new_name_of_a_file_is_no_change_of_it(tmp_path: Path) -> None:
    path = tmp_path / "x.h"
    path.write_text("1")
    hashes = FileHashes(tmp_path / "hashes.json")
    hashes.sha256(str(path))
    (tmp_path / "y.h").hardlink_to(path)
    assert hashes.written() == set()
    path.write_text("2")
    assert hashes.written() == {str(path)}
