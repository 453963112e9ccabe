"""A repository that is damaged is carried nowhere, and joined with none."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from dulwich.objects import Blob, ObjectID, Tree

from hubkernels.errors import CheckFailedError
from hubkernels.host.files import hash_file
from hubkernels.hub.archive import Member, _carried, _write, pack, unpack
from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.change import Change, new_commit
from hubkernels.hub.local.objects import Staging
from hubkernels.hub.local.repository import Repository
from hubkernels.hub.local.serve import serve
from hubkernels.hub.local.tree import FILE, FOLDER
from tests.hub.conftest import CI, GRANTS, OWNER, Served, run
from tests.hub.test_http import file, lines, pointer, upload

GIT = "kernels/org/my-kernel.git"
DAMAGED = r"org/my-kernel is damaged: {}\S* is not what its hash says"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Hub's folder, which nobody serves: a kernel with a branch, a tag, a pull request, a large file, and another."""
    with serve(tmp_path / "hub", Accounts(parse_tokens(GRANTS, "test"))) as running:
        hub = Served(running)
        for name in ("my-kernel", "second"):
            hub.api().create_repo(f"org/{name}", repo_type="kernel")
        api = "/api/kernels/org/my-kernel"
        upload(hub, b"large")
        body = lines(file("a", b"1"), file("d/e", os.urandom(9000)), pointer("x", b"large"))
        assert hub.ask("POST", f"{api}/commit/main", body, CI).status == 200
        assert hub.ask("POST", f"{api}/tag/main", {"tag": "t", "message": "m"}, CI).status == 200
        assert hub.ask("POST", f"{api}/commit/main?create_pr=1", lines(file("b", b"2")), OWNER).status == 200
    return tmp_path / "hub"


def packed(folder: Path) -> None:
    assert run("git", "-C", folder / GIT, "gc", "-q", "--prune=now").returncode == 0


def damages(path: Path) -> Iterator[None]:
    """Flips a byte here and there, one at a time, and cuts the file off; last it is as it was."""
    whole = path.read_bytes()
    path.chmod(0o644)
    places = [*range(0, len(whole), max(1, len(whole) // 4)), len(whole) - 1]
    for text in (b"", whole[:-1], *(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in places)):
        path.write_bytes(text)
        yield
    path.write_bytes(whole)


def stored(folder: Path) -> list[Path]:
    git = folder / GIT
    found = [*git.glob("objects/??/*"), *git.glob("objects/pack/*.pack"), *git.glob("objects/pack/*.idx")]
    return [*found, *git.glob("lfs/objects/??/??/*")]


@pytest.mark.parametrize("gc", [False, True])
def test_what_is_damaged_is_not_packed(folder: Path, tmp_path: Path, gc: bool) -> None:  # noqa: FBT001
    """It used to be, with a good word; who unpacked it got a traceback."""
    if gc:
        packed(folder)
    for path in stored(folder):
        name = path.relative_to(folder / GIT).with_suffix("")
        for _ in damages(path):
            with pytest.raises(CheckFailedError, match=DAMAGED.format(name)):
                pack(folder, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()
    assert pack(folder, tmp_path / "x.tar").repositories == ("kernels/org/my-kernel", "kernels/org/second")


def test_what_is_missing_is_named_with_what_needs_it(folder: Path, tmp_path: Path) -> None:
    for path in (folder / GIT).glob("objects/??/*"):
        oid = path.parent.name + path.name
        path.rename(tmp_path / "away")
        with pytest.raises(CheckFailedError, match=f"org/my-kernel is damaged: refs/.*{oid}, which is no"):
            pack(folder, tmp_path / "x.tar")
        (tmp_path / "away").rename(path)
    pack(folder, tmp_path / "x.tar")


def large_file(folder: Path) -> Path:
    (path,) = (folder / GIT).glob("lfs/objects/??/??/*")
    return path


@pytest.mark.parametrize("gc", [False, True])
def test_a_large_file_that_is_missing_is_named(folder: Path, tmp_path: Path, gc: bool) -> None:  # noqa: FBT001
    """It was packed and unpacked without a word, and its pointer then given as the file."""
    if gc:
        packed(folder)
    path = large_file(folder)
    path.rename(tmp_path / "away")
    told = f"org/my-kernel is damaged: {path.relative_to(folder / GIT)}, the content of a large file, is missing"
    with pytest.raises(CheckFailedError, match=told):
        pack(folder, tmp_path / "x.tar")
    with pytest.raises(CheckFailedError, match=told):
        unpack(archived(folder, tmp_path / "x.tar"), tmp_path / "in")
    assert not (tmp_path / "in").exists()
    (tmp_path / "away").rename(path)
    pack(folder, tmp_path / "x.tar")


@pytest.mark.parametrize("moved", ["lfs/objects", "lfs", "objects", "refs/heads", "lfs/objects/*/*/*", ""])
def test_links_of_an_operator_are_followed(folder: Path, tmp_path: Path, moved: str) -> None:
    """Large files on another disk were not in the archive."""
    pack(folder, tmp_path / "x.tar")
    (place,) = (folder / GIT).glob(moved) if moved else (folder / GIT,)
    place.rename(tmp_path / "disk")
    place.symlink_to(tmp_path / "disk")
    pack(folder, tmp_path / "y.tar")
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "y.tar").read_bytes()


def test_what_comes_where_a_link_leads_to_another_disk_is_copied_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each upload was a failure."""
    disk = tmp_path / "disk"
    disk.mkdir()
    for name in ("lfs/objects", "objects", "refs/heads"):
        (folder / GIT / name).rename(disk / name.replace("/", "-"))
        (folder / GIT / name).symlink_to(disk / name.replace("/", "-"))
    replace = Path.replace

    def refused(path: Path, target: Path) -> Path:
        if path.resolve().is_relative_to(disk) != target.resolve().is_relative_to(disk):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refused)
    with serve(folder, Accounts(parse_tokens(GRANTS, "test"))) as running:
        hub = Served(running)
        upload(hub, b"second")
        body = lines(file("c", os.urandom(9)), pointer("y", b"second"))
        assert hub.ask("POST", "/api/kernels/org/my-kernel/commit/main", body, CI).status == 200
        link = hub.ask("GET", "/kernels/org/my-kernel/resolve/main/y").headers["Location"]
        assert hub.ask("GET", link).body == b"second"
    pack(folder, tmp_path / "x.tar")
    assert not list(disk.rglob(".*"))
    second = hashlib.sha256(b"second").hexdigest()
    assert stat.S_IMODE((disk / "lfs-objects" / second[:2] / second[2:4] / second).stat().st_mode) == 0o444


def test_a_name_that_an_index_made_up_is_found(folder: Path, tmp_path: Path) -> None:
    """With every checksum as it should be."""
    packed(folder)
    (index,) = (folder / GIT).glob("objects/pack/*.idx")
    text = index.read_bytes()
    at = 8 + 4 * 256 + 19  # of the last byte of the first name
    text = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 : -20]
    index.chmod(0o644)
    index.write_bytes(text + hashlib.sha1(text, usedforsecurity=False).digest())
    with pytest.raises(CheckFailedError, match=DAMAGED.format("objects/pack/")):
        pack(folder, tmp_path / "x.tar")


def archived(folder: Path, file: Path) -> Path:
    """As one that packs without a look."""
    members = {name: Member(path.stat().st_size, hash_file(path)) for name, path in _carried(folder)}
    with file.open("wb") as archive:
        _write(archive, folder, members)
    return file


@pytest.mark.parametrize("gc", [False, True])
def test_of_an_archive_with_damage_nothing_is_unpacked(folder: Path, tmp_path: Path, gc: bool) -> None:  # noqa: FBT001
    """Nor is the repository before it; and one that lacks an object is damaged, too."""
    if gc:
        packed(folder)
    path = stored(folder)[0]
    for _ in damages(path):
        archive = archived(folder, tmp_path / "x.tar")
        with pytest.raises(CheckFailedError, match=DAMAGED.format("objects/")):
            unpack(archive, tmp_path / "in")
    path.unlink()
    archive = archived(folder, tmp_path / "x.tar")
    with pytest.raises(CheckFailedError, match=r"org/my-kernel is damaged: ") as raised:
        unpack(archive, tmp_path / "in")
    assert raised.value.problems[0].where == str(tmp_path / "x.tar")
    assert not (tmp_path / "in").exists()


def with_entry(folder: Path, name: bytes, mode: int) -> str:
    """A commit on main with an entry that no client may send; tells its folder's id."""
    (folder / "scratch").mkdir()
    git = Repository(folder / GIT, folder / "scratch")
    with closing(git.objects), closing(Staging(git.objects)) as staging:
        content = Tree() if mode == FOLDER else Blob()
        if isinstance(content, Tree):
            content.add(b"x", FILE, ObjectID(staging.add("blob", b"x").encode()))
        below, tree = Tree(), Tree()
        below.add(name, mode, ObjectID(staging.add_object(content).encode()))
        tree.add(b"d", FOLDER, ObjectID(staging.add_object(below).encode()))
        made = new_commit(staging.add_object(tree), None, Change("x", "", "who", None, ()))
        git.refs.set("refs/heads/main", staging.add_object(made))
        staging.publish()
    (folder / "scratch").rmdir()
    return below.id.decode()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(
            (name, FOLDER)
            for name in (b"..", b".", b".git", b".GIT", b"git~1", ".g\u200cit".encode(), b"a/b", b"..\\b")
        ),
        *((name, FILE) for name in (b"..", b".git", b".GitModules", b"a/../../b", b"x" * 256)),
        (b".gitmodules", 0o120000),
        *((b"name", mode) for mode in (0o100664, 0o100600, 0o104755, 0o644, 0o020644, 0)),
    ],
)
def test_a_tree_that_no_client_may_make_is_neither_packed_nor_unpacked(
    folder: Path, tmp_path: Path, name: bytes, mode: int
) -> None:
    """The Hub served what came so, to be written wherever its name leads."""
    tree = with_entry(folder, name, mode)
    archive = archived(folder, tmp_path / "x.tar")
    with pytest.raises(CheckFailedError, match=f"org/my-kernel is damaged: its folder {tree} has "):
        pack(folder, tmp_path / "y.tar")
    with pytest.raises(CheckFailedError, match=f"org/my-kernel is damaged: its folder {tree} has "):
        unpack(archive, tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_tree_that_no_ref_leads_to_is_looked_at_too(folder: Path, tmp_path: Path) -> None:
    """Whoever knows the id of a commit may ask for it."""
    before = (folder / GIT / "refs/heads/main").read_bytes()
    with_entry(folder, b"..", FOLDER)
    (folder / GIT / "refs/heads/main").write_bytes(before)
    with pytest.raises(CheckFailedError, match=r"has '\.\.'"):
        pack(folder, tmp_path / "x.tar")


def test_a_tree_that_is_none_is_named(folder: Path, tmp_path: Path) -> None:
    git = Repository(folder / GIT, tmp_path)
    with closing(git.objects), closing(Staging(git.objects)) as staging:
        tree = staging.add("tree", b"100644 x\0rubbish")
        staging.publish()
    with pytest.raises(CheckFailedError, match=f"its folder {tree} is none that git reads"):
        pack(folder, tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("name", "mode"),
    [(b"link", 0o120000), (b"run", 0o100755), (b"\xff", FILE), (b"module", 0o160000), (b".gitmodules", FILE)],
)
def test_what_an_operator_s_git_may_bring_in_is_carried(folder: Path, tmp_path: Path, name: bytes, mode: int) -> None:
    with_entry(folder, name, mode)
    pack(folder, tmp_path / "x.tar")
    assert unpack(tmp_path / "x.tar", tmp_path / "in").repositories == ("kernels/org/my-kernel", "kernels/org/second")


@pytest.mark.parametrize("gc", [False, True])
def test_nothing_is_joined_with_a_repository_that_is_damaged(folder: Path, tmp_path: Path, gc: bool) -> None:  # noqa: FBT001
    archive = archived(folder, tmp_path / "x.tar")
    unpack(archive, tmp_path / "in")
    if gc:
        packed(tmp_path / "in")
    for path in (stored(tmp_path / "in")[0], stored(tmp_path / "in")[-1]):
        for _ in damages(path):
            with pytest.raises(CheckFailedError, match=DAMAGED.format("(objects|lfs)/")) as raised:
                unpack(archive, tmp_path / "in")
            assert raised.value.problems[0].where == str(tmp_path / "in" / GIT)
    unpack(archive, tmp_path / "in")


def test_a_config_that_is_none_is_written_anew(folder: Path, tmp_path: Path) -> None:
    """A clone used to fail."""
    config = folder / GIT / "config"
    for text in (b"\xff[[", b"[core\n", b"\0" * 9, b"[core]\n\tbare = true\n[gc]\n\tauto = 0\n"):
        config.write_bytes(text)
        with serve(folder) as hub:
            done = run("git", "clone", "-q", f"{hub.url}/kernels/org/my-kernel", tmp_path / f"clone{len(text)}")
        assert done.returncode == 0, done.stderr
    assert b"auto = 0" in config.read_bytes(), "one that git reads stays"


def test_a_config_that_is_damaged_while_it_is_served_is_mended_for_the_next_clone(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer used to be 500 until the Hub was started anew."""
    config = folder / GIT / "config"
    with serve(folder) as hub:
        config.write_bytes(b"\xff[[")
        done = run("git", "clone", "-q", f"{hub.url}/kernels/org/my-kernel", tmp_path / "clone")
    assert done.returncode == 0, done.stderr
    assert f"{config} is no config of git: it was written anew" in caplog.text


def test_a_config_that_nobody_but_its_writer_can_mend_is_named(folder: Path, tmp_path: Path) -> None:
    """It may be just what they meant. It used to be a failure without a word."""
    config = folder / GIT / "config"
    meant = config.read_bytes()
    refs = "/kernels/org/my-kernel/info/refs?service=git-upload-pack"
    with serve(folder) as running:
        hub = Served(running)
        for text in (b"[core]\n\trepositoryformatversion = 7\n", b"[core]\n\trepositoryformatversion = x\n"):
            config.write_bytes(text)
            answer = hub.ask("GET", refs)
            assert answer.status == 503
            assert "its config" in answer.json()["error"]
        config.write_bytes(meant)
        assert hub.ask("GET", refs).status == 200
        done = run("git", "clone", "-q", f"{hub.url}/kernels/org/my-kernel", tmp_path / "clone")
    assert done.returncode == 0, done.stderr


def test_locks_that_a_killed_git_left_are_not_carried(folder: Path, tmp_path: Path) -> None:
    """They were, and whoever unpacked them could never change those refs; an archive with one is refused."""
    left = folder / GIT / "refs/heads/main.lock"
    left.touch()
    pack(folder, tmp_path / "x.tar")
    unpack(tmp_path / "x.tar", tmp_path / "in")
    assert not list((tmp_path / "in").rglob("*.lock"))
    members = {f"{GIT}/refs/heads/main.lock": Member(0, hash_file(left))}
    with (tmp_path / "y.tar").open("wb") as archive:
        _write(archive, folder, members)
    with pytest.raises(CheckFailedError, match="main.lock' is no file of a Hub"):
        unpack(tmp_path / "y.tar", tmp_path / "other")


@pytest.mark.parametrize(
    ("private", "umask", "mode"),
    [(False, 0o022, 0o644), (False, 0o027, 0o640), (False, 0, 0o666), (True, 0o022, 0o600)],
)
def test_an_archive_is_for_whom_the_umask_says_and_a_private_one_for_its_owner(
    folder: Path,
    tmp_path: Path,
    private: bool,  # noqa: FBT001
    umask: int,
    mode: int,
) -> None:
    """It was for everybody to read, with private repositories in it."""
    settings = folder / GIT / "hub.json"
    settings.write_text(settings.read_text().replace('"private": false', f'"private": {str(private).lower()}'))
    (tmp_path / "x.tar").touch(0o644)  # what is replaced says nothing
    before = os.umask(umask)
    try:
        pack(folder, tmp_path / "x.tar")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.tar").stat().st_mode) == mode
