"""Whatever fails, what was acknowledged is there, the rest is not, and the next try works."""

from __future__ import annotations

import base64
import contextlib
import errno
import http.client
import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hubkernels.errors import EnvironmentLacksError
from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.serve import Address
from hubkernels.hub.local.serve import serve as serve_hub
from tests.conftest import Cli, Mount, environment
from tests.hub.conftest import CI, GRANTS, OWNER, Answer, Serve, Served, run
from tests.hub.test_http import API, PAGE, batch, commit, file, lines, pointer, sha256, upload_link

ALL = bool(os.environ.get("HUBKERNELS_TEST_ALL"))
REPO = "org/my-kernel"


class Process:
    """`kernel-builder hub serve` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        words = [sys.executable, "-m", "hubkernels.cli", "hub", "serve", str(folder), "--port", "0", *options]
        env = environment(HUBKERNELS_HUB_TOKENS=GRANTS, PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        assert ready, "the server tells nothing"
        first = self.process.stdout.readline()
        match = re.search(r" at (http://\S+), large files at (http://\S+)", first)
        assert match, first + self.process.stdout.read()
        self.url, self.content_url = match.groups()

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        return ask(self.url, method, path, body)

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def peak_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found
        return int(found[1]) / 1024


def ask(url: str, method: str, path: str, body: bytes | None = None) -> Answer:
    """One request of who may write."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Authorization": f"Bearer {CI}"})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


@pytest.fixture
def started() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def start(folder: Path, *options: str) -> Process:
        running.append(Process(folder, *options))
        return running[-1]

    yield start
    for process in running:
        if process.process.poll() is None:
            process.stop(signal.SIGKILL)
        process.process.communicate()


def create(process: Process, branches: Sequence[str]) -> None:
    asked = json.dumps({"name": "my-kernel", "organization": "org", "type": "kernel"}).encode()
    assert process.ask("POST", "/api/repos/create", asked).status == 200
    for branch in branches:
        assert process.ask("POST", f"{API}/branch/{branch}", b"{}").status == 200


def log(folder: Path, branch: str) -> list[str]:
    """The commits of a branch, by git."""
    done = run("git", "-C", folder / f"kernels/{REPO}.git", "log", "--format=%H", branch)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def fsck(folder: Path) -> None:
    """What a killed server wrote and did not name is no harm: git calls it dangling."""
    done = run(
        "git", "-C", folder / f"kernels/{REPO}.git", "fsck", "--strict", "--full", "--no-progress", "--no-dangling"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def keep_committing(url: str, branch: str, acknowledged: list[str]) -> None:
    """Until the server is gone; each commit on top of the one before, as publishers do."""
    number = 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            number += 1
            content = os.urandom(random.choice([10, 2_000, 200_000]))  # noqa: S311
            header = {"parentCommit": acknowledged[-1]} if acknowledged else {}
            answer = ask(
                url, "POST", f"{API}/commit/{branch}", lines(file(f"d{number % 7}/f{number}", content), **header)
            )
            if answer.status != 200:
                return
            acknowledged.append(answer.json()["commitOid"])


def test_what_was_acknowledged_survives_a_server_that_is_killed(
    tmp_path: Path, started: Callable[..., Process]
) -> None:
    folder, branches = tmp_path / "hub", ["a", "b", "c"]
    process = started(folder)
    create(process, branches)
    known: dict[str, list[str]] = {branch: [] for branch in branches}
    for _ in range(30 if ALL else 6):
        writers = [
            threading.Thread(target=keep_committing, args=(process.url, branch, known[branch])) for branch in branches
        ]
        for writer in writers:
            writer.start()
        time.sleep(random.uniform(0.05, 0.6))  # noqa: S311
        process.stop(signal.SIGKILL)
        for writer in writers:
            writer.join()
        process = started(folder)
        for branch in branches:
            there = log(folder, branch)
            assert set(known[branch]) <= set(there)
            assert len(there) <= len(known[branch]) + 2, "at most the one that was not acknowledged, and the first"
            told = process.ask("GET", f"{API}/revision/{branch}").json()["sha"]
            assert told == there[0]
            known[branch] = there[::-1][1:]
        assert not list((folder / ".hubkernels-hub/tmp").iterdir())
        fsck(folder)
    assert all(map(len, known.values()))
    assert process.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_asked_to_stop_finishes_what_it_does(
    tmp_path: Path, started: Callable[..., Process], number: signal.Signals
) -> None:
    process = started(tmp_path / "hub")
    create(process, ["v1"])
    content = random.Random(1).randbytes(20_000_000)  # noqa: S311
    assert process.ask("POST", f"{API}/commit/v1", lines(file("a", content))).status == 200
    where = urlsplit(process.url)
    with socket.create_connection((where.hostname or "", where.port or 0)) as connection:
        connection.sendall(f"GET {PAGE}/resolve/v1/a HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        found = connection.recv(1000)
        process.process.send_signal(number)
        time.sleep(0.5)
        while len(found) < len(content) and (piece := connection.recv(1 << 20)):
            found += piece
    assert found.partition(b"\r\n\r\n")[2] == content
    assert process.process.wait(60) == 0
    fsck(tmp_path / "hub")


def test_a_folder_has_one_server(tmp_path: Path, hub: Served, cli: Cli) -> None:
    ran = cli("hub", "serve", tmp_path / "hub", "--port", "0")
    assert ran.code == 3
    assert f"another server has {tmp_path / 'hub'}" in ran.err
    assert hub.ask("GET", API).status == 200


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, cli: Cli) -> None:
    """`hub serve /` emptied /tmp."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp/file").touch()
    ran = cli("hub", "serve", tmp_path)
    assert ran.code == 2
    assert f"{tmp_path} is no Hub, and not empty\n  hint: name a new folder for it" in ran.err
    assert [path.name for path in tmp_path.rglob("*")] == ["tmp", "file"]
    ran = cli("hub", "serve", tmp_path / "tmp/file")
    assert ran.code == 2
    assert f"{tmp_path / 'tmp/file'} is no folder\n  hint: name a new one for it" in ran.err


def test_a_port_that_is_taken_is_said(tmp_path: Path, hub: Served, cli: Cli) -> None:
    port = urlsplit(hub.url).port
    ran = cli("hub", "serve", tmp_path / "another", "--port", str(port))
    assert ran.code == 3
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in ran.err
    with (
        pytest.raises(EnvironmentLacksError, match="cannot listen on nowhere.invalid"),
        serve_hub(tmp_path / "another", address=Address("nowhere.invalid")),
    ):
        pass
    with serve_hub(tmp_path / "another") as again:
        assert again.url


def test_an_address_that_is_none_is_refused(tmp_path: Path, cli: Cli) -> None:
    """An empty one, as of a variable that is not set, used to be every address."""
    ran = cli("hub", "serve", tmp_path / "hub", "--port", "0", "--host", "")
    assert ran.code == 2
    assert "no address to listen on\n  --> --host\n  hint: 127.0.0.1 is this machine alone" in ran.err
    ran = cli("hub", "serve", tmp_path / "hub", "--port", "0", "--host", "x" * 300)
    assert ran.code == 3
    assert "cannot listen on xxx" in ran.err


def test_grants_that_are_wrong_are_said_before_anything_is_served(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBKERNELS_HUB_TOKENS", "hf_x=org:writer")
    ran = cli("hub", "serve", tmp_path / "hub")
    assert ran.code == 2
    assert "--> environment: HUBKERNELS_HUB_TOKENS" in ran.err
    (tmp_path / "tokens").write_text("hf_x=org\n")
    ran = cli("hub", "serve", tmp_path / "hub", "--tokens", tmp_path / "tokens")
    assert f"--> {tmp_path}/tokens:1" in ran.err
    assert not (tmp_path / "hub").exists()


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['dulwich'] = None\n"
        "from hubkernels.cli import main; sys.exit(main(['hub', 'serve', sys.argv[1]]))"
    )
    done = run(sys.executable, "-c", program, tmp_path / "hub")
    assert done.returncode == 3
    assert "error: a Hub needs dulwich, which is not installed\n  hint: pip install 'hubkernels[hub]'" in done.stderr


class Broken:
    """Fails the n-th call of the system's functions that bring bytes to the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
        self.left = -1
        self.code = code
        for name in ("fsync", "replace", "rename", "mkdir"):
            monkeypatch.setattr(os, name, self.failing(getattr(os, name)))

    def failing(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **options: object) -> object:
            self.left -= 1
            if self.left == 0:
                raise OSError(self.code, os.strerror(self.code))
            return real(*words, **options)

        return call


def at_every_step(broken: Broken, attempt: Callable[[], Answer], after: Callable[[Answer], None]) -> int:
    """Fail the first step of a request, then the second, until it needs none more; tells how many there were."""
    for step in range(1, 200):
        broken.left = step
        answer = attempt()
        failed = broken.left <= 0
        broken.left = -1
        after(answer)
        if not failed:
            assert answer.status == 200
            return step - 1
    raise AssertionError


@pytest.mark.parametrize(("code", "status"), [(errno.ENOSPC, 507), (errno.EIO, 500)])
def test_a_commit_that_fails_at_any_step_is_none(
    hub: Served, monkeypatch: pytest.MonkeyPatch, code: int, status: int
) -> None:
    head = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    number = 0

    def attempt() -> Answer:
        nonlocal number
        number += 1
        return commit(hub, file(f"f{number}", os.urandom(100)), file("d/big", os.urandom(100_000)), parentCommit=head)

    def after(answer: Answer) -> None:
        nonlocal head
        assert answer.status in {200, status}, answer.body
        assert not list(hub.running.hub.scratch.iterdir())
        now = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
        assert now in {head, log(hub.folder, "v1")[0]}
        assert answer.status == 200 or now == head or log(hub.folder, "v1")[1] == head
        head = now
        fsck(hub.folder)

    steps = at_every_step(Broken(monkeypatch, code), attempt, after)
    assert steps >= 10


def test_an_upload_that_fails_at_any_step_is_none(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    content = os.urandom(100_000)
    link = upload_link(hub, content)

    def after(answer: Answer) -> None:
        assert answer.status in {200, 507}, answer.body
        assert not list(hub.running.hub.scratch.iterdir())
        if answer.status == 200:
            assert commit(hub, pointer("a", content)).status == 200

    steps = at_every_step(Broken(monkeypatch, errno.ENOSPC), lambda: hub.ask("PUT", link, content), after)
    assert steps >= 5
    assert hub.ask("GET", f"{PAGE}/raw/v1/a").body.startswith(b"version https://git-lfs")


def test_a_repository_that_cannot_be_made_is_none(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = serve()
    asked = {"name": "my-kernel", "organization": "org", "type": "kernel"}
    made = False

    def attempt() -> Answer:
        answer = hub.ask("POST", "/api/repos/create", asked, CI)
        return Answer(200, answer.headers, answer.body) if answer.status == 409 else answer

    def after(answer: Answer) -> None:
        nonlocal made
        made = made or answer.status == 200
        found = hub.ask("GET", API)
        assert found.status == (200 if made or hub.git().exists() else 404)
        assert not list(hub.running.hub.scratch.iterdir())

    assert at_every_step(Broken(monkeypatch, errno.ENOSPC), attempt, after) >= 10
    hub.check()


class OnDisk:
    """What was brought to the disk of each file, its size, and of each folder, its names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[tuple[int, int], object] = {}
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            place, content = self.look(Path(f"/proc/self/fd/{handle}"))
            self.found[place] = content

        monkeypatch.setattr(os, "fsync", fsync)

    @staticmethod
    def look(path: Path) -> tuple[tuple[int, int], object]:
        there = path.stat()
        names = sorted(each.name for each in path.iterdir()) if path.is_dir() else there.st_size
        return (there.st_dev, there.st_ino), names

    def lacks(self, *paths: Path) -> list[Path]:
        looked = {path: self.look(path) for path in paths}
        return [path for path, (place, content) in looked.items() if self.found.get(place) != content]


def test_a_new_repository_is_on_the_disk_before_it_is_acknowledged(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of it, before its rename: a test that fails each call for it finds none that is missing."""
    disk, lacking, real = OnDisk(monkeypatch), [], os.rename

    def rename(source: Path, target: Path) -> None:
        if Path(source).is_dir():
            lacking.append(disk.lacks(source, *Path(source).rglob("*")))
        real(source, target)

    hub = serve(folder=tmp_path / "new/hub")
    monkeypatch.setattr(os, "rename", rename)
    asked = {"name": "my-kernel", "organization": "org", "type": "kernel"}
    assert hub.ask("POST", "/api/repos/create", asked, CI).status == 200
    assert lacking == [[]]
    above = [path for path in hub.git().parents if path.is_relative_to(tmp_path)]
    assert len(above) == 5
    assert not disk.lacks(*above)


def test_a_delete_that_fails_at_any_step_leaves_the_repository_or_none(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be out of sight until the next start, and its files there."""
    hub.ask("GET", API)
    asked = {"name": "my-kernel", "organization": "org", "type": "kernel"}

    def attempt() -> Answer:
        answer = hub.ask("DELETE", "/api/repos/delete", asked, OWNER)
        return Answer(200, answer.headers, answer.body) if answer.status == 404 else answer

    def after(answer: Answer) -> None:
        there = hub.git().exists()
        assert answer.status in {200, 500}
        assert hub.ask("GET", API).status == (200 if there else 404)
        assert not list(hub.running.hub.scratch.iterdir())
        if there:
            assert commit(hub, file("a", os.urandom(10))).status == 200

    assert at_every_step(Broken(monkeypatch, errno.EIO), attempt, after) >= 3
    assert not hub.git().exists()


@pytest.mark.parametrize("free_kib", [0, 8, 24, 64, 128, 256, 512] if ALL else [0, 24, 128])
def test_a_disk_that_fills_is_said_and_leaves_the_old_state(
    tmp_path: Path, mount: Mount, serve: Serve, free_kib: int
) -> None:
    mount(tmp_path / "disk", "size=4m")
    hub = serve(tmp_path / "disk/hub")
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
    head = hub.ask("GET", f"{API}/revision/v1").json()["sha"]
    ballast = tmp_path / "disk/ballast"
    room = os.statvfs(tmp_path / "disk")
    ballast.write_bytes(b"x" * max(0, room.f_bavail * room.f_frsize - free_kib * 1024))
    content = os.urandom(400_000)
    answer = commit(hub, file("a", content), file("b", b"1"))
    large = hub.ask("PUT", upload_link(hub, content), content)
    for each in (answer, large):
        assert each.status in ({507} if free_kib < 400 else {200, 507})
        assert each.status == 200 or "the Hub's disk is full: free some space" in each.json()["error"]
    assert answer.status == 200 or hub.ask("GET", f"{API}/revision/v1").json()["sha"] == head
    assert not list(hub.running.hub.scratch.iterdir())
    fsck(hub.folder)
    ballast.unlink()
    assert commit(hub, file("a", content), file("b", b"1")).status == 200
    assert hub.ask("PUT", upload_link(hub, content + b"x"), content + b"x").status == 200
    fsck(hub.folder)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_client_that_is_killed_leaves_nothing(hub: Served, share: float) -> None:
    """In the middle of a commit, an upload, and a file of another."""
    content = os.urandom(3_000_000)
    link = urlsplit(upload_link(hub, content))
    body = lines(file("a", content))
    where = urlsplit(hub.url)
    for port, target, sent in (
        (where.port, f"POST {API}/commit/v1", body),
        (link.port, f"PUT {link.path}?{link.query}", content),
    ):
        with socket.create_connection((where.hostname or "", port or 0)) as connection:
            token = f"Authorization: Bearer {CI}\r\n" if target.startswith("POST") else ""
            head = f"{target} HTTP/1.1\r\nHost: {where.netloc}\r\n{token}Content-Length: {len(sent)}\r\n\r\n"
            connection.sendall(head.encode() + sent[: int(len(sent) * share)])
    quiet = 0  # the server may not have begun yet
    for _ in range(400):
        quiet = 0 if list(hub.running.hub.scratch.iterdir()) else quiet + 1
        if quiet == 10:
            break
        time.sleep(0.05)
    assert not list(hub.running.hub.scratch.iterdir())
    assert len(log(hub.folder, "v1")) == 1
    assert "actions" in batch(hub, content)
    assert commit(hub, file("a", content)).status == 200
    hub.check()


def test_many_write_and_read_at_once(hub: Served) -> None:
    """Each writer its branch, all of them one more; who reads sees whole commits."""
    seconds = 60.0 if ALL else 3.0
    branches = [f"w{number}" for number in range(8)]
    for branch in branches:
        hub.api().create_branch(REPO, branch=branch, repo_type="kernel")
    until = time.monotonic() + seconds
    written: dict[str, list[str]] = {branch: [] for branch in branches}
    shared: list[str] = []
    wrong: list[object] = []

    def write(branch: str) -> None:
        number = 0
        while time.monotonic() < until:
            number += 1
            text = f"{branch} {number}".encode()
            own = hub.ask("POST", f"{API}/commit/{branch}", lines(file("a", text), file("b/c", text)), CI)
            common = commit(hub, file(f"{branch}/f", text))
            wrong.extend(answer.body for answer in (own, common) if answer.status != 200)
            written[branch].append(own.json()["commitOid"])
            shared.append(common.json()["commitOid"])

    def read(number: int) -> None:
        while time.monotonic() < until:
            branch = branches[number % len(branches)]
            oid = hub.ask("GET", f"{API}/revision/{branch}").json()["sha"]
            pair = [hub.ask("GET", f"{PAGE}/resolve/{oid}/{path}") for path in ("a", "b/c")]
            listed = hub.ask("GET", f"{API}/tree/{branch}?recursive=true")
            refs = hub.ask("GET", f"{API}/refs")
            if pair[0].body != pair[1].body and pair[0].status == 200:
                wrong.append((pair[0].body, pair[1].body))
            wrong.extend(each.body for each in (listed, refs) if each.status != 200)

    threads = [threading.Thread(target=write, args=(branch,)) for branch in branches]
    threads += [threading.Thread(target=read, args=(number,)) for number in range(64 if ALL else 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for branch in branches:
        assert log(hub.folder, branch)[:-1] == written[branch][::-1]
    assert sorted(log(hub.folder, "v1")[:-1]) == sorted(shared)
    assert min(map(len, written.values())) >= 2
    hub.check()


SIZE = (1 << 30) if ALL else 200_000_000
FLAT_MIB = 48


def in_pieces(content: bytes, times: int) -> Iterator[bytes]:
    for _ in range(times):
        yield content


@pytest.mark.parametrize("kept", ["in git", "in a pack", "beside git"])
def test_memory_holds_no_whole_file(tmp_path: Path, started: Callable[..., Process], kept: str) -> None:
    """Neither when one comes nor when one goes; more than one at a time here."""
    lfs = "always" if kept == "beside git" else "never"
    process = started(tmp_path / "hub", "--lfs", lfs)
    create(process, ["v1"])
    piece = os.urandom(999_999)
    times = SIZE // len(piece) // (2 if kept == "in a pack" else 1)
    before = process.peak_mib()
    if lfs == "never":
        begin = lines().rstrip(b"\n") + b'\n{"key": "file", "value": {"content": "'
        end = b'", "path": "a", "encoding": "base64"}}\n'
        texts = in_pieces(base64.b64encode(piece), times)
        assert send(process.url, f"{API}/commit/v1", "POST", (begin, texts, end)) == 200
    else:
        whole = piece * times
        objects = [{"oid": sha256(whole), "size": len(whole)}]
        body = json.dumps({"operation": "upload", "objects": objects}).encode()
        (one,) = process.ask("POST", f"{PAGE}.git/info/lfs/objects/batch", body).json()["objects"]
        link = urlsplit(one["actions"]["upload"]["href"])
        assert send(process.content_url, f"{link.path}?{link.query}", "PUT", (b"", in_pieces(piece, times), b"")) == 200
        assert process.ask("POST", f"{API}/commit/v1", lines(pointer("a", whole))).status == 200
        del whole
    received = process.peak_mib()
    if kept == "in a pack":
        assert run("git", "-C", tmp_path / f"hub/kernels/{REPO}.git", "gc", "-q", "--prune=now").returncode == 0
    place = process.ask("HEAD", f"{PAGE}/resolve/v1/a").headers["Location"] or f"{process.url}{PAGE}/resolve/v1/a"
    sizes: list[int] = []
    readers = [threading.Thread(target=lambda: sizes.append(receive(place))) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert sizes == [len(piece) * times] * 3
    assert received - before < FLAT_MIB
    assert process.peak_mib() - before < FLAT_MIB


def send(url: str, path: str, method: str, body: tuple[bytes, Iterator[bytes], bytes]) -> int:
    """A body in chunks, without a length."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
    headers = {"Authorization": f"Bearer {CI}"} if method == "POST" else {}

    def pieces() -> Iterator[bytes]:
        yield from filter(None, (body[0],))
        yield from body[1]
        yield from filter(None, (body[2],))

    with contextlib.closing(connection):
        connection.request(method, path, pieces(), headers, encode_chunked=True)
        return connection.getresponse().status


def receive(place: str) -> int:
    where = urlsplit(place)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
    with contextlib.closing(connection):
        connection.request("GET", f"{where.path}?{where.query}")
        answer = connection.getresponse()
        size = 0
        while piece := answer.read(1 << 20):
            size += len(piece)
        return size


HANGS = """
import sys, threading, urllib.request
from pathlib import Path
from hubkernels.hub.local import serve

serve._FINISHES_WITHIN_S = 0
asked = threading.Event()

def hanging(app):
    async def hang(scope, receive, send):
        asked.set()
        threading.Event().wait()
    return hang

with serve.serve(Path(sys.argv[1]), wrap=hanging) as running:
    threading.Thread(target=urllib.request.urlopen, args=(running.url,), daemon=True).start()
    asked.wait()
"""


def test_a_request_that_hangs_does_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    """It was waited for, for ever."""
    ended = run(sys.executable, "-c", HANGS, tmp_path / "hub")
    assert ended.returncode == 1
    assert "HungError: the Hub ended without 1 of its requests" in ended.stderr


def test_a_lock_that_a_request_holds_does_not_keep_a_server_from_ending(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A pipe in the place of a pack was waited for with it held, and the server had to be killed."""
    with serve_hub(tmp_path / "hub", Accounts(parse_tokens(GRANTS, "test"))) as running:
        Served(running).api().create_repo(REPO, repo_type="kernel")
        (stored,) = running.hub
        assert stored.git.objects._looks_up.acquire(timeout=60)
    assert f"{stored.git.folder / 'objects'} is still read by a request that does not end" in caplog.text
