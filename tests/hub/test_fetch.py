"""What comes by git on a pull, from a Hub that is damaged, silent, or refuses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest
from dulwich.protocol import ReceivableProtocol, pkt_line

from hubkernels.errors import CheckFailedError, HubRefusedError
from hubkernels.hub import pull
from hubkernels.hub.local.repository import lay_out
from hubkernels.hub.remote import Remote
from tests.hub.conftest import Served
from tests.hub.test_http import PAGE, commit, file


@contextmanager
def replaying(status: int, told: bytes, pack: bytes) -> Iterator[str]:
    """A Hub that gives these answers to git."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer("advertisement", told)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.answer("result", pack)

        def answer(self, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetched(url: str, folder: Path) -> dict[str, str]:
    remote = Remote("org/my-kernel", token="hf_x")  # noqa: S106 - of nobody
    remote._api.endpoint = url
    folder.mkdir()
    lay_out(folder)
    return pull._fetch(remote, folder, set())


@pytest.fixture
def answers(hub: Served) -> tuple[bytes, bytes]:
    """What a whole Hub says to a client of git that has nothing; a pack without words on its progress."""
    assert commit(hub, file("a", b"1" * 500)).status == 200
    told = hub.ask("GET", f"{PAGE}/info/refs?service=git-upload-pack").body
    head = hub.ask("GET", f"/api{PAGE}/revision/v1").json()["sha"]
    want = f"want {head} side-band-64k ofs-delta\n".encode()
    asked = b"%04x%s00000009done\n" % (len(want) + 4, want)
    answer = BytesIO(hub.ask("POST", f"{PAGE}/git-upload-pack", asked).body)
    lines = ReceivableProtocol(answer.read, lambda _: None).read_pkt_seq()
    pack = b"".join(line[1:] for line in lines if line.startswith(b"\x01"))
    return told, pkt_line(b"NAK\n") + pkt_line(b"\x01" + pack) + pkt_line(None)


def test_what_was_whole_is_fetched(answers: tuple[bytes, bytes], tmp_path: Path) -> None:
    with replaying(200, *answers) as url:
        assert set(fetched(url, tmp_path / "new")) == {"main", "v1"}


def flipped(text: bytes, at: int) -> bytes:
    return text[:at] + bytes([text[at] ^ 0x55]) + text[at + 1 :]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that dulwich leaves open
def test_damage_is_told_wherever_it_is(answers: tuple[bytes, bytes], tmp_path: Path) -> None:
    """It was a traceback of dulwich's, or of zlib's."""
    told, pack = answers
    start, end = pack.index(b"PACK"), len(pack) - 4
    damaged = [flipped(pack, at) for at in (0, start, end - 20, *range(start + 24, end, 61))]
    kinds = set()
    for number, body in enumerate((*damaged, pack[: end // 2])):
        with replaying(200, told, body) as url, pytest.raises((CheckFailedError, HubRefusedError)) as error:
            fetched(url, tmp_path / str(number))
        kinds.add(error.type)
        assert "git fetch" in str(error.value)
        assert "hint: try again" in str(error.value), "a token has nothing to do with it"
    assert kinds == {CheckFailedError, HubRefusedError}


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "is the name right, and may this token see it"),
        (404, "is the name right, and may this token see it"),
        (500, "try again"),
    ],
)
def test_a_refusal_has_its_way_out(tmp_path: Path, status: int, hint: str) -> None:
    with replaying(status, b"", b"") as url, pytest.raises(HubRefusedError, match=f"hint: {hint}"):
        fetched(url, tmp_path / "new")


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: x\r\nContent-Length: 99\r\n\r\n001e"])
def test_a_hub_that_falls_silent_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(pull, "_SILENT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(5)
        held = []

        def answer() -> None:
            with suppress(OSError):  # the test is over
                for _ in range(4):  # urllib3 asks again, where it got nothing
                    held.append(silent.accept()[0])
                    held[-1].sendall(first)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(HubRefusedError, match="timed out"):
            fetched(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path / "new")
        for each in held:
            each.close()
