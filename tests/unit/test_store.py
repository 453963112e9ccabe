"""The store and the cache: entries are whole or not there, and what is not its own is left alone."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from hubkernels.build.cache import DEFAULT_SIZE, find_cache, reason_against, size_limit
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.host.cache_folder import cache_folder
from hubkernels.host.store import Store, Usage
from tests.conftest import Cli, write_noarch


def name(number: int) -> str:
    return f"{number:032x}.o"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "objects")


def entry(store: Store, number: int) -> Path:
    return store.folder / name(number)[:2] / name(number)


def test_what_was_put_is_taken_as_a_copy_of_ones_own(store: Store, tmp_path: Path) -> None:
    assert not store.take(name(1), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    store.put(name(1), b"content\n" * 9)
    assert store.take(name(1), tmp_path / "mine")
    entry(store, 1).unlink()
    assert (tmp_path / "mine").read_bytes() == b"content\n" * 9


@pytest.mark.parametrize("content", [b"", b"\n", b"x", b"no line", b"x" * 3_000_000])
def test_any_content_comes_back(store: Store, content: bytes) -> None:
    store.put(name(1), content)
    assert store.get(name(1)) == content


def damage(path: Path, kind: str) -> None:
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "truncated": whole[:-1],
            "longer": whole + b"\n",
            "a bit flipped": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
            "header alone": whole[: whole.index(b"\n") + 1],
            "another form": whole.replace(b"entry 1", b"entry 0"),
            "zeros": bytes(len(whole)),
        }[kind]
    )


KINDS = ["empty", "truncated", "longer", "a bit flipped", "header alone", "another form", "zeros"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_entry_is_none_and_goes(store: Store, tmp_path: Path, kind: str) -> None:
    store.put(name(1), b"content")
    damage(entry(store, 1), kind)
    assert not store.take(name(1), tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    assert not entry(store, 1).exists()


def test_an_entry_under_another_name_is_none(store: Store) -> None:
    store.put(name(1), b"content")
    entry(store, 1).rename(entry(store, 2))
    assert store.get(name(2)) is None


def test_a_folder_in_the_place_of_an_entry_is_told_and_left(store: Store) -> None:
    entry(store, 1).mkdir(parents=True)
    assert store.get(name(1)) is None
    with pytest.raises(EnvironmentLacksError, match=r"cannot write .*: Is a directory"):
        store.put(name(1), b"content")
    assert entry(store, 1).is_dir()
    assert store.usage() == Usage(0, 0)


def used(store: Store, number: int, seconds: int) -> None:
    os.utime(entry(store, number), (10**9 + seconds, 10**9 + seconds))


def test_the_least_recently_used_go_first_until_the_rest_fits(store: Store) -> None:
    for number in range(10):
        store.put(name(number), b"x" * 1000)
        used(store, number, 100 - number)
    size = store.usage().size // 10
    assert store.trim(10 * size) == 0
    store.get(name(9))  # was the oldest: its use is noted
    assert store.trim(5 * size) == 6 * size
    assert [number for number in range(10) if entry(store, number).exists()] == [0, 1, 2, 9]


def test_a_limit_of_nothing_keeps_nothing(store: Store) -> None:
    store.put(name(1), b"x")
    store.trim(0)
    assert store.usage() == Usage(0, 0)


def test_trimming_waits_for_nobody(store: Store) -> None:
    store.put(name(1), b"x" * 100)
    with FileLock(store.folder / "lock"):
        done = threading.Thread(target=store.trim, args=(0,))
        done.start()
        done.join(5)
        assert not done.is_alive()
    assert store.usage().entries == 1


def test_what_is_not_the_stores_is_neither_counted_nor_removed(store: Store) -> None:
    store.put(name(1), b"x")
    strange = [store.folder / "notes.txt", store.folder / "00/notes.txt", store.folder / "more/00.o"]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (store.folder / "01").symlink_to(store.folder / "more")
    assert store.usage().entries == 1
    store.trim(0)
    store.put(name(1), b"x")
    assert store.clear().entries == 1
    assert [path.read_text() for path in strange] == ["mine"] * 3


def test_what_killed_builds_left_is_removed_when_it_is_old(store: Store) -> None:
    store.put(name(1), b"x")
    old, new = (entry(store, 1).parent / f".{name(1)}.{word}" for word in ("old", "new"))
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.trim(10**6)
    assert (old.exists(), new.exists()) == (False, True)
    store.clear()
    assert not new.exists()


def test_an_entry_that_may_not_be_removed_keeps_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cache that several users share: the oldest is another's."""
    for number in range(3):
        store.put(name(number), b"x" * 1000)
        os.utime(entry(store, number), (10**9 + number, 10**9 + number))
    unlink = Path.unlink

    def guarded(path: Path, *, missing_ok: bool = False) -> None:
        if path == entry(store, 0):
            raise PermissionError(errno.EPERM, "not yours", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", guarded)
    store.trim(1500)
    assert [entry(store, number).exists() for number in range(3)] == [True, False, False]


def test_a_full_disk_is_told_and_leaves_no_part(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(EnvironmentLacksError, match="No space left"):
        store.put(name(1), b"x")
    assert [path for path in store.folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HUBKERNELS_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"HUBKERNELS_CACHE": "", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/hubkernels"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/hubkernels"),
        ({"HOME": "/h"}, "/h/.cache/hubkernels"),
        ({}, "/.cache/hubkernels"),
    ],
)
def test_the_folder_is_the_one_named_else_the_users(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment) == Path(folder)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", DEFAULT_SIZE),
        ("0", 0),
        ("123", 123),
        ("10B", 10),
        ("800MB", 800_000_000),
        ("2GB", 2 * 10**9),
        ("2 gb", 2 * 10**9),
        ("2G", 2 * 10**9),
        ("1.5GiB", 3 << 29),
        ("64kB", 64_000),
        ("1T", 10**12),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert size_limit({"HUBKERNELS_CACHE_SIZE": text}) == size


@pytest.mark.parametrize("text", ["-1", "five", "5XB", "5 G B", "1e9", "GB", "5GBs", "iB", "9" * 400 + "TB"])
def test_words_that_are_no_size_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a size") as raised:
        size_limit({"HUBKERNELS_CACHE_SIZE": text})
    assert raised.value.problems[0].where == "environment: HUBKERNELS_CACHE_SIZE"


def test_a_file_where_the_named_folder_should_be_is_refused_and_not_for_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = find_cache({"HUBKERNELS_CACHE": str(tmp_path / "file")}, tmp_path / "own")
    assert found.store.get(name(1)) is None
    with pytest.raises(EnvironmentLacksError, match=r"file is not a folder\n  --> environment: HUBKERNELS_CACHE"):
        found.require()


@pytest.mark.parametrize("place", ["cache", "cache/objects", "cache/deep/er"])
def test_a_file_in_the_way_is_a_reason_against(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text("in the way")
    against = reason_against(tmp_path / place / "x" if place == "cache/deep/er" else tmp_path / "cache")
    assert against == f"{tmp_path / place} is not a folder"


def test_a_usual_folder_that_is_no_use_gives_way_to_one_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("in the way")
    found = find_cache({"HOME": str(tmp_path / "home")}, tmp_path / "own")
    assert (found.folder, found.store.folder) == (tmp_path / "own", tmp_path / "own/objects")
    assert found.note == (
        f"{tmp_path / 'home'} is not a folder: objects are kept in {tmp_path / 'own'}; "
        "HUBKERNELS_CACHE can name a folder"
    )
    found.require()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_the_usual_folder_of_another_user_is_not_used_and_a_named_one_is(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    found = find_cache({"HOME": str(tmp_path)}, tmp_path / "own")
    assert found.note is not None
    assert f"{tmp_path} belongs to nobody" in found.note
    named = find_cache({"HUBKERNELS_CACHE": str(tmp_path)}, tmp_path / "own")
    assert (named.store.folder, named.note, named.refusal) == (tmp_path / "objects", None, None)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no folder that even root cannot write")
def test_a_named_folder_that_only_a_try_shows_to_be_of_no_use_is_refused(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBKERNELS_CACHE", "/proc/x")
    ran = cli("build", write_noarch(tmp_path, "my-table"))
    assert ran.code == 3
    assert re.search(r"error: .*/proc.*\n  --> environment: HUBKERNELS_CACHE\n", ran.err)


def test_a_named_folder_is_tried_without_a_trace(tmp_path: Path) -> None:
    find_cache({"HUBKERNELS_CACHE": str(tmp_path / "new")}, tmp_path / "project").require()
    assert not list(tmp_path.iterdir())
