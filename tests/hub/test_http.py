"""What goes over the wire: who may do what, how files are given, and what a request cannot do."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import http.client
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.asked import Limits
from hubkernels.hub.local.card import card_errors
from hubkernels.hub.local.lfs_rules import Large
from hubkernels.hub.local.links import LIVES_S
from hubkernels.hub.local.names import RepoId, check_new
from hubkernels.hub.local.objects import ObjectStore
from tests.conftest import Cli
from tests.hub.conftest import CI, LATE, OTHER, OWNER, READER, Answer, Serve, Served, run

API = "/api/kernels/org/my-kernel"
PAGE = "/kernels/org/my-kernel"


def lines(*values: object, **header: str) -> bytes:
    """The body of a commit."""
    begin = {"key": "header", "value": {"summary": "Publish", "description": "", **header}}
    return b"".join(json.dumps(value).encode() + b"\n" for value in (begin, *values))


def file(path: str, content: bytes = b"1") -> dict[str, object]:
    text = base64.b64encode(content).decode()
    return {"key": "file", "value": {"path": path, "content": text, "encoding": "base64"}}


def commit(hub: Served, *values: object, token: str | None = CI, query: str = "", **header: str) -> Answer:
    return hub.ask("POST", f"{API}/commit/v1{query}", lines(*values, **header), token)


def refused(answer: Answer, status: int, words: str, code: str | None = None) -> None:
    """As the client reads it: a header of one line, and a JSON object."""
    assert answer.status == status, answer.body
    assert words in answer.json()["error"]
    assert answer.headers["X-Error-Message"]
    assert answer.headers["X-Error-Code"] == code


READING: list[tuple[str, str, object]] = [
    ("GET", f"{API}", None),
    ("GET", f"{API}/refs", None),
    ("GET", f"{API}/tree/main", None),
    ("GET", f"{API}/commits/main", None),
    ("POST", f"{API}/paths-info/main", {"paths": ["a"]}),
    ("GET", f"{PAGE}/resolve/main/.gitattributes", None),
    ("HEAD", f"{PAGE}/resolve/main/.gitattributes", None),
    ("POST", f"{PAGE}.git/info/lfs/objects/batch", {"operation": "download", "objects": []}),
]
WRITING: list[tuple[str, str, object]] = [
    ("POST", f"{API}/branch/v2", {}),
    ("DELETE", f"{API}/branch/v1", None),
    ("POST", f"{API}/tag/main", {"tag": "t"}),
    ("POST", f"{API}/preupload/v1", {"files": []}),
    ("POST", f"{API}/commit/v1", lines(file("a"))),
    ("POST", "/api/repos/create", {"name": "new", "organization": "org", "type": "kernel"}),
]
RULING: list[tuple[str, str, object]] = [
    ("PUT", f"{API}/settings", {"private": True}),
    ("DELETE", "/api/repos/delete", {"name": "my-kernel", "organization": "org", "type": "kernel"}),
]


def state(hub: Served) -> set[str]:
    return {str(path.relative_to(hub.folder)) for path in hub.folder.rglob("*") if path.name != "tmp"}


WITHOUT_THE_ROLE = {None: 401, "hf_wrong": 401, LATE: 401, READER: 403, OTHER: 403}


@pytest.mark.parametrize(("method", "path", "body"), [*WRITING, *RULING])
@pytest.mark.parametrize("token", WITHOUT_THE_ROLE)
def test_nobody_writes_without_the_role(hub: Served, method: str, path: str, body: object, token: str | None) -> None:
    before = state(hub)
    answer = hub.ask(method, path, body, token)
    assert answer.status == WITHOUT_THE_ROLE[token], answer.body
    assert state(hub) == before
    if answer.status == 403:
        assert "needs the role" in answer.headers["X-Error-Message"]
        assert " on org" in answer.headers["X-Error-Message"]


@pytest.mark.parametrize(("method", "path", "body"), RULING)
def test_who_writes_does_not_rule(hub: Served, method: str, path: str, body: object) -> None:
    refused(
        hub.ask(method, path, body, CI),
        403,
        "this needs the role admin on org; the token of ci has the role write there",
    )
    assert hub.ask(method, path, body, OWNER).status == 200


@pytest.mark.parametrize(("method", "path", "body"), READING)
def test_a_private_repository_is_not_there_for_others(hub: Served, method: str, path: str, body: object) -> None:
    """As one that never was: neither status nor text tells them apart."""
    assert hub.ask(method, path, body).status == 200
    assert hub.ask("PUT", f"{API}/settings", {"visibility": "private"}, OWNER).status == 200
    for token in (None, OTHER):
        hidden = hub.ask(method, path, body, token)
        missing = hub.ask(method, path.replace("my-kernel", "none"), body, token)
        assert (hidden.status, hidden.headers["X-Error-Code"]) == (404, "RepoNotFound")
        assert hidden.status == missing.status
        assert hidden.body.replace(b"my-kernel", b"none") == missing.body
    for token in (READER, CI, OWNER):
        assert hub.ask(method, path, body, token).status == 200
    assert hub.ask("GET", "/api/kernels", token=OTHER).json() == []
    assert [each["id"] for each in hub.ask("GET", "/api/kernels?author=org", token=READER).json()] == ["org/my-kernel"]


def test_a_token_that_is_not_known_is_told_so(hub: Served) -> None:
    """The header's text is what the client compares: another one would read as a repository that is missing."""
    wrong, late = hub.ask("GET", API, token="hf_wrong"), hub.ask("GET", API, token=LATE)  # noqa: S106
    assert (
        wrong.headers["X-Error-Message"]
        == late.headers["X-Error-Message"]
        == "Invalid credentials in Authorization header"
    )
    refused(wrong, 401, "this token is not known here")
    refused(late, 401, "this token expired on 2020-01-01")


def test_whoami_tells_name_and_roles(hub: Served) -> None:
    refused(hub.ask("GET", "/api/whoami-v2"), 401, "this needs a token")
    told = hub.ask("GET", "/api/whoami-v2", token=CI).json()
    assert (told["name"], told["type"]) == ("ci", "user")
    assert told["orgs"] == [{"type": "org", "name": "org", "roleInOrg": "write"}]
    assert told["auth"]["accessToken"]["role"] == "write"


def test_only_organisations_that_are_trusted_are(hub: Served) -> None:
    assert hub.ask("GET", "/api/organizations/org/overview").json()["trustedKernelPublisher"] is True
    own = hub.ask("GET", "/api/organizations/another_org/overview", token=OTHER)
    assert own.json()["trustedKernelPublisher"] is False
    refused(hub.ask("GET", "/api/organizations/nobody/overview"), 404, "there is no organisation 'nobody' here")


def test_of_an_owner_whose_repositories_are_all_private_others_hear_nothing(serve: Serve) -> None:
    hub = serve(trust="nobody-else")
    hub.api().create_repo("org/mine", repo_type="kernel", private=True)
    overview = "/api/organizations/org/overview"
    for token in (None, OTHER):
        refused(hub.ask("GET", overview, token=token), 404, "there is no organisation 'org' here")
    assert hub.ask("GET", overview, token=READER).json()["trustedKernelPublisher"] is False
    assert hub.ask("PUT", "/api/kernels/org/mine/settings", {"private": False}, OWNER).status == 200
    assert hub.ask("GET", overview).json()["name"] == "org"


def test_a_repository_has_one_of_two_visibilities(hub: Served) -> None:
    asked = {"name": "new", "organization": "org", "type": "kernel", "visibility": "protected"}
    refused(hub.ask("POST", "/api/repos/create", asked, CI), 400, "public or private")
    assert hub.ask("POST", "/api/repos/create", {**asked, "visibility": "private"}, CI).status == 200
    assert hub.ask("GET", "/api/kernels/org/new", token=READER).json()["private"] is True
    made = hub.ask("POST", "/api/repos/create", {**asked, "visibility": "private"}, CI)
    assert (made.status, made.json()["url"]) == (409, f"{hub.url}/kernels/org/new")
    alone = hub.ask("POST", "/api/repos/create", {"name": "new", "type": "kernel"}, CI)
    refused(alone, 403, "the token of ci has no role there")


CONTENT = bytes(range(256)) * 40_000


@pytest.mark.parametrize("lfs", ["never", "always"])
@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-", 5, len(CONTENT)),
        ("bytes=1048570-1048590", 1048570, 1048591),
        ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
        (f"bytes=3-{len(CONTENT) * 2}", 3, len(CONTENT)),
        (f"bytes=-{len(CONTENT) * 2}", 0, len(CONTENT)),
    ],
)
def test_a_range_of_a_file_is_given(serve: Serve, lfs: str, wanted: str, start: int, end: int) -> None:
    hub = with_file(serve, lfs)
    answer = hub.ask("GET", place(hub), Range=wanted)
    assert (answer.status, answer.body == CONTENT[start:end]) == (206, True)
    assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/{len(CONTENT)}"
    head = hub.ask("HEAD", place(hub), Range=wanted)
    assert (head.status, head.headers["Content-Length"]) == (206, str(end - start))


@pytest.mark.parametrize("lfs", ["never", "always"])
def test_what_is_no_range_is_answered_with_the_whole_and_what_is_outside_with_416(serve: Serve, lfs: str) -> None:
    hub = with_file(serve, lfs)
    for wanted in (
        "bytes=0-1,5-6",
        "items=0-1",
        "bytes=a-b",
        "bytes=-",
        "",
        "bytes=1-2-3",
        "bytes=5-2",
        f"bytes={'9' * 5000}-",
    ):
        answer = hub.ask("GET", place(hub), Range=wanted)
        assert (answer.status, len(answer.body)) == (200, len(CONTENT))
    for wanted in (f"bytes={len(CONTENT)}-", "bytes=-0"):
        answer = hub.ask("GET", place(hub), Range=wanted)
        refused(answer, 416, "is outside of")
        assert answer.headers["Content-Range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.parametrize("lfs", ["never", "always"])
def test_what_a_client_has_is_not_sent_again(serve: Serve, lfs: str) -> None:
    hub = with_file(serve, lfs)
    etag = hub.ask("HEAD", place(hub)).headers["ETag"]
    for known in (etag, f'"x", {etag}', f"W/{etag}"):
        answer = hub.ask("GET", place(hub), If_None_Match=known)
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
    assert hub.ask("GET", place(hub), If_None_Match='"another"').status == 200
    assert hub.ask("GET", place(hub), Range="bytes=0-0", If_Range='"another"').status == 200
    assert hub.ask("GET", place(hub), Range="bytes=0-0", If_Range=etag).status == 206


def with_file(serve: Serve, lfs: str) -> Served:
    """A Hub with one file of ten megabytes on v1."""
    hub = serve(lfs=lfs)
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    hub.api().create_branch("org/my-kernel", branch="v1", repo_type="kernel")
    if lfs == "never":
        assert commit(hub, file("a.so", CONTENT)).status == 200
    else:
        upload(hub, CONTENT)
        assert commit(hub, pointer("a.so", CONTENT)).status == 200
    return hub


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def pointer(path: str, content: bytes, **changes: object) -> dict[str, object]:
    return {
        "key": "lfsFile",
        "value": {"path": path, "algo": "sha256", "oid": sha256(content), "size": len(content), **changes},
    }


def batch(hub: Served, content: bytes, token: str = CI, operation: str = "upload") -> dict[str, object]:
    objects = [{"oid": sha256(content), "size": len(content)}]
    asked = {"operation": operation, "transfers": ["basic", "multipart"], "objects": objects}
    (found,) = hub.ask("POST", f"{PAGE}.git/info/lfs/objects/batch", asked, token).json()["objects"]
    return dict(found)


def upload_link(hub: Served, content: bytes) -> str:
    found: str = batch(hub, content)["actions"]["upload"]["href"]  # type: ignore[index]
    return found


def upload(hub: Served, content: bytes) -> None:
    assert hub.ask("PUT", upload_link(hub, content), content).status == 200


def place(hub: Served) -> str:
    """Where the bytes of the file are."""
    answer = hub.ask("HEAD", f"{PAGE}/resolve/v1/a.so")
    return str(answer.headers["Location"] or f"{PAGE}/resolve/v1/a.so")


def test_a_large_file_is_given_by_a_link_to_the_other_origin(serve: Serve) -> None:
    hub = with_file(serve, "always")
    answer = hub.ask("HEAD", f"{PAGE}/resolve/v1/a.so")
    assert (answer.status, answer.headers["X-Linked-Size"]) == (302, str(len(CONTENT)))
    assert answer.headers["X-Linked-Etag"] == f'"{sha256(CONTENT)}"'
    assert answer.headers["X-Repo-Commit"] == hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    link = answer.headers["Location"]
    assert link.startswith(hub.running.content_url + "/")
    assert hub.ask("GET", link).body == CONTENT
    refused(hub.ask("GET", link, token=CI), 400, "send no Authorization along")
    raw = hub.ask("GET", f"{PAGE}/raw/v1/a.so")
    assert (
        raw.body
        == f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(CONTENT)}\nsize {len(CONTENT)}\n".encode()
    )
    download = batch(hub, CONTENT, operation="download")["actions"]["download"]["href"]  # type: ignore[index]
    assert hub.ask("GET", download).body == CONTENT


def test_a_link_is_for_one_thing(serve: Serve) -> None:
    hub = with_file(serve, "always")
    hub.api().create_repo("org/another", repo_type="kernel")
    link = place(hub)
    for changed in (
        link.replace("my-kernel", "another"),
        link.replace(sha256(CONTENT), sha256(b"x")),
        link.replace("expires=", "expires=9"),
        link.replace("name=a.so", "name=b.so"),
        link[:-1] + ("0" if link[-1] != "0" else "1"),
        link.partition("?")[0],
    ):
        refused(hub.ask("GET", changed), 403, "this link is not valid")
    refused(hub.ask("PUT", link, b""), 403, "this link is not valid")
    assert hub.ask("GET", f"{hub.running.content_url}{PAGE}/resolve/v1/a.so").status == 404
    assert hub.ask("GET", f"{hub.running.content_url}{API}").status == 404


def test_who_knows_the_hash_of_a_private_file_gets_nothing_by_it(serve: Serve) -> None:
    hub = with_file(serve, "always")
    hub.ask("PUT", f"{API}/settings", {"private": True}, OWNER)
    hub.api(OTHER).create_repo("another-org/mine", repo_type="kernel")
    body = lines(pointer("a.so", CONTENT))
    answer = hub.ask("POST", "/api/kernels/another-org/mine/commit/main", body, OTHER)
    refused(answer, 400, "was not uploaded to this repository")


@pytest.mark.parametrize("sent", [CONTENT[:-1], CONTENT + b"x", b"", CONTENT[:-1] + b"x"])
def test_what_is_not_what_was_announced_is_not_kept_and_the_next_try_works(serve: Serve, sent: bytes) -> None:
    hub = with_file(serve, "never")
    link = upload_link(hub, CONTENT)
    answer = hub.ask("PUT", link, sent)
    refused(answer, 413 if len(sent) > len(CONTENT) else 400, "nothing was kept")
    refused(commit(hub, pointer("b.so", CONTENT)), 400, "was not uploaded to this repository")
    verify = {"oid": sha256(CONTENT), "size": len(CONTENT)}
    assert hub.ask("POST", f"{PAGE}.git/info/lfs/objects/verify", verify, CI).status == 404
    assert not list(hub.running.hub.scratch.iterdir())
    assert hub.ask("PUT", link, CONTENT).status == 200
    assert hub.ask("POST", f"{PAGE}.git/info/lfs/objects/verify", verify, CI).status == 200
    refused(commit(hub, pointer("b.so", CONTENT, size=5)), 400, "has 10240000 bytes, not 5")
    assert commit(hub, pointer("b.so", CONTENT)).status == 200
    assert "actions" not in batch(hub, CONTENT)
    hub.check()


def test_an_upload_in_parts_is_one_file(serve: Serve) -> None:
    hub = serve(lfs="always", limits=Limits(multipart=1 << 20, part=3_000_000))
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    upload_action = batch(hub, CONTENT)["actions"]["upload"]  # type: ignore[index]
    header = dict(upload_action["header"])
    size = int(header.pop("chunk_size"))
    pieces = {int(number): CONTENT[(int(number) - 1) * size :][:size] for number in header}
    assert (size, len(pieces)) == (3_000_000, 4)
    etags: dict[int, str] = {}
    for number, link in header.items():
        content = pieces[int(number)]
        refused(hub.ask("PUT", link, content + b"x"), 413, "more were sent")
        refused(hub.ask("PUT", link, content[:-1]), 400, "nothing was kept")
        assert bool(list(hub.running.hub.scratch.iterdir())) == bool(etags), "what was refused left nothing"
        first = hub.ask("PUT", link, b"x" * len(content))  # a part that is sent again takes the place of the first
        etags[int(number)] = hub.ask("PUT", link, content).headers["ETag"]
        assert len(list(hub.running.hub.scratch.glob("parts/*/*"))) == len(etags)
        assert first.headers["ETag"] != etags[int(number)]
    parts = [{"partNumber": number, "etag": etag} for number, etag in sorted(etags.items())]
    complete = str(upload_action["href"])
    for wrong in ({}, {"parts": parts[:-1]}, {"parts": [*parts[:-1], {"partNumber": 4, "etag": '"../x"'}]}):
        assert hub.ask("POST", complete, wrong).status == 400
    for _ in range(2):  # the answer to the first may be lost
        assert hub.ask("POST", complete, {"oid": sha256(CONTENT), "parts": parts}).status == 200
    assert "actions" not in batch(hub, CONTENT)
    assert not [path for path in hub.running.hub.scratch.rglob("*") if path.is_file()]


def test_of_a_batch_each_object_has_its_own_answer(hub: Served) -> None:
    wanted = [{"oid": "x", "size": 1}, {"oid": sha256(b"1"), "size": -1}, {"oid": sha256(b"1"), "size": 1}, {}]
    asked = {"operation": "upload", "objects": wanted}
    found = hub.ask("POST", f"{PAGE}.git/info/lfs/objects/batch", asked, CI).json()["objects"]
    assert [each.get("error", {}).get("code") for each in found] == [422, 422, None, 422]
    down = {"operation": "download", "objects": [{"oid": sha256(b"1"), "size": 1}]}
    (one,) = hub.ask("POST", f"{PAGE}.git/info/lfs/objects/batch", down).json()["objects"]
    assert one["error"]["code"] == 404


def test_a_batch_is_answered_by_little_more_than_was_asked(hub: Served) -> None:
    """2 KB used to be answered by 60 MB: a link for each of 10,000 parts of each file of any size."""
    where = f"{PAGE}.git/info/lfs/objects/batch"
    sizes = [50 << 30, (50 << 30) + 1, 10**30, True, 100 << 20]
    objects = [{"oid": sha256(str(size).encode()), "size": size} for size in sizes]
    asked = {"operation": "upload", "transfers": ["basic", "multipart"], "objects": objects}
    answer = hub.ask("POST", where, asked, CI)
    found = answer.json()["objects"]
    assert [each.get("error", {}).get("code") for each in found] == [None, 413, 413, 422, None]
    assert "this Hub takes 53687091200 at most" in found[1]["error"]["message"]
    assert len(answer.body) < 200_000
    for size, each in ((50 << 30, found[0]), (100 << 20, found[4])):
        header = each["actions"]["upload"]["header"]
        length = int(header["chunk_size"])
        assert len(header) - 1 == -(-size // length) <= 200
        assert length >= 32 << 20
    many = [{"oid": sha256(str(number).encode()), "size": 50 << 30} for number in range(1001)]
    refused(hub.ask("POST", where, {**asked, "objects": many}, CI), 413, "1000 objects at most")
    assert len(hub.ask("POST", where, {**asked, "objects": many[:-1]}, CI).body) < 2_000_000


def test_parts_of_uploads_that_nobody_finished_lapse(serve: Serve) -> None:
    """They stayed until the next start of the server."""
    hub = serve(lfs="always", limits=Limits(multipart=1 << 20, part=3_000_000))
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    content = os.urandom(5_000_000)
    kept = []
    for _ in range(2):
        header = batch(hub, content)["actions"]["upload"]["header"]  # type: ignore[index]
        assert hub.ask("PUT", header["00001"], content[:3_000_000]).status == 200
        kept.append({*(hub.running.hub.scratch / "parts").iterdir()})
    (first,) = kept[0]
    os.utime(first, (time.time() - LIVES_S - 9,) * 2)
    batch(hub, b"another")
    assert {*(hub.running.hub.scratch / "parts").iterdir()} == kept[1] - kept[0]


def test_paths_that_are_told_of_are_counted(hub: Served) -> None:
    """50,000 times one path kept the Hub busy for 75 s."""
    where, form = f"{API}/paths-info/main", {"Content-Type": "application/x-www-form-urlencoded"}
    same = "paths=.gitattributes&" * 1000
    (one,) = hub.ask("POST", where, f"{same}expand=False".encode(), **form).json()
    assert one["path"] == ".gitattributes"
    refused(hub.ask("POST", where, f"{same}paths=a&expand=False".encode(), **form), 413, "1000 paths at most")
    for paths, status in ((["a"] * 1000, 200), (["a"] * 1001, 413)):
        assert hub.ask("POST", where, {"paths": paths}, Content_Type="application/json").status == status


@pytest.mark.parametrize("packed", [False, True])
def test_of_what_is_no_commit_nothing_is_read(
    hub: Served,
    monkeypatch: pytest.MonkeyPatch,
    packed: bool,  # noqa: FBT001
) -> None:
    """A blob's id as a revision used to bring the whole of the blob to memory."""
    blobs = [os.urandom(3_000_000) * 2]
    blobs += [blobs[0] + b"x", blobs[0][:-1]]  # which git keeps as differences
    assert commit(hub, *(file(f"f{number}", text) for number, text in enumerate(blobs))).status == 200
    head = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    ids = [hub.ask("HEAD", f"{PAGE}/resolve/v1/f{number}").headers["ETag"].strip('"') for number in range(3)]
    tree = run("git", "-C", hub.git(), "rev-parse", "v1^{tree}").stdout.strip()
    if packed:
        assert run("git", "-C", hub.git(), "gc", "-q", "--prune=now").returncode == 0
    read = ObjectStore._read
    asked: list[str] = []

    def counted(self: ObjectStore, oid: str) -> Iterator[bytes]:
        for number, piece in enumerate(read(self, oid)):
            if number:  # beyond the header
                asked.append(oid)
            yield piece

    monkeypatch.setattr(ObjectStore, "_read", counted)
    for oid in (*ids, tree, "0" * 40):
        answer = hub.ask("GET", f"{API}/revision/{oid}")
        assert (answer.status, answer.headers["X-Error-Code"]) == (404, "RevisionNotFound")
    assert not set(asked) & {*ids, tree}
    assert hub.ask("GET", f"{API}/revision/{head}").status == 200


def test_a_pointer_comes_with_its_content_or_not_at_all(hub: Served) -> None:
    """As on the Hub: whoever sent one had not fetched the file itself, and nobody else could tell it from one."""
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(b'large')}\nsize 5\n".encode()
    head = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    refused(commit(hub, file("a", text)), 400, f"a is the pointer of a large file, whose content {sha256(b'large')}")
    assert hub.ask("GET", f"{API}/revision/v1").json()["sha"] == head
    upload(hub, b"large")
    refused(commit(hub, file("a", text.replace(b"size 5", b"size 6"))), 400, "a is the pointer of a large file")
    assert commit(hub, file("a", text), file("b", text + b"\n")).status == 200
    assert hub.ask("HEAD", f"{PAGE}/resolve/v1/a").headers["X-Linked-Size"] == "5"
    assert hub.ask("GET", f"{PAGE}/resolve/v1/b").body == text + b"\n"


def test_a_large_file_whose_content_is_gone_is_named_and_comes_again(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pointer was given as the file, and locked."""
    hub = with_file(serve, "always")
    content = hub.git() / "lfs/objects" / sha256(CONTENT)[:2] / sha256(CONTENT)[2:4] / sha256(CONTENT)
    for harm in (content.unlink, lambda: content.write_bytes(CONTENT[:-1])):
        harm()
        for method in ("HEAD", "GET"):
            assert hub.ask(method, f"{PAGE}/resolve/v1/a.so").status == 503
        refused(hub.ask("GET", f"{PAGE}/resolve/v1/a.so"), 503, f"with the SHA-256 {sha256(CONTENT)}, is not here")
        assert f"{content}, which a.so of org/my-kernel points to, is missing" in caplog.text
        (listed,) = (each for each in hub.ask("GET", f"{API}/tree/v1").json() if each["path"] == "a.so")
        assert (listed["size"], listed["lfs"]["oid"]) == (len(CONTENT), sha256(CONTENT))
        assert hub.ask("GET", f"{PAGE}/raw/v1/a.so").body.startswith(b"version ")
        asked = {"files": [{"path": "a.so", "size": len(CONTENT)}]}
        assert hub.ask("POST", f"{API}/preupload/v1", asked, CI).json()["files"][0]["oid"] is None
        upload(hub, CONTENT)
        assert commit(hub, pointer("a.so", CONTENT)).status == 200
        assert hub.ask("GET", place(hub)).body == CONTENT
        content.chmod(0o644)


def test_headers_name_the_commit_also_of_a_file_that_is_missing(hub: Served) -> None:
    """The client remembers that there is none."""
    answer = hub.ask("HEAD", f"{PAGE}/resolve/v1/none")
    assert (answer.status, answer.headers["X-Error-Code"]) == (404, "EntryNotFound")
    assert len(answer.headers["X-Repo-Commit"]) == 40
    assert hub.ask("GET", f"{PAGE}/resolve/none/a").headers["X-Error-Code"] == "RevisionNotFound"
    assert hub.ask("GET", f"{API}/tree/v1/none").headers["X-Error-Code"] == "EntryNotFound"


BAD_PATHS = [
    *("../a", "a/../b", "/a", "a//b", "a/", "", ".", "./a", "a/.", "a" * 256, "/".join(["abcdefg"] * 200)),
    *(".git/config", "a/.GIT/x", "a/.git", ".git ./x", ".git::$DATA/x", "git~1/x", ".gitmodules", "gitmod~1"),
    *("a\\b", "a\0b", "a\nb", "a\u200cb", ".g\u200cit/x", "a/\x7f", "\ud800"),
]


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("key", ["file", "lfsFile", "deletedFile"])
def test_no_path_leaves_the_repository_or_is_git_s_own(hub: Served, path: str, key: str) -> None:
    before = state(hub)
    answer = commit(hub, {"key": key, "value": {"path": path, "content": "", "oid": "0" * 64}})
    refused(answer, 400, "cannot be a path")
    assert state(hub) == before
    assert not list(hub.running.hub.scratch.iterdir())


BAD_REFS = [
    *(
        "..",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "*",
        "[a",
        "a\\b",
        "a.lock",
        "a/.b",
        "/a",
        "a/",
        "a//b",
        "@",
        "a@{b",
    ),
    *("HEAD", "refs/heads/x", "-a", "a\0", "a\x7f", "0" * 40, "x" * 300, "a/../../config"),
]


@pytest.mark.parametrize("name", BAD_REFS)
def test_no_ref_leaves_its_folder(hub: Served, name: str) -> None:
    before = state(hub)
    quoted = quote(name, safe="")
    assert hub.ask("POST", f"{API}/branch/{quoted}", {}, CI).status == 400
    assert hub.ask("POST", f"{API}/tag/main", {"tag": name}, CI).status == 400
    assert hub.ask("DELETE", f"{API}/branch/{quoted}", token=CI).status in {404, 400}
    assert hub.ask("POST", f"{API}/commit/{quoted}", lines(file("a")), CI).status == 404
    for where in (f"{API}/tree/{quoted}", f"{API}/revision/{quoted}", f"{PAGE}/resolve/{quoted}/a"):
        found = hub.ask("GET", where)
        assert (found.status, found.headers["X-Error-Code"]) == (404, "RevisionNotFound")
    assert state(hub) == before


@pytest.mark.parametrize(
    "name",
    ["..", ".", "a/b", "../x", ".git", "x.git", "-a", "a-", "a.", "a--b", "a b", "a\0", "", "x" * 97, "ä", "a\\b"],
)
def test_no_name_leaves_the_folder(hub: Served, name: str) -> None:
    before = state(hub)
    refused(
        hub.ask("POST", "/api/repos/create", {"name": name, "organization": "org", "type": "kernel"}, CI),
        400,
        "cannot be the name of a repository",
    )
    quoted = quote(name, safe="")
    assert hub.ask("GET", f"/api/kernels/org/{quoted}").status == 404
    assert hub.ask("GET", f"/kernels/{quoted}/x/info/refs?service=git-upload-pack").status in {401, 404}
    assert state(hub) == before


@pytest.mark.parametrize("owner", ["api", "Kernels", "models", "datasets", "content", "..", "a/b", ""])
def test_no_owner_is_called_as_the_hub_s_own_pages(owner: str) -> None:
    """`/kernels/x` would be two pages."""
    with pytest.raises(Refusal, match="cannot be the owner"):
        check_new(RepoId("models", owner, "x"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.text(min_size=1, max_size=30)
    | st.lists(st.sampled_from(["..", ".", "a", ".git", "%2e%2e", "\\", ""])).map("/".join)
)
@example("..%2f..%2fetc/passwd")
@example("a;b")
def test_whatever_is_asked_for_the_answer_is_the_hub_s(hub: Served, path: str) -> None:
    """No path, however it is spelled, is a failure, and none is answered by a file that no commit has."""
    quoted = quote(path, safe="/%", errors="replace")
    for where in (f"{PAGE}/resolve/main/{quoted}", f"/{quoted}", f"{API}/tree/main/{quoted}", f"/api/kernels/{quoted}"):
        answer = hub.ask("GET", where)
        assert answer.status in {200, 400, 401, 404, 405}, where
        assert answer.status != 200 or b"root:" not in answer.body


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(min_size=1, max_size=12))
def test_a_path_is_kept_as_it_is_or_refused_and_git_is_content_with_it(hub: Served, path: str) -> None:
    answer = commit(hub, file(path, b"content"))
    assert answer.status in {200, 400}
    if answer.status == 200:
        assert hub.ask("GET", f"{PAGE}/resolve/v1/{quote(path)}").body == b"content"
        assert commit(hub, {"key": "deletedFile", "value": {"path": path}}).status == 200
    hub.check()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "begins with a line whose key is header"),
        (b"{", "this line is no JSON"),
        (b'{"key', "cut off"),
        (b"nonsense\n", "this line is no JSON"),
        (b"[]\n", "an object with a key and a value"),
        (b'{"key": "file", "value": {}}\n', "begins with a line whose key is header"),
        (b'{"key": "header", "value": {}}\n', "a commit has a summary"),
        (b'{"key": "header", "value": {"summary": "a\\u0000"}}\n', "no NUL"),
        (b'{"key": "header", "value": {"summary": "\\ud800"}}\n' + lines(file("a")).splitlines()[1], "half"),
        (lines({"key": "rename", "value": {"path": "a"}}), "'rename' is no operation"),
        (lines({"key": "file", "value": {"path": "a", "content": 5}}), "its content is a text"),
        (lines({"key": "file", "value": {"path": "a", "content": "a", "encoding": "base64"}}), "no base64"),
        (lines({"key": "file", "value": {"path": "a", "content": "ä", "encoding": "base64"}}), "no base64"),
        (lines({"key": "file", "value": {"path": "a", "content": "a b" * 50_000, "encoding": "base64"}}), "no base64"),
        (lines({"key": "file", "value": {"path": "a", "content": "QQ==" * 50_000, "encoding": "base64"}}), "base64"),
        (lines({"key": "file", "value": {"path": "a", "content": "a" * 200_001, "encoding": "base64"}}), "cut off"),
        (lines({"key": "file", "value": {"path": "a", "content": "abcd" * 50_000}}), "in base64"),
        (lines({"key": "file", "value": {"path": "a", "content": "\ud800"}}), "a: its content has half a character"),
        (lines({"key": "file", "value": {"path": "abcd" * 50_000, "content": ""}}), "content of a file alone"),
        (lines(summary="abcd" * 50_000), "content of a file alone"),
        (lines({"key": "lfsFile", "value": {"path": "a", "oid": "../../x"}}), "is no SHA-256"),
        (lines(file(".gitattributes", b"x" * 3000)), "longer than git reads"),
        (lines(file("a/.gitattributes", b"x" * 300_000)), "longer than git reads"),
    ],
)  # fmt: skip
def test_a_commit_that_is_none_is_refused_and_leaves_nothing(hub: Served, body: bytes, words: str) -> None:
    before = state(hub)
    answer = hub.ask("POST", f"{API}/commit/v1", body, CI)
    assert answer.status in {400, 422}
    assert words in answer.json()["error"]
    assert state(hub) == before
    assert not list(hub.running.hub.scratch.iterdir())
    hub.check()


def test_what_is_too_large_is_refused(serve: Serve) -> None:
    hub = serve(limits=Limits(file=200_000, operations=3))
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    hub.api().create_branch("org/my-kernel", branch="v1", repo_type="kernel")
    assert commit(hub, file("a", os.urandom(200_000))).status == 200
    refused(commit(hub, file("a", os.urandom(200_001))), 413, "more than 200000 bytes")
    refused(commit(hub, *(file(f"f{number}") for number in range(4))), 413, "3 operations at most")
    refused(commit(hub, {"key": "file", "value": {"path": "a", "x\\y": "\\" * 2_000_000}}), 413, "1048576 bytes")
    refused(hub.ask("POST", f"{API}/preupload/v1", b"x" * 9_000_000, CI), 413, "more than 8388608 bytes")
    hub.check()


def test_a_stale_commit_is_refused_before_its_files_are_taken(hub: Served) -> None:
    """And a client that is still sending sees why."""
    first = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    assert commit(hub, file("a")).status == 200
    answer = commit(hub, *(file(f"f{number}", os.urandom(1_000_000)) for number in range(20)), parentCommit=first)
    refused(answer, 412, "is not the head any more")
    hub.check()


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("---\nlicense: apache-2.0\ntags:\n- kernel\n- a: b\n---\n# Card\n", 0),
        ("---\nlicense: 'mit'\nmodel-index:\n  - name: x\n    results: []\n---\n", 0),
        ("---\ntext: |\n  license\n  no key\nlicense: mit\n---\n", 0),
        ("---\r\nlicense: mit\r\n---\r\n", 0),
        ("# No metadata\n", 0),
        ("---\nlicense: 2\n---\n", 1),
        ("---\nlicense: [mit]\n---\n", 1),
        ("---\nlicense\n---\n", 1),
        ("---\n\tlicense: mit\n---\n", 1),
        ("---\nlicense: mit\n", 1),
    ],
)
def test_the_first_lines_of_a_card_are_looked_at(hub: Served, text: str, errors: int) -> None:
    answer = hub.ask("POST", "/api/validate-yaml", {"content": text, "repoType": "kernel"})
    assert (answer.status, len(answer.json()["errors"])) == (400 if errors else 200, errors)
    assert bool(answer.json()["warnings"]) == ("\n---" not in text.replace("\r", ""))


def test_a_card_with_an_error_a_line_is_answered_with_a_few_of_them(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 MB of them, which anybody may send, kept everybody else waiting for 10.9 s and took 448 MB."""
    looking = []

    def looked(text: str) -> list[str]:
        looking.append(threading.current_thread().name)
        return card_errors(text)

    monkeypatch.setattr("hubkernels.hub.local.api.card_errors", looked)
    answer = hub.ask("POST", "/api/validate-yaml", {"content": f"---\n{'x' * 50}\n" + "x\n" * 500_000 + "---\n"})
    assert (answer.status, len(answer.json()["errors"])) == (400, 10)
    assert len(answer.body) < 1000
    assert "hub" not in looking, "the thread that answers everybody"
    largest = "x" * (1 << 20)
    assert hub.ask("POST", "/api/validate-yaml", {"content": largest}).status == 200
    refused(hub.ask("POST", "/api/validate-yaml", {"content": f"{largest}x"}), 413, "a card has at most 1048576")


def test_a_body_is_no_longer_than_what_is_asked_may_be(hub: Served) -> None:
    """8 MiB of brackets, which anybody could send, kept everybody waiting for seconds."""
    brackets = b'{"name": [' + b"[]," * 30_000 + b"[]]}"
    for method, path in (
        ("POST", "/api/repos/create"),
        ("DELETE", "/api/repos/delete"),
        ("PUT", f"{API}/settings"),
        ("POST", f"{API}/branch/a"),
        ("POST", f"{API}/tag/v1"),
    ):
        refused(hub.ask(method, path, brackets), 413, "the body has more than 65536 bytes")
    refused(hub.ask("POST", "/api/validate-yaml", brackets * 40), 413, "the body has more than 3145728 bytes")
    batch = f"{PAGE}.git/info/lfs/objects/batch"
    for path in (f"{API}/paths-info/v1", f"{API}/preupload/v1", batch, batch.replace("batch", "verify")):
        for what in (b"[],", b"{},", b"0,"):
            body = b'{"paths": [' + what * ((8 << 20) // len(what) - 9) + b"0]}"
            answer = hub.ask("POST", path, body, CI, Content_Type="application/json")
            refused(answer, 413, "the body has more than 262144 commas and brackets")


def test_what_is_ignored_and_where_it_goes_is_told_before_an_upload(serve: Serve) -> None:
    hub = serve(lfs="always")
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    hub.api().create_branch("org/my-kernel", branch="v1", repo_type="kernel")
    assert commit(hub, file("here.py", b"1"), file(".gitignore", b"*.pyc\n/out/\n# x\ntmp/\n!keep.pyc\n")).status == 200
    taken = {"here.py": "regular", "keep.pyc": "regular", "d/out/x": "regular", "empty.so": "regular"}
    stored = {"a.so": "lfs", "d/a.so": "lfs", "large": "lfs"}
    ignored = dict.fromkeys(("a.pyc", "d/b.pyc", "out/x", "d/tmp/x"), "regular")
    wanted = {path: (mode, path in ignored) for path, mode in {**taken, **stored, **ignored}.items()}
    sizes = {"large": 10 << 20, "empty.so": 0}
    files = [{"path": path, "size": sizes.get(path, 1), "sample": ""} for path in wanted]
    told = hub.ask("POST", f"{API}/preupload/v1", {"files": files}, CI).json()["files"]
    assert {each["path"]: (each["uploadMode"], each["shouldIgnore"]) for each in told} == wanted
    oids = {each["path"]: each["oid"] for each in told if each["oid"]}
    assert oids == {"here.py": hashlib.sha1(b"blob 1\x001", usedforsecurity=False).hexdigest()}
    for rules, wanted_ones in (
        ("*.so", {"a.so", "d/a.so", "empty.so"}),
        ("d/\n!keep.pyc", {path for path in wanted if path.startswith("d/")}),
        ("*\n!d/\n", {path for path in wanted if not path.startswith("d/")}),
        ("!a.pyc\n*.pyc\n\n #\n**/a.so\n/*.py\n", {"a.pyc", "d/b.pyc", "keep.pyc", "a.so", "d/a.so", "here.py"}),
    ):
        own = hub.ask("POST", f"{API}/preupload/v1", {"files": files, "gitIgnore": rules}, CI).json()["files"]
        assert {each["path"] for each in own if each["shouldIgnore"]} == wanted_ones, rules


def test_names_without_a_wildcard_are_those_of_files_or_paths() -> None:
    large = Large(
        "/top filter=lfs -text\nd/x filter=lfs\nname filter=lfs\n*.so filter=lfs\n*.py text\n/d/?.bin filter=lfs"
    )
    taken = ("top", "d/x", "name", "d/name", "a.so", "d/a.so", "d/a.bin")
    left = ("d/top", "x", "d/d/x", "a.py", "a.bin", "top/a")
    assert [path for path in (*taken, *left) if large.has(path, 1)] == [*taken]


def test_what_is_asked_before_an_upload_is_bounded(hub: Served) -> None:
    """60 files and 3000 rules took 6.4 s, and nothing bounded either: any token kept threads busy for days."""
    where = f"{API}/preupload/v1"
    few, most = ([{"path": f"d/{number}", "size": 1} for number in range(count)] for count in (256, 1000))

    def ask(files: object, rules: str, token: str | None = CI, query: str = "") -> Answer:
        return hub.ask("POST", f"{where}{query}", {"files": files, "gitIgnore": rules}, token)

    assert ask(most, "*.pyc").status == 200
    refused(ask([*most, *few], "*.pyc", OTHER, "?create_pr=1"), 413, "1000 files at most")
    rules = "".join(f"/out/{number}/*.pyc\n" for number in range(1000))
    began = time.monotonic()
    assert len(ask(few, rules).json()["files"]) == 256
    refused(ask(few, f"{rules}!a"), 413, "1000 rules")
    refused(ask(few, "x" * (64 << 10) + "x"), 413, "65536 characters")
    deep = [{"path": "/".join([*"a" * 500, str(number)]), "size": 1} for number in range(1000)]
    refused(ask(deep, rules), 413, "are too many to be compared")
    assert time.monotonic() - began < 30  # they took minutes; a busy machine takes some seconds


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/agent-harnesses", 404),
        ("GET", "/api/kernels/org/my-kernel/xet-write-token/v1", 404),
        ("POST", "/api/whoami-v2", 405),
        ("GET", f"{API}/nothing", 404),
        ("GET", "/api/datasets/org/x", 404),
    ],
)
def test_what_is_not_there_is_said_in_the_hub_s_form(hub: Served, method: str, path: str, status: int) -> None:
    answer = hub.ask(method, path)
    assert answer.status == status
    assert answer.json()["error"] == answer.headers["X-Error-Message"]


def test_a_failure_shows_no_traceback(
    hub: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is in the server's log."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("hubkernels.hub.local.describe.repository", broken)
    answer = hub.ask("GET", API)
    refused(answer, 500, "the Hub failed to answer; its log tells why")
    assert b"Traceback" not in answer.body
    for _ in range(100):  # it logs after it answered
        if "a bug" not in caplog.text:
            time.sleep(0.05)
    assert "a bug" in caplog.text


def test_an_answer_waits_for_nothing(hub: Served) -> None:
    """On a connection that is kept, each took 40 ms while Nagle's algorithm held its second packet back."""
    connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=60)
    times = []
    with contextlib.closing(connection):
        for _ in range(20):
            start = time.perf_counter()
            connection.request("GET", f"{API}/refs")
            assert connection.getresponse().read()
            times.append(time.perf_counter() - start)
    assert min(times[1:]) < 0.02


@pytest.mark.parametrize("host", ["[", "a b", "x@y", "[::1", "a/b", "x:99999999", "\xff"])
def test_links_are_made_of_no_host_that_is_none(serve: Serve, host: str) -> None:
    hub = with_file(serve, "always")
    assert hub.ask("HEAD", f"{PAGE}/resolve/v1/a.so", Host=host).status == 400
    assert hub.ask("HEAD", f"{PAGE}/resolve/v1/a.so", Host="[::1]:5").headers["Location"].startswith("http://[::1]:")


@pytest.mark.parametrize("query", ["cursor=-1", "limit=0", "limit=x", f"cursor={'9' * 5000}&limit=5", "limit=99999"])
def test_a_page_that_is_none_is_another_one(hub: Served, query: str) -> None:
    for where in ("tree/main", "commits/main"):
        answer = hub.ask("GET", f"{API}/{where}?{query}")
        assert (answer.status, len(answer.json()), answer.headers["Link"]) == (200, 1, None)


def test_the_link_to_the_next_page_is_one_header(serve: Serve) -> None:
    hub = with_file(serve, "never")
    answer = hub.ask("GET", f"{API}/tree/v1?limit=1&recursive=true%0d%0aX:1&a%0d%0aX=1&cursor=0")
    head = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    wanted = f'<{hub.url}{API}/tree/{head}?cursor=1&limit=1&recursive=true%0D%0AX%3A1>; rel="next"'
    assert (answer.status, answer.headers["Link"]) == (200, wanted)


WANT = b"0032want 0000000000000000000000000000000000000000\n"


@pytest.mark.parametrize(
    "sent", [b"x", b"garbage", b"zzzz", b"0000", WANT, WANT + b"00000009done\n", b"fff0" + b"x" * 99]
)
def test_what_is_no_request_of_git_is_refused(hub: Served, sent: bytes) -> None:
    for body, encoding in (
        (sent, "identity"),
        (sent, "gzip"),
        (gzip.compress(sent), "gzip"),
        (gzip.compress(sent)[:-5], "gzip"),
    ):
        answer = hub.ask("POST", f"{PAGE}/git-upload-pack", body, Content_Encoding=encoding)
        assert answer.status in {200, 400}
        assert answer.status == 400 or not answer.body.startswith(b"PACK")
    bomb = gzip.compress(b"0" * (100 << 20))
    refused(hub.ask("POST", f"{PAGE}/git-upload-pack", bomb, Content_Encoding="gzip"), 413, "more than")


SOMETHING = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
NAMES = ["name", "organization", "type", "visibility", "private", "tag", "message", "startingPoint", "files", "paths"]
NAMES += ["objects", "operation", "transfers", "oid", "size", "path", "content", "gitIgnore", "expand", "key", "value"]
ASKED = st.recursive(SOMETHING, lambda one: st.dictionaries(st.sampled_from(NAMES), one | st.lists(one, max_size=2)))
PLACES = [
    *("/api/repos/create", "/api/validate-yaml", f"{API}/paths-info/v1", f"{API}/tag/v1", f"{API}/branch/a"),
    *(f"{API}/preupload/v1", f"{API}/commit/v1"),
    *(f"{PAGE}.git/info/lfs/objects/{name}" for name in ("batch", "verify")),
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=ASKED, more=ASKED)
def test_no_body_is_a_failure(hub: Served, asked: object, more: object) -> None:
    """Whatever a client sends, what it gets says what is wrong with it."""
    told = {"content-type": "application/json"}
    for where in PLACES:
        answer = hub.ask("POST", where, json.dumps(asked).encode(), OWNER, **told)
        assert answer.status in {200, 400, 403, 404, 409, 413, 422}, (where, answer.body)
    one = commit(hub, {"key": "file", "value": asked}, {"key": "lfsFile", "value": more}, {"key": more, "value": asked})
    assert one.status in {400, 404, 422}
    assert hub.ask("PUT", f"{API}/settings", asked, OWNER).status in {200, 400}
    assert hub.ask("DELETE", "/api/repos/delete", more, CI).status in {400, 403, 404}


def test_something_can_be_put_around_the_application(serve: Serve) -> None:
    """As tests do with faults: the Hub itself has none."""

    def unavailable(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if "refs" not in scope["path"]:
                await app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
            await send({"type": "http.response.body", "body": b""})

        return wrapped

    hub = serve(wrap=unavailable)
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    assert hub.ask("GET", f"{API}/refs").status == 503
    assert hub.ask("GET", API).status == 200


def test_behind_a_proxy_links_are_the_proxy_s(hub: Served) -> None:
    """By two headers that docs/hub.md names; the port of large files is the same on both."""
    asked = {"operation": "upload", "objects": [{"oid": "0" * 64, "size": 1}]}
    headers = {"Host": "hub.example", "X_Forwarded_Proto": "https"}
    answer = hub.ask("POST", f"{PAGE}.git/info/lfs/objects/batch", asked, CI, **headers)
    actions = answer.json()["objects"][0]["actions"]
    port = urlsplit(hub.running.content_url).port
    assert actions["upload"]["href"].startswith(f"https://hub.example:{port}/content/")
    assert actions["verify"]["href"] == f"https://hub.example{PAGE}.git/info/lfs/objects/verify"


def test_uploads_leave_the_room_that_must_stay(serve: Serve, tmp_path: Path) -> None:
    """Within a commit, in a batch, and on the way to a link that was given before."""
    free = shutil.disk_usage(tmp_path).free
    hub = serve(lfs="always", limits=Limits(keep_free=2 * free))
    hub.api().create_repo("org/my-kernel", repo_type="kernel")
    refused(hub.ask("POST", f"{API}/commit/main", lines(file("a", b"1")), CI), 507, "has to keep ")
    assert batch(hub, CONTENT)["error"]["code"] == 507  # type: ignore[index]
    assert hub.ask("GET", f"{API}/tree/main/a").status == 404
    hub.check()
    with_room = serve(folder=tmp_path / "other", lfs="always", limits=Limits(keep_free=1 << 20))
    with_room.api().create_repo("org/my-kernel", repo_type="kernel")
    assert with_room.ask("POST", f"{API}/commit/main", lines(file("a", b"1")), CI).status == 200
    upload(with_room, CONTENT)


@pytest.mark.parametrize(("option", "text"), [("--largest", "many"), ("--largest", "1e999GB"), ("--keep-free", "-1")])
def test_a_limit_that_is_no_size_is_refused(cli: Cli, tmp_path: Path, option: str, text: str) -> None:
    ran = cli("hub", "serve", tmp_path / "hub", "--port", "0", f"{option}={text}")
    assert (ran.code, f"{text} is no size\n  --> {option}" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("text", ["0", "0.1", "0GB"])
def test_a_hub_that_takes_no_file_is_refused(cli: Cli, tmp_path: Path, text: str) -> None:
    ran = cli("hub", "serve", tmp_path / "hub", "--port", "0", f"--largest={text}")
    assert (ran.code, f"{text} lets no file in\n  --> --largest" in ran.err) == (2, True), ran.err
