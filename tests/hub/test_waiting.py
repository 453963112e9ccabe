"""A Hub that stalls, is broken for good, or is none."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.hub.remote import Remote
from hubkernels.hub.sign_key import read_signer
from hubkernels.hub.waiting import PATIENCE, GaveUpError, Patience
from tests.hub.conftest import Serve, Verb


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_HEAD = do_GET  # noqa: N815 - the names of the library

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def at(url: str) -> Remote:
    found = Remote("org/my-kernel", token="hf_x")  # noqa: S106 - of nobody
    found._api.endpoint = url
    return found


@pytest.mark.parametrize("body", [b"<html>Login</html>", b"[]", b"{}", b"null"])
def test_what_is_no_hub_is_said_to_be_none(body: bytes) -> None:
    """It was a traceback."""
    with answering(200, body) as url, pytest.raises(EnvironmentLacksError, match="something stands before it"):
        at(url).branches()
    with answering(200, body) as url:
        found = at(url)
        try:
            assert found.files("0" * 40) == {}
        except EnvironmentLacksError as error:
            assert "something stands before it" in str(error)  # noqa: PT017 - an empty list is one of a Hub


def test_a_hub_that_is_broken_for_good_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks six times, and we asked it four."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with answering(500, b"") as url, pytest.raises(EnvironmentLacksError, match="was tried 4 times"):
        at(url).files("0" * 40)


def test_a_hub_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    found = at("")
    monkeypatch.setattr(PATIENCE, "_silent_s", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(EnvironmentLacksError, match="cannot be reached"):
            found.branches()


def test_a_disk_that_is_full_has_a_place_and_a_way_out(tmp_path: Path) -> None:
    found = Remote("org/my-kernel", token="hf_x", cache=tmp_path)  # noqa: S106 - of nobody

    def full() -> None:
        raise OSError(28, "No space left on device")

    def short() -> None:
        raise OSError("Consistency check failed: file should be of size 9 but has size 4")

    with pytest.raises(EnvironmentLacksError, match=rf"No space left(.|\n)*{tmp_path}(.|\n)*HF_HOME"):
        found._ask(full)
    with pytest.raises(EnvironmentLacksError, match=r"Consistency check failed(.|\n)*hint: try again"):
        found._ask(short)


def test_a_token_that_is_none_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "t\u00e9")
    with pytest.raises(InputError, match="token of the Hub is none"):
        Remote("org/my-kernel")


def test_an_endpoint_that_is_no_address_is_refused(serve: Serve, verb: Verb) -> None:
    ran = verb(serve(), "lock", "org/my-kernel@1", "--output", "x.lock", HF_ENDPOINT="http://[::1")
    assert (ran.code, "Traceback" in ran.err) == (2, False), ran.err
    assert "HF_ENDPOINT is no address" in ran.err


def test_a_key_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key")
    with pytest.raises(EnvironmentLacksError, match="is no regular file"):
        read_signer(tmp_path / "key", None)


def test_what_one_thread_asks_is_not_forgotten_by_another() -> None:
    """Eight readers of a lock share the client: each new question cleared the tries of all, and none gave up."""
    patience, asked = Patience(), httpx2.Request("GET", "http://127.0.0.1/x")
    for _ in range(4):
        patience.before(asked)
        with ThreadPoolExecutor(1) as another:
            another.submit(patience.before, asked).result()
            another.submit(patience.forget).result()
    with pytest.raises(GaveUpError, match="tried 4 times"):
        patience.before(asked)
    patience.before(asked)
