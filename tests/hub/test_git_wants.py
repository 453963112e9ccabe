"""What the embedded Hub gives by git: any commit that a ref leads to, as `git fetch` and our loader ask for it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.hub.conftest import OTHER, OWNER, READER, Served, run
from tests.hub.test_clients import add, commit
from tests.hub.test_http import PAGE


def fetched(folder: Path, url: str, *words: str) -> str:
    """What git says when it cannot; empty where it could."""
    if not folder.exists():
        assert run("git", "init", "-q", "--bare", folder).returncode == 0
    done = run("git", "-C", folder, "fetch", "-q", *words[:-1], url, words[-1])
    return done.stderr if done.returncode else ""


@pytest.fixture
def history(hub: Served) -> tuple[str, str]:
    """An earlier commit and the head of a branch, with a small file and a large one."""
    first = commit(hub, add("small", b"1"), add("large", os.urandom(5000)))
    return first, commit(hub, add("small", b"2"))


@pytest.mark.parametrize("protocol", ["0", "1", "2"])
def test_git_fetches_a_commit_that_is_no_head(
    hub: Served, history: tuple[str, str], tmp_path: Path, protocol: str
) -> None:
    url = f"{hub.url}/kernels/org/my-kernel"
    for number, oid in enumerate(history):
        for words in ((), ("--depth", "1")):
            folder = tmp_path / f"{number}-{'-'.join(words).replace('/', '')}"
            assert run("git", "init", "-q", "--bare", folder).returncode == 0
            done = run("git", "-C", folder, "-c", f"protocol.version={protocol}", "fetch", "-q", *words, url, oid)
            assert done.returncode == 0, done.stderr
            assert run("git", "-C", folder, "rev-parse", "FETCH_HEAD").stdout.strip() == oid
            log = run("git", "-C", folder, "log", "--format=%H", "FETCH_HEAD").stdout.split()
            assert len(log) == 1 if "--depth" in words else len(log) > 1


@pytest.mark.parametrize("words", ["blob:none", "blob:limit=1k", "tree:0"])
def test_a_clone_that_asks_for_a_part_gets_the_whole(
    hub: Served, history: tuple[str, str], tmp_path: Path, words: str
) -> None:
    """git was promised that it might come again for files, and then given none: its checkout failed."""
    url, folder = f"{hub.url}/kernels/org/my-kernel", tmp_path / "clone"
    done = run("git", "clone", "-q", f"--filter={words}", "-b", "v1", url, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "small").read_bytes() == b"2"
    assert run("git", "-C", folder, "show", f"{history[0]}:small").stdout == "1"
    assert run("git", "-C", folder, "fsck").returncode == 0


@pytest.mark.parametrize("protocol", ["0", "2"])
@pytest.mark.parametrize("more", ["--refetch", "--no-tags", "--filter=blob:none"])
def test_who_has_a_part_of_history_fetches_on(
    hub: Served, history: tuple[str, str], tmp_path: Path, protocol: str, more: str
) -> None:
    """Every fetch from a shallow clone was answered 400. What only the missing part has is sent, too."""
    url, folder = f"{hub.url}/kernels/org/my-kernel", tmp_path / "clone"
    assert run("git", "clone", "-q", "--depth=1", "-b", "v1", url, folder).returncode == 0
    head = commit(hub, add("small", b"1"), add("new", b"3"))
    for words in ((more,), ("--refetch", more)):
        done = run("git", "-C", folder, "-c", f"protocol.version={protocol}", "fetch", "-q", *words, "origin", "v1")
        assert done.returncode == 0, done.stderr
        assert run("git", "-C", folder, "show", "FETCH_HEAD:small").stdout == "1"
        log = run("git", "-C", folder, "log", "--format=%H", "FETCH_HEAD").stdout.split()
        assert log == [head, history[1]]
        assert run("git", "-C", folder, "fsck", "--connectivity-only").returncode == 0
    assert run("git", "-C", folder, "fetch", "-q", "--unshallow").returncode == 0
    assert history[0] in run("git", "-C", folder, "log", "--format=%H", "origin/v1").stdout


def test_a_filter_that_nobody_was_offered_is_refused(hub: Served, history: tuple[str, str]) -> None:
    """One is read from an object, whose id may be one that no ref leads to."""
    asked = f"want {history[1]} side-band-64k ofs-delta\n".encode(), f"filter sparse:oid={'a' * 40}\n".encode()
    sent = b"".join(b"%04x%s" % (len(line) + 4, line) for line in asked) + b"00000009done\n"
    answer = hub.ask("POST", f"{PAGE}/git-upload-pack", sent)
    assert answer.status == 400
    assert "filters by size alone" in answer.json()["error"]


def test_the_advertisement_says_so(hub: Served) -> None:
    answer = hub.ask("GET", f"{PAGE}/info/refs?service=git-upload-pack")
    assert b" allow-reachable-sha1-in-want" in answer.body
    assert b"refs/wanted" not in answer.body
    assert b" filter" not in answer.body


def test_what_no_ref_leads_to_is_given_to_nobody(hub: Served, history: tuple[str, str], tmp_path: Path) -> None:
    api = hub.api()
    api.create_branch("org/my-kernel", branch="gone", repo_type="kernel")
    lost = commit(hub, add("secret", b"x"), revision="gone")
    url = f"{hub.url}/kernels/org/my-kernel"
    assert fetched(tmp_path / "before", url, lost) == ""
    api.delete_branch("org/my-kernel", branch="gone", repo_type="kernel")
    tree = run("git", "-C", hub.git(), "rev-parse", f"{history[0]}^{{tree}}").stdout.strip()
    blob = run("git", "-C", hub.git(), "rev-parse", f"{history[0]}:small").stdout.strip()
    for oid in (lost, "a" * 40, tree, blob):
        assert fetched(tmp_path / "after", url, "--depth", "1", oid), f"{oid} was given"
    api.create_repo("org/another", repo_type="kernel")
    assert fetched(tmp_path / "other", f"{hub.url}/kernels/org/another", history[0])


def test_a_tag_and_a_pull_request_lead_to_commits_too(hub: Served, tmp_path: Path) -> None:
    api = hub.api()
    api.create_branch("org/my-kernel", branch="short", repo_type="kernel")
    tagged = commit(hub, add("a", b"1"), revision="short")
    head = commit(hub, add("a", b"2"), revision="short")
    api.create_tag("org/my-kernel", tag="t", revision=head, tag_message="an object", repo_type="kernel")
    api.delete_branch("org/my-kernel", branch="short", repo_type="kernel")
    assert fetched(tmp_path / "copy", f"{hub.url}/kernels/org/my-kernel", "--depth", "1", tagged) == ""


def test_a_private_commit_is_given_with_a_token_alone(hub: Served, history: tuple[str, str], tmp_path: Path) -> None:
    assert hub.ask("PUT", "/api/kernels/org/my-kernel/settings", {"private": True}, OWNER).status == 200
    for token, given in ((READER, True), (OTHER, False), ("hf_none", False)):
        url = f"{hub.url}/kernels/org/my-kernel".replace("://", f"://user:{token}@")
        assert (fetched(tmp_path / token, url, "--depth", "1", history[0]) == "") is given


def test_who_asks_is_looked_at_before_what_and_that_is_small(hub: Served) -> None:
    """64 MiB were taken into memory, and inflated, of whoever sent them to a repository that is private."""
    large, where = b"0" * (1 << 20) + b"0", f"{PAGE}/git-upload-pack"
    packed = gzip.compress(large)
    assert hub.ask("POST", where, large).status == 413
    assert hub.ask("POST", where, packed, Content_Encoding="gzip").status == 413
    assert hub.ask("PUT", "/api/kernels/org/my-kernel/settings", {"private": True}, OWNER).status == 200
    for body, headers in (
        (large, {}),
        (packed, {"Content_Encoding": "gzip"}),
        (b"no gzip", {"Content_Encoding": "gzip"}),
    ):
        assert hub.ask("POST", where, body, **headers).status == 401
        assert hub.ask("POST", where, body, OTHER, **headers).status == 404
