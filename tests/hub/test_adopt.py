"""Repositories that come from elsewhere: each object is what its name says, and what is here is not lost."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hubkernels.errors import CheckFailedError
from hubkernels.hub.local.adopt import opened, take_in
from hubkernels.hub.local.names import RepoId
from hubkernels.hub.local.repository import Repository
from hubkernels.hub.local.whole import insist_on_whole
from tests.hub.conftest import CI, Served, run
from tests.hub.test_http import API, commit, file, lines

Taken = Callable[..., Path]


@pytest.fixture
def git(hub: Served) -> Path:
    """A repository of a branch with one file, on its way: its Hub is closed."""
    assert commit(hub, file("a", b"as it was published")).status == 200
    assert hub.ask("POST", f"{API}/tag/v1", {"tag": "first", "message": "x"}, CI).status == 200
    assert hub.ask("POST", f"{API}/commit/v1?create_pr=1", lines(file("a", b"better")), CI).status == 200
    hub.running.hub.close()
    return hub.git()


@pytest.fixture
def taken(tmp_path: Path) -> Taken:
    """Take a copy of a repository into another Hub; tells where it stands there."""

    def take(git: Path, *changes: Callable[[Path], object]) -> Path:
        with opened(tmp_path / "other") as hub:
            new = hub.scratch / "new"
            shutil.copytree(git, new)
            for change in changes:
                change(new)
            repo = RepoId("kernels", "org", "my-kernel")
            came = Repository(new, hub.scratch)
            with closing(came.objects):
                insist_on_whole(came, repo, str(new), "copy it again")
            return take_in(hub, repo, new, private=False).git.folder

    return take


def told(git: Path, *words: str) -> str:
    done = run("git", "-C", git, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pack(git: Path) -> None:
    told(git, "gc", "-q", "--prune=now")
    assert not list(git.glob("objects/??"))


def the_blob(git: Path) -> str:
    return told(git, "rev-parse", "v1:a").strip()


def swap(git: Path) -> None:
    """Another content under the name of a published file."""
    oid = the_blob(git)
    place = git / "objects" / oid[:2] / oid[2:]
    place.unlink()
    place.write_bytes(zlib.compress(b"blob 19\0as it is not at all"))


def test_packs_that_come_are_written_out(git: Path, taken: Taken) -> None:
    """What is served is read in pieces, and a pack's index is nobody's word."""
    there = taken(git, pack)
    assert not list((there / "objects/pack").iterdir())
    assert told(there, "for-each-ref") == told(git, "for-each-ref")
    done = run("git", "-C", there, "fsck", "--strict", "--full", "--no-progress")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_bytes_of_what_is_pinned_are_not_swapped(git: Path, taken: Taken) -> None:
    """A file that came under the name of an object that was packed here used to be read in its place."""
    pack(taken(git))
    with pytest.raises(
        CheckFailedError, match=f"objects/{the_blob(git)[:2]}/{the_blob(git)[2:]} is not what its hash says"
    ):
        taken(git, swap)
    here = git.parents[3] / "other/kernels/org/my-kernel.git"
    assert told(here, "show", "v1:a") == "as it was published"
    assert not list(here.glob("objects/??"))


def test_an_index_of_a_pack_is_not_believed(git: Path, taken: Taken) -> None:
    """It can say of any object that it is another."""
    pack(git)

    def exchange(new: Path) -> None:
        (index,) = new.glob("objects/pack/*.idx")
        index.chmod(0o644)
        index.write_bytes(index.read_bytes().replace(bytes.fromhex(the_blob(git)), bytes(20)))

    with pytest.raises(CheckFailedError, match=r"pack-[0-9a-f]{40}\.idx is not what its hash says"):
        taken(git, exchange)


def test_a_pack_that_is_damaged_is_refused(git: Path, taken: Taken) -> None:
    pack(git)

    def flip(new: Path) -> None:
        (found,) = new.glob("objects/pack/*.pack")
        found.chmod(0o644)
        text = bytearray(found.read_bytes())
        text[len(text) // 2] ^= 1
        found.write_bytes(text)

    with pytest.raises(CheckFailedError, match=r"pack-[0-9a-f]{40}\.idx is not what its hash says"):
        taken(git, flip)


def test_new_tags_come_to_a_repository_that_is_there(git: Path, taken: Taken) -> None:
    """And pull requests do not: each Hub numbers its own."""
    there = taken(git)
    own = told(there, "rev-parse", "refs/pr/1")
    told(git, "tag", "second", "v1")
    told(git, "update-ref", "refs/pr/1", "refs/heads/main")
    told(git, "update-ref", "refs/pr/2", "refs/heads/main")
    taken(git)
    assert told(there, "tag").split() == ["first", "second"]
    assert told(there, "rev-parse", "first^{commit}", "second") == told(git, "rev-parse", "v1", "v1")
    assert told(there, "for-each-ref", "--format=%(objectname)", "refs/pr") == own


def test_a_tag_that_names_another_commit_is_refused(git: Path, taken: Taken) -> None:
    there = taken(git)
    told(git, "tag", "--force", "first", "main")
    before = told(there, "for-each-ref")
    with pytest.raises(CheckFailedError, match="the tag first of org/my-kernel names another commit here"):
        taken(git)
    assert told(there, "for-each-ref") == before
