"""`hub pull`, `hub pack` and `hub unpack`: kernels on their way to a site without a network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hub.conftest import OTHER, OWNER, READER, Serve, Served, run
from tests.hub.test_beside_git import with_submodule
from tests.hub.test_pins import TABLE, TOP, Site, answering, pyproject

if TYPE_CHECKING:
    from hubkernels.hub.changes import RemoteFile

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="the client loads kernels into torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def site(serve: Serve, tmp_path: Path) -> Site:
    (tmp_path / "project").mkdir()
    return Site(serve(), tmp_path / "project")


def head(hub: Served, branch: str, repo: str = "org/base") -> str:
    return run("git", "-C", hub.git(f"kernels/{repo}"), "rev-parse", branch).stdout.strip()


LOAD = "import kernels, sys; print(kernels.get_kernel('org/top', revision=sys.argv[1]).BASE.answer())"


def loaded(hub: Served, commit: str, home: Path) -> str:
    """By the stock client with an empty cache."""
    import sys  # noqa: PLC0415

    done = run(sys.executable, "-c", LOAD, commit, HF_ENDPOINT=hub.url, HF_TOKEN=READER, HF_HOME=str(home))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_lock_s_repositories_are_pulled_with_the_same_commits(site: Site, serve: Serve, tmp_path: Path) -> None:
    base = site.publish("org/base", answering(40))
    top = site.publish("org/top", TOP, depends=[{"repo-id": "org/base", "revision": base}])
    pyproject(site, '"org/top" = 1')
    assert site.cli("lock").code == 0
    later = site.publish("org/base", answering(41))
    ran = site.cli("hub", "pull", tmp_path / "other", "--json")
    assert ran.code == 0, ran.err
    found = {each["repo_id"]: each for each in json.loads(ran.out)}
    assert found["org/base"]["commits"] == [base]
    assert found["org/base"]["branches"]["v1"] == base, "as it is locked, though the Hub is further"
    other = serve(folder=tmp_path / "other")
    assert head(other, "v1", "org/top") == top
    assert head(other, "main", "org/top") == head(site.hub, "main", "org/top")
    other.check("kernels/org/top")
    other.check("kernels/org/base", "--no-dangling")
    assert loaded(other, top, tmp_path / "home") == "40\n"
    assert later != base


def test_what_cannot_be_had_is_told_with_the_way_out(site: Site, tmp_path: Path) -> None:
    """And nothing is in the folder."""
    commit = site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    ran = site.cli("hub", "pull", tmp_path / "other", HF_ENDPOINT="http://127.0.0.1:9")
    assert ran.code == 3
    assert "the Hub cannot be reached" in ran.err
    for file in ("kernels.lock", "kernels.hashes.json"):
        text = (site.folder / file).read_text()
        (site.folder / file).write_text(text.replace(commit, "0" * 40), encoding="utf-8")
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 1
    assert f"no branch of org/base has the commit {'0' * 40} any more" in ran.err
    site.hub.api().delete_repo("org/base", repo_type="kernel")
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 4
    assert "is the name right, and may this token see it?" in ran.err
    assert not (tmp_path / "other").exists()


def test_a_branch_that_is_damaged_on_the_hub_is_named(site: Site, tmp_path: Path) -> None:
    """It used not to come along, without a word."""
    site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    site.hub.api().create_branch("org/base", branch="v2", repo_type="kernel")
    (site.hub.git("kernels/org/base") / "refs/heads/v2").write_bytes(bytes(41))
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 4, ran.err
    assert "refs/heads/v2 of this repository is damaged, it names no commit" in ran.err
    assert not (tmp_path / "other").exists()


def test_a_private_repository_stays_private(site: Site, tmp_path: Path, serve: Serve) -> None:
    site.publish("org/base", answering(1))
    assert site.hub.ask("PUT", "/api/kernels/org/base/settings", {"private": True}, OWNER).status == 200
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("hub", "pull", tmp_path / "out").code == 0
    assert site.cli("hub", "pack", tmp_path / "x.tar", tmp_path / "out").code == 0
    assert site.cli("hub", "unpack", tmp_path / "x.tar", tmp_path / "in").code == 0
    for folder in ("out", "in"):
        other = serve(folder=tmp_path / folder)
        assert other.ask("GET", "/api/kernels/org/base", token=OTHER).status == 404
        assert other.ask("GET", "/api/kernels/org/base", token=READER).status == 200


def test_a_second_pull_moves_branches_forward_alone(site: Site, tmp_path: Path, serve: Serve) -> None:
    first = site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("hub", "pull", tmp_path / "other").code == 0
    second = site.publish("org/base", answering(2))
    assert site.cli("lock", "org/base@1", "--output", tmp_path / "new.lock").code == 0
    for lock in (tmp_path / "new.lock", site.folder / "kernels.lock"):
        ran = site.cli("hub", "pull", tmp_path / "other", "--lock", lock)
        assert ran.code == 0, ran.err
    other = serve(folder=tmp_path / "other")
    assert head(other, "v1") == second
    other.check("kernels/org/base")
    Site(other, site.folder).publish("org/base", answering(3))
    assert head(other, "v1^") == second
    assert first == head(other, "v1~2")


def test_what_was_published_there_alone_is_not_lost(site: Site, tmp_path: Path) -> None:
    from hubkernels.hub.local.accounts import Accounts, parse_tokens  # noqa: PLC0415 - collected without them, too
    from hubkernels.hub.local.serve import serve as serve_hub  # noqa: PLC0415
    from tests.hub.conftest import GRANTS  # noqa: PLC0415

    site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("hub", "pull", tmp_path / "other").code == 0
    with serve_hub(tmp_path / "other", Accounts(parse_tokens(GRANTS, "test"), frozenset())) as running:
        own = Site(Served(running), site.folder).publish("org/base", answering(9))
        ran = site.cli("hub", "pull", tmp_path / "other")
        assert ran.code == 3
        assert "another server has" in ran.err
    site.publish("org/base", answering(2))
    assert site.cli("lock", "org/base@1").code == 0
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 1
    assert "v1 of org/base has commits that the other has not" in ran.err
    git = tmp_path / "other/kernels/org/base.git"
    assert run("git", "-C", git, "rev-parse", "v1").stdout.strip() == own


def test_files_that_are_not_those_of_the_lock_are_not_pulled(site: Site, tmp_path: Path) -> None:
    site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    hashes = site.folder / "kernels.hashes.json"
    text = hashes.read_text()
    start = text.index("data/table.bin") + len('data/table.bin": "')
    hashes.write_text(text[:start] + "0" * 64 + text[start + 64 :], encoding="utf-8")
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 1
    assert f"data/table.bin has {text[start : start + 64]}: the lock has {'0' * 64}" in ran.err
    assert not (tmp_path / "other").exists()


def test_without_hashes_files_are_held_against_their_digests(site: Site, tmp_path: Path) -> None:
    """As `prefetch` does, with a warning."""
    site.publish("org/base", answering(1))
    assert site.cli("lock", "org/base@1").code == 0
    (site.folder / "kernels.hashes.json").unlink()
    ran = site.cli("hub", "pull", tmp_path / "good")
    assert ran.code == 0, ran.err
    assert "warning: no hashes beside the lock" in ran.err
    wrong = site.publish("org/base", answering(2), digest={"algorithm": "sha256", "files": {"__init__.py": "AAAA"}})
    text = (site.folder / "kernels.lock").read_text()
    commit = json.loads(text)[0]["lock"]["commit"]
    (site.folder / "kernels.lock").write_text(text.replace(commit, wrong), encoding="utf-8")
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 1
    assert "build/torch-cpu/__init__.py has " in ran.err
    assert not (tmp_path / "other").exists()


def test_a_large_file_is_the_one_that_git_points_to(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing used to be believed: what was held against the lock was not what git has."""
    from dataclasses import replace  # noqa: PLC0415 - as the rest

    from hubkernels.errors import CheckFailedError  # noqa: PLC0415
    from hubkernels.hub.lock_files import read_lock  # noqa: PLC0415
    from hubkernels.hub.pull import pull  # noqa: PLC0415 - collected without its needs, too
    from hubkernels.hub.remote import Remote  # noqa: PLC0415

    site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    monkeypatch.setattr("hubkernels.hub.remote._client", lambda _: site.hub.api(READER))
    lock, files = read_lock(site.folder / "kernels.lock"), Remote.files
    (hashes,) = (lock.files or {}).values()

    def all_large(self: Remote, commit: str) -> dict[str, RemoteFile]:
        return {path: replace(file, sha256=hashes[path]) for path, file in files(self, commit).items()}

    monkeypatch.setattr(Remote, "files", all_large)
    remote = Remote("org/base", cache=tmp_path / "cache")
    with pytest.raises(CheckFailedError, match="no pointer to what the Hub lists"):
        list(pull(lock, lambda _: remote, tmp_path / "other"))


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, on upload
def test_large_files_come_along(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    (tmp_path / "project").mkdir()
    site = Site(serve(lfs="always"), tmp_path / "project")
    base = site.publish("org/base", answering(40))
    top = site.publish("org/top", TOP, depends=[{"repo-id": "org/base", "revision": base}])
    assert site.cli("lock", "org/top@1").code == 0
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 0, ran.err
    other = serve(folder=tmp_path / "other")
    assert list((tmp_path / "other/kernels/org/base.git/lfs/objects").rglob("*"))
    assert loaded(other, top, tmp_path / "home") == "40\n"


def prefetched(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, str]:
    """A site whose cache has a published kernel with a large file, and the commit of it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    (tmp_path / "project").mkdir()
    site = Site(serve(lfs="always"), tmp_path / "project")
    commit = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("prefetch", "--lock", site.folder / "kernels.lock").code == 0
    return site, commit


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, on upload
def test_a_large_file_that_is_damaged_in_the_cache_is_fetched_anew(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Hub was blamed for it, by each pull."""
    site, commit = prefetched(serve, tmp_path, monkeypatch)
    for damaged in (TABLE[:-1], TABLE[:-1] + b"?", TABLE + b"?"):
        blob = (site.cached("org/base", commit) / "build/torch-cpu/data/table.bin").resolve()
        assert blob.read_bytes() == TABLE
        blob.write_bytes(damaged)
        ran = site.cli("hub", "pull", tmp_path / "other")
        assert ran.code == 0, ran.err
    kept = site.hub.git("kernels/org/base") / "lfs/objects"
    (spoilt,) = (path for path in kept.rglob("*") if path.is_file() and path.read_bytes() == TABLE)
    spoilt.chmod(0o644)
    spoilt.write_bytes(TABLE[::-1])
    blob.unlink()
    ran = site.cli("hub", "pull", tmp_path / "third")
    assert ran.code == 1, ran.err
    assert "it is so when it is fetched anew, too: ask who runs the Hub" in ran.err


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, on upload
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_in_the_cache_is_named(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    """A folder was an error without a way out, and a pipe was waited for, for ever."""
    site, commit = prefetched(serve, tmp_path, monkeypatch)
    blob = (site.cached("org/base", commit) / "build/torch-cpu/data/table.bin").resolve()
    blob.unlink()
    make(blob)
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert (ran.code, f"{blob} is no plain file" in ran.err, "delete it" in ran.err) == (3, True, True), ran.err
    assert not (tmp_path / "other").exists()
    shutil.rmtree(blob) if blob.is_dir() else blob.unlink()
    assert site.cli("hub", "pull", tmp_path / "other").code == 0


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_large_files_of_other_commits_are_named_when_they_are_asked_for(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their pointers were given as the files. What was left out is no damage, at the second site neither."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    (tmp_path / "project").mkdir()
    site, api = Site(serve(lfs="always"), tmp_path / "project"), "/api/kernels/org/base"
    site.publish("org/base", answering(40))
    for branch, text in (("main", b"of main"), ("v1", b"older"), ("v1", b"newer")):
        site.hub.api().upload_file(
            repo_id="org/base", repo_type="kernel", path_or_fileobj=text, path_in_repo="x.bin", revision=branch
        )
    older = site.hub.ask("GET", f"{api}/commits/v1").json()[1]["id"]
    assert site.cli("lock", "org/base@1").code == 0
    for words in (("pull", tmp_path / "out"), ("pack", tmp_path / "x.tar", tmp_path / "out")):
        ran = site.cli("hub", *words)
        assert ran.code == 0, ran.err
    for _ in range(2):
        ran = site.cli("hub", "unpack", tmp_path / "x.tar", tmp_path / "in")
        assert ran.code == 0, ran.err
    other, page = serve(folder=tmp_path / "in"), "/kernels/org/base/resolve"
    assert other.ask("GET", other.ask("GET", f"{page}/v1/x.bin").headers["Location"]).body == b"newer"
    for revision in ("main", older):
        answer = other.ask("GET", f"{page}/{revision}/x.bin")
        assert answer.status == 503
        assert "`kernel-builder hub pull` it with a lock that names this commit" in answer.json()["error"]
    assert site.cli("lock", f"org/base@{older}").code == 0
    ran = site.cli("hub", "pull", tmp_path / "out")
    assert ran.code == 0, ran.err
    left_out = (tmp_path / "out/kernels/org/base.git/lfs/left-out").read_text()
    assert left_out == f"{hashlib.sha256(b'of main').hexdigest()}\n"
    (lost,) = (path for path in (tmp_path / "out").rglob("lfs/objects/*/*/*") if path.read_bytes() == b"newer")
    lost.unlink()
    ran = site.cli("hub", "pack", tmp_path / "y.tar", tmp_path / "out")
    assert (ran.code, f"{lost.name}, the content of a large file, is missing" in ran.err) == (1, True), ran.err


def test_a_submodule_is_passed_over(site: Site, tmp_path: Path, serve: Serve) -> None:
    """It was a traceback: its commit is no object of the repository."""
    site.publish("org/base", answering(1))
    commit = with_submodule(site.hub.git("kernels/org/base"))
    assert site.cli("lock", "org/base@1").code == 0
    ran = site.cli("hub", "pull", tmp_path / "other")
    assert ran.code == 0, ran.err
    assert head(serve(folder=tmp_path / "other"), "v1") == commit


@pytest.fixture
def archive(site: Site, tmp_path: Path) -> Path:
    """Two kernels, pulled and packed."""
    base = site.publish("org/base", answering(40))
    site.publish("org/top", TOP, depends=[{"repo-id": "org/base", "revision": base}])
    assert site.cli("lock", "org/top@1").code == 0
    assert site.cli("hub", "pull", tmp_path / "out").code == 0
    ran = site.cli("hub", "pack", tmp_path / "kernels.tar", tmp_path / "out")
    assert ran.code == 0, ran.err
    return tmp_path / "kernels.tar"


def test_an_archive_brings_a_hub_to_another_place(site: Site, archive: Path, serve: Serve, tmp_path: Path) -> None:
    ran = site.cli("hub", "unpack", archive, tmp_path / "in", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["repositories"] == ["kernels/org/base", "kernels/org/top"]
    assert site.cli("hub", "unpack", archive, tmp_path / "in").code == 0, "a second time changes nothing"
    other = serve(folder=tmp_path / "in")
    top = head(site.hub, "v1", "org/top")
    assert head(other, "v1", "org/top") == top
    other.check("kernels/org/top")
    assert loaded(other, top, tmp_path / "home") == "40\n"


def test_an_archive_replaces_no_pipe_and_goes_through_a_link(site: Site, archive: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = site.cli("hub", "pack", tmp_path / "pipe", tmp_path / "out")
    assert (ran.code, "is no regular file" in ran.err) == (3, True), ran.err
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("led-to.tar")
    assert site.cli("hub", "pack", tmp_path / "link", tmp_path / "out").code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "led-to.tar").read_bytes() == archive.read_bytes()


def test_an_archive_is_read_once(archive: Path, tmp_path: Path) -> None:
    """So it may come through a pipe. It used to be read a second time for its hash."""
    from hubkernels.hub.archive import unpack  # noqa: PLC0415 - collected without its needs, too

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(archive.read_bytes()), daemon=True)
    writer.start()
    carried = unpack(tmp_path / "pipe", tmp_path / "in")
    assert carried.sha256 == hashlib.sha256(archive.read_bytes()).hexdigest()


def test_the_same_folder_gives_the_same_archive(site: Site, archive: Path, tmp_path: Path) -> None:
    assert site.cli("hub", "pack", tmp_path / "again.tar", tmp_path / "out").code == 0
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()
    done = run("tar", "-tf", archive)
    assert done.returncode == 0, done.stderr
    assert "kernels/org/base.git/refs/heads/v1" in done.stdout.splitlines()
    assert not [name for name in done.stdout.splitlines() if name.endswith(("/config", "/HEAD"))]


def test_one_flipped_byte_is_refused_by_name_wherever_it_is(archive: Path, tmp_path: Path) -> None:
    """In headers, in contents and in the padding behind them; nothing is unpacked."""
    from hubkernels.errors import CheckFailedError  # noqa: PLC0415 - as the rest
    from hubkernels.hub.archive import unpack  # noqa: PLC0415 - collected without its needs, too

    whole, bad = archive.read_bytes(), tmp_path / "bad.tar"
    name = b"kernels/org/base.git/refs/heads/v1"
    start = whole.rindex(name)  # its header; one block on is its content, 41 bytes
    messages = {}
    for place in (*range(0, len(whole), 997), start, start + 512, start + 512 + 60, len(whole) - 1):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckFailedError) as raised:
            unpack(bad, tmp_path / "in")
        messages[place] = raised.value.problems[0].what
        assert not (tmp_path / "in").exists()
    assert messages[start] == f"the header of {name.decode()} is damaged"
    assert messages[start + 512].startswith(f"{name.decode()} has ")
    assert messages[start + 512 + 60] == f"what follows {name.decode()} is damaged"
    for text in (whole[:-1], whole[: len(whole) // 2], whole + b"\0", b""):
        bad.write_bytes(text)
        with pytest.raises(CheckFailedError):
            unpack(bad, tmp_path / "in")


def test_what_refuses_leaves_no_folder_that_was_not_there(site: Site, archive: Path, tmp_path: Path) -> None:
    """Nor anything in an empty one; a Hub that was there before stays one. They used to be Hubs from then on."""
    bad, empty, hub = tmp_path / "bad.tar", tmp_path / "empty", tmp_path / "out"
    bad.write_bytes(archive.read_bytes()[:-1])
    empty.mkdir()
    before = sorted(hub.rglob("*"))
    for folder in (tmp_path / "new/deep", empty, hub):
        assert site.cli("hub", "unpack", bad, folder).code == 1
    assert not (tmp_path / "new").exists()
    assert not list(empty.iterdir())
    assert sorted(hub.rglob("*")) == before
    assert site.cli("hub", "unpack", archive, empty).code == 0
    assert (empty / "kernels/org/top.git").is_dir()


def test_a_folder_that_is_served_is_packed_when_its_server_is_stopped(
    site: Site, archive: Path, serve: Serve, tmp_path: Path
) -> None:
    """The hint used to be to serve another folder."""
    serve(folder=tmp_path / "out")
    ran = site.cli("hub", "pack", tmp_path / "x.tar", tmp_path / "out")
    assert (ran.code, "stop it, pack, and start it again; or `kernel-builder hub pull`" in ran.err) == (3, True), (
        ran.err
    )
    ran = site.cli("hub", "unpack", archive, tmp_path / "out")
    assert (ran.code, "hint: stop it, and start it again afterwards\n" in ran.err) == (3, True), ran.err


def test_a_folder_of_something_else_is_left_alone(site: Site, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "mine/tmp").mkdir(parents=True)
    for words in (("pack", tmp_path / "x.tar", tmp_path / "mine"), ("unpack", archive, tmp_path / "mine")):
        ran = site.cli("hub", *words)
        assert ran.code == 2
        assert "mine is no Hub, and not empty" in ran.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["tmp"]
    assert not (tmp_path / "x.tar").exists()


@pytest.mark.parametrize(
    "name",
    [
        "kernels/org/base.git/config",
        "kernels/org/base.git/hooks/post-update",
        "kernels/org/base.git/refs/heads/../../config",
        "../kernels/org/base.git/hub.json",
        "kernels/../base.git/hub.json",
        "kernels/org/base.git/lfs/objects/00/00/" + "0" * 64,
    ],
)
def test_an_archive_that_was_made_to_harm_is_refused(tmp_path: Path, name: str) -> None:
    """What git would obey, what would leave the folder, and a large file of another name."""
    import hashlib  # noqa: PLC0415
    from io import BytesIO  # noqa: PLC0415

    from hubkernels.errors import HubkernelsError  # noqa: PLC0415
    from hubkernels.hub.archive import Member, _write, unpack  # noqa: PLC0415 - collected without its needs, too

    source = tmp_path / "a/b"
    for folder in ("kernels/org/base.git/refs/heads", str(Path(name).parent)):
        (source / folder).mkdir(parents=True, exist_ok=True)
    (source / name).write_bytes(b"x")
    written = BytesIO()
    _write(written, source, {name: Member(1, hashlib.sha256(b"x").hexdigest())})
    (tmp_path / "bad.tar").write_bytes(written.getvalue())
    with pytest.raises(HubkernelsError, match="is no file of a Hub|its name has|cannot be the owner"):
        unpack(tmp_path / "bad.tar", tmp_path / "in")
    assert not (tmp_path / "in").exists()


def harmful(archive: Path, source: Path, head: str, packed: str) -> Path:
    """An archive of the same kernels, where org/base has one branch in a file and others in packed-refs."""
    from hubkernels.host.files import hash_file  # noqa: PLC0415 - as the rest
    from hubkernels.hub.archive import Member, _carried, _write  # noqa: PLC0415 - collected without its needs, too

    git = source / "kernels/org/base.git"
    (git / "refs/heads/main").write_text(head, encoding="ascii")
    (git / "packed-refs").write_text(packed, encoding="ascii")
    members = {name: Member(path.stat().st_size, hash_file(path)) for name, path in _carried(source)}
    bad = archive.with_name("bad.tar")
    with bad.open("wb") as file:
        _write(file, source, members)
    return bad


def test_refs_of_an_archive_lead_nowhere_else(archive: Path, tmp_path: Path) -> None:
    """They used to be taken as paths, and their values as text: any file below the folder, and beside it."""
    from hubkernels.errors import CheckFailedError  # noqa: PLC0415 - as the rest
    from hubkernels.hub.archive import unpack  # noqa: PLC0415 - collected without its needs, too

    main = (tmp_path / "out/kernels/org/base.git/refs/heads/main").read_text()
    lines = [f"{main.strip()} refs/heads/../../../top.git/hub.json", "{} refs/heads/value", f"{main.strip()} evil"]
    unpack(archive, tmp_path / "in")
    settings = tmp_path / "in/kernels/org/top.git/hub.json"
    before = settings.read_bytes()
    unpack(harmful(archive, tmp_path / "out", main, f"{lines[0]}\n"), tmp_path / "in")
    assert settings.read_bytes() == before
    with pytest.raises(CheckFailedError, match="org/base is damaged: packed-refs names no commit"):
        unpack(harmful(archive, tmp_path / "out", main, "\n".join(lines) + "\n"), tmp_path / "in")
    assert settings.read_bytes() == before
    git = tmp_path / "in/kernels/org/base.git"
    assert not (git / "refs/heads/value").exists()
    assert not (git / "evil").exists()


@pytest.mark.parametrize("again", [False, True])
def test_a_head_that_is_no_commit_that_came_is_refused(archive: Path, tmp_path: Path, again: bool) -> None:  # noqa: FBT001
    from hubkernels.errors import CheckFailedError  # noqa: PLC0415 - as the rest
    from hubkernels.hub.archive import unpack  # noqa: PLC0415 - collected without its needs, too

    if again:
        unpack(archive, tmp_path / "in")
    bad = harmful(archive, tmp_path / "out", "0" * 40 + "\n", "# pack-refs with: peeled fully-peeled sorted \n")
    with pytest.raises(CheckFailedError, match=f"org/base is damaged: refs/heads/main names {'0' * 40}, which is no"):
        unpack(bad, tmp_path / "in")
    assert (tmp_path / "in/kernels/org/base.git").exists() == again


@pytest.mark.parametrize("name", ["refs/heads/../../../../x", "hub.json", "/etc/x", "heads/main", "refs/heads/"])
def test_what_is_no_ref_is_neither_read_nor_written_nor_deleted(tmp_path: Path, name: str) -> None:
    from hubkernels.hub.local.answers import Refusal  # noqa: PLC0415 - collected without its needs, too
    from hubkernels.hub.local.refs import Refs  # noqa: PLC0415

    refs = Refs(tmp_path / "a/b/c.git", tmp_path)
    (tmp_path / "a/b/c.git").mkdir(parents=True)
    for place in ("x", "a/b/c.git/hub.json"):
        (tmp_path / place).write_text("1" * 40, encoding="ascii")
    assert refs.get(name) is None
    with pytest.raises(Refusal, match="is no name of a ref"):
        refs.set(name, "0" * 40)
    with pytest.raises(Refusal, match="is no name of a ref"):
        refs.delete(name)
    with pytest.raises(Refusal, match="is no object"):
        refs.set("refs/heads/main", "0" * 39)
    assert (tmp_path / "x").read_text() == (tmp_path / "a/b/c.git/hub.json").read_text() == "1" * 40


def test_what_another_made_in_the_folder_meanwhile_stays(tmp_path: Path) -> None:
    """The scratch folder used to go after the lock: then it is another server's."""
    from hubkernels.errors import EnvironmentLacksError  # noqa: PLC0415 - as the rest
    from hubkernels.hub.local.hub import Hub  # noqa: PLC0415 - collected without its needs, too

    first, second = Hub(tmp_path / "hub"), Hub(tmp_path / "hub")
    first.open()
    (first.scratch / "half").write_text("", encoding="ascii")
    with pytest.raises(EnvironmentLacksError, match="another server has"):
        second.open()
    second.close()
    assert (first.scratch / "half").exists()
    first.close()
    assert not first.scratch.exists()
