"""What is damaged in a folder that is served, or carried, is named: it is not taken for what never was."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Literal

import pytest

from hubkernels.errors import CheckFailedError, HubkernelsError, HubRefusedError
from hubkernels.host.disk import free_bytes
from hubkernels.host.files import hash_file
from hubkernels.hub.archive import Member, _carried, _header, _manifest, _padding, _write, pack, unpack
from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.asked import Limits
from hubkernels.hub.local.change import CommitInfo
from hubkernels.hub.local.repository import Repository
from hubkernels.hub.local.serve import serve as serve_hub
from tests.hub.conftest import CI, GRANTS, OWNER, Serve, Served, run
from tests.hub.test_http import API, PAGE, commit, file, lines

REFS = f"{PAGE}/info/refs?service=git-upload-pack"
V1 = "refs/heads/v1"
RUBBISH = (bytes(41), b"", b"x" * 40, b"\xff" * 41)


def cloned(hub: Served, folder: Path, repo: str = "org/my-kernel") -> str:
    """What git says when it cannot; empty where it could."""
    done = run("git", "clone", "-q", f"{hub.url}/kernels/{repo}", folder)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("text", RUBBISH, ids=("nul", "empty", "word", "bytes"))
def test_a_damaged_ref_is_named_wherever_it_is_read_and_written(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    """It used to be a branch that never was, which publish then made anew from main."""
    path = hub.git() / V1
    whole = path.read_bytes()
    path.write_bytes(text)
    asked = [
        hub.ask("GET", f"{API}/revision/v1"),
        hub.ask("GET", f"{API}/refs"),
        hub.ask("GET", REFS),
        hub.ask("GET", f"{PAGE}/resolve/v1/a"),
        hub.ask("POST", f"{API}/branch/v1", {}, OWNER),
        hub.ask("DELETE", f"{API}/branch/v1", None, OWNER),
        commit(hub, file("a", b"1")),
    ]
    for answer in asked:
        assert answer.status == 503, answer
        assert "refs/heads/v1 of this repository is damaged, it names no commit" in answer.json()["error"]
    assert f"{path} is damaged" in caplog.text
    assert path.read_bytes() == text
    assert hub.ask("GET", f"{API}/revision/main").status == 200
    assert hub.ask("GET", "/api/kernels").status == 200
    path.write_bytes(whole)
    assert commit(hub, file("a", b"1")).status == 200
    assert cloned(hub, tmp_path / "clone") == ""


def test_a_damaged_main_hides_no_other_repository(hub: Served, caplog: pytest.LogCaptureFixture) -> None:
    hub.api().create_repo("org/second", repo_type="kernel")
    tree = run("git", "-C", hub.git(), "rev-parse", "main^{tree}").stdout.encode()
    for text in (bytes(41), tree):
        caplog.clear()
        (hub.git() / "refs/heads/main").write_bytes(text)
        assert [each["id"] for each in hub.ask("GET", "/api/kernels").json()] == ["org/second"]
        assert f"{hub.git() / 'refs/heads/main'} " in caplog.text


def leading_nowhere(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.symlink_to("nowhere")


@pytest.mark.parametrize("name", ["refs", "refs/heads", V1])
def test_a_link_of_refs_that_leads_nowhere_is_named_and_hides_no_other_repository(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A repository without its disk had no branches, and publish would have made them anew."""
    hub.api().create_repo("org/second", repo_type="kernel")
    path = hub.git() / name
    leading_nowhere(path)
    told = f"{name} of this repository is damaged"
    asked = [
        hub.ask("GET", f"{API}/refs"),
        hub.ask("GET", REFS),
        hub.ask("GET", f"{API}/revision/v1"),
        hub.ask("POST", f"{API}/branch/v1", {}, OWNER),
        commit(hub, file("a", b"1")),
        *(() if name == V1 else (hub.ask("GET", API), hub.ask("GET", f"{PAGE}/resolve/main/a"))),
    ]
    for answer in asked:
        assert answer.status == 503, answer
        assert told in answer.json()["error"]
    assert f"{path} is damaged" in caplog.text
    ids = ["org/my-kernel", "org/second"] if name == V1 else ["org/second"]
    assert [each["id"] for each in hub.ask("GET", "/api/kernels").json()] == ids
    assert cloned(hub, tmp_path / "second", "org/second") == ""
    path.unlink()
    path.with_name("away").rename(path)
    assert cloned(hub, tmp_path / "clone") == ""


def test_a_link_of_a_branch_s_folder_that_leads_nowhere_is_damage_and_a_branch_of_its_name_is_none(hub: Served) -> None:
    """Of feature/x a Hub said that it never was, or that it clashes with another."""
    assert hub.ask("POST", f"{API}/branch/feature%2Fx", {}, OWNER).status == 200
    leading_nowhere(hub.git() / "refs/heads/feature")
    asked = (
        hub.ask("GET", f"{API}/revision/feature%2Fx"),
        hub.ask("POST", f"{API}/branch/feature%2Fx", {}, OWNER),
        hub.ask("POST", f"{API}/branch/feature%2Fy", {}, OWNER),
    )
    for answer in asked:
        assert answer.status == 503, answer
        assert "refs/heads/feature of this repository is damaged" in answer.json()["error"]
    assert hub.ask("GET", f"{API}/revision/v1%2Fx").status == 404
    assert hub.ask("POST", f"{API}/branch/v1%2Fx", {}, OWNER).status == 409


def without(path: Path) -> None:
    path.unlink()


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": without,
    "empty": lambda path: os.truncate(path, 0),
    "cut off": cut_off,
    "rubbish": lambda path: path.write_bytes(b"rubbish"),
    "nothing": lambda path: path.write_bytes(zlib.compress(b"")),
    "no object": lambda path: path.write_bytes(zlib.compress(b"something 1\0x")),
    "no commit": lambda path: path.write_bytes(zlib.compress(b"commit 5\0hello")),
}


@pytest.mark.parametrize(("damage", "what"), [*product(DAMAGE, ("main", "main^{tree}"))])
def test_a_damaged_object_hides_no_other_repository_and_is_named(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str, what: str
) -> None:
    """Every listing was a failure without a word, and so was the repository itself."""
    hub.api().create_repo("org/second", repo_type="kernel")
    oid = run("git", "-C", hub.git(), "rev-parse", what).stdout.strip()
    path = hub.git() / "objects" / oid[:2] / oid[2:]
    whole = path.read_bytes()
    path.chmod(0o644)
    DAMAGE[damage](path)
    commit_is_whole, says_commit = what != "main", damage in {"no commit", "cut off"}
    ids = ["org/my-kernel", "org/second"] if commit_is_whole else ["org/second"]
    for query in ("", "?author=org"):
        assert [each["id"] for each in hub.ask("GET", f"/api/kernels{query}").json()] == ids
    asked = [
        hub.ask("GET", f"{API}/tree/main"),
        hub.ask("GET", f"{PAGE}/resolve/main/.gitattributes"),
        commit(hub, file("a", b"1")),
        *(() if commit_is_whole else (hub.ask("GET", API), hub.ask("GET", f"{API}/commits/main"))),
        *(() if commit_is_whole or says_commit else (hub.ask("GET", f"{API}/refs"),)),
    ]
    for answer in asked:
        assert answer.status == 503, answer
        told = answer.json()["error"]
        assert f"{oid[:2]}/{oid[2:]} of org/my-kernel is " in told or f"the object {oid} of org/my-kernel is " in told
        assert "`kernel-builder hub pull`" in told
    assert f"{path} " in caplog.text
    assert "503" in cloned(hub, tmp_path / "clone")
    path.write_bytes(whole)
    assert cloned(hub, tmp_path / "clone") == ""
    assert hub.ask("GET", API).status == 200


@pytest.mark.parametrize("kind", ["kernel", "model"])
def test_a_branch_that_names_what_never_was_hides_no_other_repository(
    serve: Serve, caplog: pytest.LogCaptureFixture, kind: Literal["kernel", "model"]
) -> None:
    hub = serve()
    for name in ("first", "second"):
        hub.api().create_repo(f"org/{name}", repo_type=kind)
    oid, where = "f" * 40, f"/api/{kind}s"
    (hub.git(f"{kind}s/org/first") / "refs/heads/main").write_text(f"{oid}\n", encoding="ascii")
    for query in ("", "?author=org"):
        caplog.clear()
        assert [each["id"] for each in hub.ask("GET", f"{where}{query}").json()] == ["org/second"]
        assert f"{kind}s/org/first.git/objects/ff/{oid[2:]} is missing" in caplog.text
    for path in ("", "/refs", "/revision/main", "/tree/main", "/commits/main"):
        answer = hub.ask("GET", f"{where}/org/first{path}")
        assert answer.status == 503
        assert f"the object {oid} of org/first is missing" in answer.json()["error"]


def test_two_folders_that_are_one_name_are_neither_served_nor_packed(
    folder: Path, serve: Serve, tmp_path: Path
) -> None:
    """One hid the other, without a word."""
    twin = folder / "kernels/org/First.git"
    assert run("cp", "-a", folder / "kernels/org/first.git", twin).returncode == 0
    told = "kernels: org/First and org/first are one repository for a Hub"
    for use in (lambda: serve(folder), lambda: pack(folder, tmp_path / "x.tar")):
        with pytest.raises(CheckFailedError, match=told) as raised:
            use()
        assert "move one of them elsewhere" in str(raised.value)
    assert not (tmp_path / "x.tar").exists()
    twin.rename(tmp_path / "elsewhere")
    pack(folder, tmp_path / "x.tar")
    assert serve(folder).ask("GET", "/api/kernels/org/first").status == 200


def test_a_repository_that_is_deleted_meanwhile_is_no_failure(
    hub: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hub.api().create_repo("org/second", repo_type="kernel")
    read = Repository.info

    def delete_and_read(git: Repository, oid: str) -> CommitInfo:
        for stored in hub.running.hub:
            if stored.git is git and stored.repo.name == "my-kernel":
                hub.running.hub.delete(stored)
        return read(git, oid)

    monkeypatch.setattr(Repository, "info", delete_and_read)
    for query, ids in (("", ["org/second"]), ("?author=org", ["org/second"])):
        assert [each["id"] for each in hub.ask("GET", f"/api/kernels{query}").json()] == ids
        hub.api().create_repo("org/my-kernel", repo_type="kernel")
    answer = hub.ask("GET", API)
    assert (answer.status, answer.headers["X-Error-Code"]) == (404, "RepoNotFound")
    assert "damaged" not in caplog.text
    assert "missing" not in caplog.text


def test_damage_among_packed_refs_hides_what_may_have_stood_there(hub: Served) -> None:
    path = hub.git() / "packed-refs"
    assert run("git", "-C", hub.git(), "pack-refs", "--all").returncode == 0
    assert hub.ask("GET", f"{API}/refs").status == 200
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    path.write_bytes(b"".join(line if b"main" in line else bytes(len(line) - 1) + b"\n" for line in lines))
    assert hub.ask("GET", f"{API}/revision/main").status == 200
    for answer in (hub.ask("GET", f"{API}/revision/v1"), hub.ask("POST", f"{API}/branch/v1", {}, OWNER)):
        assert answer.status == 503
        assert "packed-refs of this repository is damaged" in answer.json()["error"]


def test_the_last_ref_that_was_packed_can_be_deleted(hub: Served, tmp_path: Path) -> None:
    """It left an empty file, with which nobody could clone any more."""
    for tag in ("s", "t"):
        assert hub.ask("POST", f"{API}/tag/main", {"tag": tag}, OWNER).status == 200
    assert run("git", "-C", hub.git(), "pack-refs").returncode == 0
    for tag in ("s", "t"):
        assert hub.ask("DELETE", f"{API}/tag/{tag}", token=OWNER).status == 200
        assert cloned(hub, tmp_path / tag) == ""
    assert not (hub.git() / "packed-refs").exists()
    hub.check("kernels/org/my-kernel", "--no-dangling")


def test_packed_refs_that_are_empty_are_named(hub: Served, tmp_path: Path) -> None:
    """git writes no such file, and what stood there is lost: each clone was a bare 500."""
    (hub.git() / "packed-refs").touch()
    for answer in (hub.ask("GET", f"{API}/refs"), hub.ask("GET", REFS), hub.ask("GET", f"{API}/revision/v2")):
        assert answer.status == 503, answer
        told = answer.json()["error"]
        assert "packed-refs of this repository is damaged, it is empty: who runs the Hub may delete it where" in told
    copy = tmp_path / "copy"
    assert run("cp", "-a", hub.folder, copy).returncode == 0
    with pytest.raises(CheckFailedError, match="org/my-kernel is damaged: packed-refs is empty"):
        pack(copy, tmp_path / "x.tar")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", NO_FILES)
def test_packed_refs_that_are_no_plain_file_are_named(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """The answer was a bare 500, and the link no ref at all."""
    path = hub.git() / "packed-refs"
    NO_FILES[what](path)
    for answer in (hub.ask("GET", f"{API}/refs"), hub.ask("GET", REFS), hub.ask("GET", f"{API}/revision/v2")):
        assert answer.status == 503, answer
        assert "packed-refs of this repository is damaged, it is no plain file" in answer.json()["error"]
    assert f"{path} is damaged" in caplog.text
    assert hub.ask("GET", f"{API}/revision/main").status == 200
    copy = tmp_path / "copy"
    assert run("cp", "-a", hub.folder, copy).returncode == 0
    with pytest.raises(CheckFailedError, match="org/my-kernel is damaged: packed-refs is no plain file"):
        pack(copy, tmp_path / "x.tar")


@pytest.mark.parametrize("what", ["pipe", "folder"])
@pytest.mark.parametrize("named", ["main", "main^{tree}", "main:.gitattributes"])
def test_an_object_that_is_no_plain_file_is_damage_and_is_not_waited_for(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str, named: str
) -> None:
    """A pipe held up every listing for ever, and each clone; a folder was a bare 500."""
    oid = run("git", "-C", hub.git(), "rev-parse", named).stdout.strip()
    path = hub.git() / "objects" / oid[:2] / oid[2:]
    path.unlink()
    NO_FILES[what](path)
    ids = [] if named == "main" else ["org/my-kernel"]
    assert [each["id"] for each in hub.ask("GET", "/api/kernels").json()] == ids
    answer = hub.ask("GET", f"{PAGE}/resolve/main/.gitattributes")
    assert answer.status == 503
    assert f"{oid[:2]}/{oid[2:]} of org/my-kernel is no plain file" in answer.json()["error"]
    assert f"{path} is no plain file" in caplog.text
    assert "503" in cloned(hub, tmp_path / "clone")
    copy = tmp_path / "copy"
    assert run("cp", "-a", hub.folder, copy).returncode == 0
    with pytest.raises(CheckFailedError, match="org/my-kernel is damaged: "):
        pack(copy, tmp_path / "x.tar")


STRANGE: dict[str, Callable[[Path], object]] = {
    **NO_FILES,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
}
FILES = (
    *(f"objects/pack/*.{kind}" for kind in ("pack", "idx", "bitmap")),
    *(f"objects/{name}" for name in ("pack/multi-pack-index", "info/commit-graph", "info/alternates")),
    *("shallow", "info/grafts", "commondir"),
)
PLACES = [
    *product(FILES, ("pipe", "folder")),
    *product(("objects", "objects/pack", "objects/info", "info"), ("pipe", "link")),
    *product(("objects/pack/*.pack", "shallow"), ("link", "device", "loop")),
    ("HEAD", "folder"),
]


@pytest.mark.parametrize(("name", "what"), PLACES)
def test_what_is_of_another_kind_than_git_s_file_is_named_and_not_waited_for(
    folder: Path, serve: Serve, caplog: pytest.LogCaptureFixture, name: str, what: str
) -> None:
    """A pipe held up each clone for ever, and `hub pack`; a device filled the memory; a folder was a bare 500."""
    git = folder / "kernels/org/first.git"
    assert run("git", "-C", git, "repack", "-adbq").returncode == 0
    path = next(git.glob(name), git / name)
    if path.exists():
        path.rename(folder.with_name("away"))
    STRANGE[what](path)
    told = f"{path.relative_to(git)} of org/first is "
    with pytest.raises(CheckFailedError, match=f"org/first is damaged: {path.relative_to(git)} is "):
        pack(folder, folder.with_name("x.tar"))
    hub = serve(folder)
    for page in ("/api/kernels/org/first/refs", "/kernels/org/first/info/refs?service=git-upload-pack"):
        answer = hub.ask("GET", page)
        assert answer.status == 503, answer
        assert told in answer.json()["error"]
    assert f"{path} is " in caplog.text
    assert [each["id"] for each in hub.ask("GET", "/api/kernels").json()] == ["org/second"]
    gone = {"type": "kernel", "organization": "org", "name": "first"}
    assert hub.ask("DELETE", "/api/repos/delete", gone, OWNER).status == 200


def inverted(path: Path) -> None:
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))


def flipped(path: Path) -> None:
    """Near the end, where the last object is."""
    whole = path.read_bytes()
    path.write_bytes(whole[:-30] + bytes([255 - whole[-30]]) + whole[-29:])


PACK_DAMAGE = {
    **{name: DAMAGE[name] for name in ("empty", "cut off", "rubbish")},
    "inverted": inverted,
    "flipped": flipped,
}
IN_PART = ("cut off", "flipped")  # what else is there is still given


@pytest.mark.parametrize(
    ("kind", "damage"), [*(("pack", damage) for damage in PACK_DAMAGE), *product(["idx"], [*PACK_DAMAGE][:-1])]
)
def test_a_pack_that_is_damaged_is_named_and_is_no_fault_of_the_request(
    folder: Path, serve: Serve, caplog: pytest.LogCaptureFixture, kind: str, damage: str
) -> None:
    """The API's answers were a bare 500, those to git 400."""
    git = folder / "kernels/org/first.git"
    assert run("git", "-C", git, "repack", "-adq").returncode == 0
    assert run("git", "-C", git, "prune-packed").returncode == 0
    path = next(git.glob(f"objects/pack/*.{kind}"))
    whole = path.read_bytes()
    path.chmod(0o644)
    PACK_DAMAGE[damage](path)
    hub = serve(folder)
    pages = (
        "/api/kernels/org/first/refs",
        "/api/kernels/org/first/tree/main",
        "/kernels/org/first/resolve/main/.gitattributes",
    )
    for page in (*pages, "/kernels/org/first/info/refs?service=git-upload-pack"):
        answer = hub.ask("GET", page)
        assert answer.status == 503 or (answer.status == 200 and damage in IN_PART), (page, answer)
    assert [each["id"] for each in hub.ask("GET", "/api/kernels").json()][-1:] == ["org/second"]
    assert "503" in cloned(hub, folder / "clone", "org/first")
    assert f"{path.with_suffix('.pack')} is damaged, or its index" in caplog.text or damage in IN_PART
    path.write_bytes(whole)
    assert cloned(hub, folder / "clone", "org/first") == ""


@pytest.fixture
def folder(serve: Serve, tmp_path: Path) -> Path:
    """A Hub's folder with two kernels, which nobody serves any more: a copy of one."""
    hub = serve(tmp_path / "served")
    for name in ("first", "second"):
        hub.api().create_repo(f"org/{name}", repo_type="kernel")
        hub.api().create_branch(f"org/{name}", branch="v1", repo_type="kernel")
    assert run("cp", "-r", hub.folder, tmp_path / "hub").returncode == 0
    return tmp_path / "hub"


def archived(folder: Path, file: Path) -> Path:
    """As one that packs without a look."""
    members = {name: Member(path.stat().st_size, hash_file(path)) for name, path in _carried(folder)}
    with file.open("wb") as archive:
        _write(archive, folder, members)
    return file


@pytest.mark.parametrize("name", [V1, "packed-refs"])
def test_a_damaged_ref_is_neither_packed_nor_unpacked(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "kernels/org/second.git" / name).write_bytes(bytes(41))
    with pytest.raises(CheckFailedError, match=f"org/second is damaged: {name} names no commit"):
        pack(folder, tmp_path / "x.tar")
    with pytest.raises(CheckFailedError, match=f"org/second is damaged: {name} names no commit"):
        unpack(archived(folder, tmp_path / "x.tar"), tmp_path / "in")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize("name", ["refs", "refs/heads", V1])
def test_links_of_refs_that_lead_nowhere_are_not_packed(folder: Path, serve: Serve, tmp_path: Path, name: str) -> None:
    """The archive had no branch."""
    leading_nowhere(folder / "kernels/org/second.git" / name)
    with pytest.raises(CheckFailedError, match=f"org/second is damaged: {name} (is no folder|names no commit)"):
        pack(folder, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()
    assert serve(folder).ask("GET", "/api/kernels/org/first").status == 200


def test_a_repository_without_main_is_neither_packed_nor_unpacked(folder: Path, tmp_path: Path) -> None:
    """Clients ask for it by default, and `hub pull` takes none without it either."""
    (folder / "kernels/org/second.git/refs/heads/main").unlink()
    with pytest.raises(CheckFailedError, match="org/second is damaged: it has no branch main"):
        pack(folder, tmp_path / "x.tar")
    with pytest.raises(CheckFailedError, match="org/second is damaged: it has no branch main"):
        unpack(archived(folder, tmp_path / "x.tar"), tmp_path / "in")


def test_settings_that_are_damaged_are_told(folder: Path, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    settings = folder / "kernels/org/first.git/hub.json"
    settings.write_bytes(b"{")
    hub = serve(folder)
    assert f"{settings} is damaged, it does not say who may see the repository: it is private" in caplog.text
    assert hub.ask("GET", "/api/kernels/org/first").status == 404
    assert "second.git" not in caplog.text


def repos(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/*/*.git/refs/*/*")}


def test_of_an_archive_that_is_refused_nothing_is_taken(folder: Path, tmp_path: Path) -> None:
    """What stood before the repository that was refused used to be."""
    unpack(archived(folder, tmp_path / "x.tar"), tmp_path / "in")
    copies = {name: tmp_path / name for name in ("ours", "theirs")}
    for copy in copies.values():
        assert run("cp", "-r", folder, copy).returncode == 0
        with serve_hub(copy, Accounts(parse_tokens(GRANTS, "test"))) as running:
            for name in ("first", "second")[copy == copies["ours"] :]:
                body = lines(file(copy.name, os.urandom(9)))
                answer = Served(running).ask("POST", f"/api/kernels/org/{name}/commit/v1", body, CI)
                assert answer.status == 200
    archive = archived(copies["theirs"], tmp_path / "y.tar")
    before = repos(copies["ours"])
    with pytest.raises(CheckFailedError, match="v1 of org/second has commits that the other has not"):
        unpack(archive, copies["ours"])
    assert repos(copies["ours"]) == before
    unpack(archive, tmp_path / "in")
    assert repos(tmp_path / "in") == repos(copies["theirs"])


@pytest.mark.parametrize(("owner", "error"), [("spaces", HubRefusedError), ("Org", CheckFailedError)])
def test_a_name_that_none_may_have_is_refused_before_anything_is_taken(
    folder: Path, tmp_path: Path, owner: str, error: type[HubkernelsError]
) -> None:
    (folder / "kernels" / owner).mkdir()
    name = "zz" if owner == "spaces" else "second"
    assert run("cp", "-r", folder / "kernels/org/first.git", folder / f"kernels/{owner}/{name}.git").returncode == 0
    with pytest.raises(error, match="cannot be the owner|are one repository for a Hub"):
        unpack(archived(folder, tmp_path / "x.tar"), tmp_path / "in")
    assert not (tmp_path / "in").exists()


def test_a_manifest_with_half_a_character_is_refused_by_name(tmp_path: Path) -> None:
    """It was a traceback."""
    name = "kernels/org/base.git/refs/heads/\ud800"
    text = _manifest({name: Member(1, hashlib.sha256(b"x").hexdigest())})
    archive = tmp_path / "x.tar"
    archive.write_bytes(_header("manifest.json", len(text)) + text + _padding(len(text)) + bytes(2048))
    with pytest.raises(CheckFailedError, match=r"refs/heads/\\ud800' is no file of a Hub"):
        unpack(archive, tmp_path / "in")


@pytest.mark.parametrize("text", [b"", b"\xff\0", b"ref: \n", b"ref: refs/../config\n", b"0123"])
def test_a_damaged_head_is_mended_for_the_next_clone(
    hub: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: bytes
) -> None:
    """The answer used to be a bare 400."""
    (hub.git() / "HEAD").write_bytes(text)
    assert cloned(hub, tmp_path / "clone") == ""
    assert "HEAD names neither a branch nor a commit: it was written anew" in caplog.text
    assert (hub.git() / "HEAD").read_bytes() == b"ref: refs/heads/main\n"


def test_a_head_that_is_gone_or_a_pipe_is_mended_and_another_s_stays(hub: Served, tmp_path: Path) -> None:
    path = hub.git() / "HEAD"
    path.unlink()
    assert cloned(hub, tmp_path / "gone") == ""
    path.unlink()
    os.mkfifo(path)
    assert cloned(hub, tmp_path / "pipe") == ""
    path.write_bytes(b"ref: refs/heads/v1\n")
    assert cloned(hub, tmp_path / "other") == ""
    assert path.read_bytes() == b"ref: refs/heads/v1\n"


def _including(path: Path, head: bytes = b"[include]") -> None:
    other = path.with_name("other")
    other.write_bytes(b"[core]\n\tbare = true\n")
    path.write_bytes(b'[core]\n\tbare = true\n%s\n\tpath = "%s"\n' % (head, os.fsencode(other)))


CONFIGS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "large": lambda path: path.write_bytes(b"[core]\n\tbare = true\n" + b"#\n" * (32 << 10)),
    "include": _including,
    "INCLUDE": lambda path: _including(path, b"[INCLUDE]"),
    "includeIf": lambda path: _including(path, b'[includeIf "gitdir:/**"]'),
}


@pytest.mark.parametrize("how", CONFIGS)
def test_a_config_that_is_no_plain_file_is_not_read_on(
    folder: Path, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """A pipe was waited for, for ever, and what was included may have been any file."""
    path = folder / "kernels/org/first.git/config"
    path.unlink()
    CONFIGS[how](path)
    hub = serve(folder)
    answer = hub.ask("GET", "/kernels/org/first/info/refs?service=git-upload-pack")
    assert answer.status == 503
    assert "its config is one that the Hub cannot read" in answer.json()["error"]
    assert str(path) in caplog.text
    assert hub.ask("GET", "/api/kernels/org/first").status == 200
    assert cloned(hub, tmp_path / "clone", "org/second") == ""


def test_a_limit_on_what_comes_in_is_none_on_what_goes_out(hub: Served, serve: Serve, tmp_path: Path) -> None:
    assert commit(hub, file("a", os.urandom(5000))).status == 200
    assert run("cp", "-r", hub.folder, tmp_path / "copy").returncode == 0
    small = serve(tmp_path / "copy", limits=Limits(file=100))
    assert cloned(small, tmp_path / "clone") == ""
    refused = commit(small, file("b", os.urandom(101)))
    assert refused.status == 413
    assert "b has more than 100 bytes" in refused.json()["error"]
    assert commit(small, file("b", os.urandom(100))).status == 200


def test_a_clone_keeps_as_much_free_as_an_upload(
    hub: Served, serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert commit(hub, file("a", os.urandom(3 << 20))).status == 200
    assert run("cp", "-r", hub.folder, tmp_path / "copy").returncode == 0
    full = serve(tmp_path / "copy", limits=Limits(keep_free=2 * free_bytes(tmp_path)))
    said = cloned(full, tmp_path / "clone")
    assert "507" in said
    assert "no room for a clone: the Hub's disk has to keep" in caplog.text
    assert not list(full.running.hub.scratch.iterdir())
    assert cloned(hub, tmp_path / "clone") == ""


def test_a_disk_that_is_full_is_no_fault_of_the_request(
    hub: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was answered 400, no request of git, and not logged."""
    write, head = SpooledTemporaryFile.write, b"001e# service=git-upload-pack\n0000"

    def full(spool: SpooledTemporaryFile[bytes], text: bytes) -> int:
        if text != head:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(spool, text)

    with monkeypatch.context() as patched:
        patched.setattr(SpooledTemporaryFile, "write", full)
        answer = hub.ask("GET", REFS)
        assert (answer.status, "disk is full" in answer.json()["error"]) == (507, True)
        assert "no space left" in caplog.text
    assert cloned(hub, tmp_path / "clone") == ""
