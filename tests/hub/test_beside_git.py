"""A Hub's folder while an operator's git works in it: what it packs, deletes and locks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hubkernels.hub.local.objects import ObjectStore, Staging
from hubkernels.hub.local.refs import Refs
from hubkernels.hub.local.repository import initialize
from tests.hub.conftest import CI, Serve, Served, run
from tests.hub.test_http import API, commit, file, lines, refused

ALL = bool(os.environ.get("HUBKERNELS_TEST_ALL"))
V1 = "refs/heads/v1"


@pytest.fixture
def refs(tmp_path: Path) -> Refs:
    """Those of a repository with one commit, and nothing else."""
    for name in ("git", "scratch"):
        (tmp_path / name).mkdir()
    return initialize(tmp_path / "git", {}, "author", tmp_path / "scratch").refs


@contextmanager
def over_and_over(*words: str | Path) -> Iterator[None]:
    """A command in a loop of its own, with no pause."""
    loop = subprocess.Popen(["sh", "-c", 'while :; do "$@" 2>/dev/null; done', "sh", *map(str, words)])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def test_a_commit_survives_git_that_packs_refs(refs: Refs) -> None:
    """It deleted the file of a ref that was replaced after its look at it: 4 of 10,313 were gone."""
    parent = refs.get("refs/heads/main") or ""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    made = run("git", "-C", refs.folder, *who, "commit-tree", "-m", "x", f"{parent}^{{tree}}", "-p", parent)
    oids, number = (parent, made.stdout.strip()), 0
    lost: list[int] = []
    until = time.monotonic() + (30 if ALL else 4)
    with over_and_over("git", "-C", refs.folder, "-c", "core.fsync=none", "pack-refs", "--all"):
        while time.monotonic() < until:
            number += 1
            wanted = oids[number % 2]
            refs.set(V1, wanted)
            for _ in range(5):
                seen = {refs.get(V1), refs.below("refs/heads/").get("v1")}
                lost += [number] * (seen != {wanted})
    assert number > 2
    assert lost == []


def test_a_branch_that_was_deleted_does_not_come_back_from_git(refs: Refs) -> None:
    oid = refs.get("refs/heads/main") or ""
    back: list[int] = []
    number = 0
    until = time.monotonic() + (10 if ALL else 2)
    with over_and_over("git", "-C", refs.folder, "-c", "core.fsync=none", "pack-refs", "--all"):
        while time.monotonic() < until:
            number += 1
            refs.set("refs/heads/deep/er", oid)
            refs.delete("refs/heads/deep/er")
            for _ in range(5):
                back += [number] * bool(refs.get("refs/heads/deep/er"))
    assert number > 2
    assert back == []


def test_a_lock_of_a_server_that_was_killed_is_nobody_s(hub: Served, serve: Serve) -> None:
    """And one of git's stays, for that git may run: what is to be done is said."""
    folder, git = hub.folder, hub.git()
    for name in (V1, "packed-refs"):
        killed = (
            "import os, sys, pathlib; from hubkernels.hub.local.refs import Refs\n"
            "folder = pathlib.Path(sys.argv[1])\n"
            "with Refs(folder, folder)._locked(folder / sys.argv[2]): os.kill(os.getpid(), 9)"
        )
        assert run(sys.executable, "-c", killed, git, name).returncode == -9
        assert (git / f"{name}.lock").exists()
    gits = git / "refs/heads/main.lock"
    gits.touch()
    hub.running.hub.close()
    again = serve(folder)
    assert commit(again, file("a")).status == 200
    assert again.ask("DELETE", f"{API}/branch/v1", token=CI).status == 200
    answer = again.ask("POST", f"{API}/commit/main", lines(file("a")), CI)
    refused(answer, 503, "refs/heads/main.lock is there: try again; where no git runs in that folder, one was killed")
    assert answer.headers["Retry-After"]
    gits.unlink()
    assert again.ask("POST", f"{API}/commit/main", lines(file("a")), CI).status == 200
    again.check("kernels/org/my-kernel", "--no-dangling")


LOCKS: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to(path.name),
    "folder": lambda path: path.mkdir(mode=0o555),
}


@pytest.mark.parametrize("what", LOCKS)
@pytest.mark.parametrize("name", [V1, "packed-refs"])
def test_a_lock_that_is_no_file_stops_no_hub_and_is_named(hub: Served, serve: Serve, name: str, what: str) -> None:
    """The whole Hub did not start."""
    LOCKS[what](hub.git() / f"{name}.lock")
    hub.running.hub.close()
    again = serve(hub.folder)
    assert again.ask("GET", API).status == 200
    refused(again.ask("DELETE", f"{API}/branch/v1", token=CI), 503, f"{name}.lock is there: try again; where no git")


@pytest.mark.parametrize("by", ["distance", "name", "nothing"])
def test_what_git_packed_as_differences_is_read(refs: Refs, by: str) -> None:
    """Its size is told from its first bytes, without what it differs from. Here git makes none of files."""
    folder, text = refs.folder, b""
    if by != "nothing":
        (folder / "info/attributes").unlink()
    store, texts = ObjectStore(folder / "objects", refs.scratch), {}
    with closing(store), closing(Staging(store)) as staging:
        for number in range(30):
            text = hashlib.sha512(b"%d" % number).hexdigest().encode() * 3 + text
            texts[staging.add("blob", text)] = text
        entries = (b"100644 %02d\0%s" % (number, bytes.fromhex(oid)) for number, oid in enumerate(texts))
        refs_tree = staging.add("tree", b"".join(entries))
        staging.publish()
        git = ("git", "-C", folder, "-c", f"repack.useDeltaBaseOffset={by == 'distance'}".lower())
        for words in (("tag", "all", refs_tree), ("repack", "-adfq"), ("prune-packed", "-q")):
            assert run(*git, *words).returncode == 0
        assert not list(folder.glob("objects/??"))
        seen = run("git", "-C", folder, "verify-pack", "-v", next(folder.glob("objects/pack/*.idx"))).stdout
        assert ("chain length = 2" in seen, "chain length" in seen) == (by != "nothing", by != "nothing")
        for oid, expected in texts.items():
            assert store.blob(oid).size == len(expected)
            assert store.blob(oid).content() == expected
            assert b"".join(store.blob(oid).pieces(100, 50)) == expected[100:150]
        assert len(store[refs_tree].as_raw_string()) == len(texts) * 30
        with pytest.raises(KeyError):
            store.blob("0" * 40)


def test_an_object_that_a_commit_names_again_is_new_for_git(refs: Refs) -> None:
    """`git gc` deletes what is two weeks old and named by nothing, while a commit counts on it."""
    store = ObjectStore(refs.folder / "objects", refs.scratch)
    for _ in range(2):
        with closing(Staging(store)) as staging:
            oid = staging.add("blob", b"x")
            staging.publish()
        assert time.time() - store.path(oid).stat().st_mtime < 60
        os.utime(store.path(oid), (0, 0))


def with_submodule(git: Path, ref: str = V1) -> str:
    """A commit of an operator's git that adds one, whose content is elsewhere; tells it."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    listed = run("git", "-C", git, "ls-tree", ref).stdout + f"160000 commit {'a' * 40}\tsub\n"
    made = subprocess.run(["git", "-C", git, "mktree"], input=listed, capture_output=True, text=True, check=True)
    head = run("git", "-C", git, *who, "commit-tree", "-m", "x", made.stdout.strip(), "-p", ref).stdout.strip()
    assert run("git", "-C", git, "update-ref", ref, head).returncode == 0
    return head


def test_a_submodule_is_no_file_and_stays(hub: Served) -> None:
    """Every listing with one was a failure: its commit is no object here."""
    assert commit(hub, file("a"), file("z/b")).status == 200
    with_submodule(hub.git())
    for query in ("", "?recursive=1", "?expand=1"):
        listed = hub.ask("GET", f"{API}/tree/v1{query}")
        assert "sub" not in [each["path"] for each in listed.json()]
        assert {"a", "z"} <= {each["path"] for each in listed.json()}
    asked = {"paths": ["sub", "sub/x", "a"], "expand": True}
    told = hub.ask("POST", f"{API}/paths-info/v1", asked, Content_Type="application/json").json()
    assert [each["path"] for each in told] == ["a"]
    refused(hub.ask("GET", "/kernels/org/my-kernel/resolve/v1/sub"), 404, "no file 'sub'", "EntryNotFound")
    files = {"files": [{"path": "sub", "size": 1}]}
    assert hub.ask("POST", f"{API}/preupload/v1", files, CI).status == 200
    assert commit(hub, file("a", b"2")).status == 200
    assert f"160000 commit {'a' * 40}\tsub" in run("git", "-C", hub.git(), "ls-tree", V1).stdout
    hub.check()


def test_a_tag_of_no_commit_is_passed_over(hub: Served, tmp_path: Path) -> None:
    """One of a tree made a failure of every `git fetch`, also of what it has nothing to do with."""
    assert commit(hub, file("a")).status == 200
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for name, what in (("tree", "v1^{tree}"), ("file", "v1:a")):
        assert run("git", "-C", hub.git(), *who, "tag", "-am", "x", name, what).returncode == 0
        assert run("git", "-C", hub.git(), "update-ref", f"refs/tags/bare-{name}", what).returncode == 0
        refused(hub.ask("GET", f"{API}/revision/{name}"), 404, "there is no revision", "RevisionNotFound")
    told = hub.ask("GET", f"{API}/refs").json()
    assert ([each["name"] for each in told["branches"]], told["tags"]) == (["main", "v1"], [])
    url = f"{hub.url}/kernels/org/my-kernel"
    first = run("git", "-C", hub.git(), "rev-parse", "v1^").stdout.strip()
    for words in (("clone", "-q", url, tmp_path / "copy"), ("-C", tmp_path / "copy", "fetch", "-q", url, first)):
        done = run("git", *words)
        assert done.returncode == 0, done.stderr
