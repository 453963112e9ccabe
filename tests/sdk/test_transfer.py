"""What of a server's answers, and of pip's configuration, decides a transfer: certificates, pauses, redirects."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import pytest

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.host.process import Finished
from hubkernels.toolchain.sdk.index import Found, UnreachedError
from hubkernels.toolchain.sdk.patience import HURRIED
from hubkernels.toolchain.sdk.ranges import NoRangesError, RangedFile, fetch_whole
from hubkernels.toolchain.sdk.transfer import Settings, Transfer, read_settings
from tests.sdk.conftest import TORCH_FILE, Served, Told, pip_environment, serve, torch_wheel
from tests.sdk.test_make import lock_torch


@dataclass(frozen=True)
class Secure:
    """A server with a certificate that it made for itself."""

    served: Served
    certificate: Path

    @property
    def host(self) -> str:
        return self.served.url.removeprefix("https://")

    @property
    def file(self) -> str:
        return self.served.add("x-1.whl", b"content").url


@pytest.fixture
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Secure]]:
    """Starts a server over TLS."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl to make certificates with")
    with ExitStack() as servers:

        def start() -> Secure:
            folder = tmp_path_factory.mktemp("tls")
            make_certificate(folder)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
            served: Any = serve(context)
            servers.enter_context(closing(served))
            return Secure(next(served), folder / "cert.pem")

        yield start


def make_certificate(folder: Path) -> None:
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)


def content(settings: Settings, url: str) -> bytes:
    with Transfer(settings).open(url, {}) as response:
        return bytes(response.read())


def test_in_a_hurry_a_busy_server_is_not_asked_again(served: Served) -> None:
    slept: list[float] = []
    found = served.add("x-1.whl", b"content")
    served.busy = [(503, {"Retry-After": "30"})]
    with pytest.raises(EnvironmentLacksError, match="the server answers 503"):
        Transfer(Settings(), slept.append, HURRIED).open(found.url, {})
    assert slept == []


def test_in_a_hurry_a_silent_server_is_waited_for_as_long_as_pip_waits(served: Served) -> None:
    found = served.add("x-1.whl", b"content", "held")
    with pytest.raises(UnreachedError, match="timed out"):
        Transfer(Settings(), patience=replace(HURRIED, answer_s=1)).open(found.url, {})
    assert not served.go_on.is_set()


BRIEF = replace(HURRIED, question_s=0.5)


@pytest.mark.parametrize("way", ["drips", "drips its headers"])
def test_in_a_hurry_a_wheel_that_drips_is_given_up(served: Served, tmp_path: Path, way: str) -> None:
    """It is never silent, and was waited for to its end."""
    found = served.add(TORCH_FILE, torch_wheel(), way)
    with pytest.raises(UnreachedError, match=rf"cannot fetch {found.url}: \d+ bytes came in \d+ s"):
        fetch_whole(found.url, tmp_path / TORCH_FILE, found.sha256, Transfer(Settings(), patience=BRIEF), print)
    assert len(served.asked) == 1


@pytest.mark.parametrize(("way", "asked"), [("drips", 2), ("drips its headers", 1)])
def test_in_a_hurry_parts_that_drip_are_given_up_and_the_whole_is_not_asked_for(
    served: Served, told: Told, way: str, asked: int
) -> None:
    told.patience = BRIEF
    with pytest.raises(UnreachedError, match="bytes came in"):
        lock_torch(told, served.add(TORCH_FILE, torch_wheel(), way))
    assert len(served.asked) == asked
    assert all(part for _, part, _ in served.asked)


def test_in_a_hurry_what_breaks_off_is_not_tried_again(served: Served, tmp_path: Path) -> None:
    found = served.add(TORCH_FILE, torch_wheel(), "broken off")
    with pytest.raises(EnvironmentLacksError, match="broke off"):
        fetch_whole(found.url, tmp_path / TORCH_FILE, found.sha256, Transfer(Settings(), patience=HURRIED), print)
    assert len(served.asked) == 1


def test_in_a_hurry_a_part_that_breaks_off_is_not_tried_again(served: Served) -> None:
    found = served.add(TORCH_FILE, torch_wheel(), "too little")
    with pytest.raises(NoRangesError, match="broke off"):
        RangedFile(found.url, Transfer(Settings(), patience=HURRIED))
    assert len(served.asked) == 2, "its first byte, and its end"


def redirected(first: Secure, to: str) -> str:
    return first.served.add("there-1.whl", b"", f"to {to}").url


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A system without certificates."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_redirect_of_a_trusted_host_is_not_trusted_itself(secure: Callable[[], Secure]) -> None:
    """trusted-host of pip is about the hosts that it names."""
    first, second = secure(), secure()
    url = redirected(first, second.file)
    with pytest.raises(EnvironmentLacksError, match="CERTIFICATE_VERIFY_FAILED"):
        content(Settings(trusted=frozenset({first.host})), url)
    assert content(Settings(trusted=frozenset({first.host, second.host})), url) == b"content"


def test_a_redirect_to_a_trusted_host_is_trusted(secure: Callable[[], Secure]) -> None:
    first, second = secure(), secure()
    settings = Settings(certificates=str(first.certificate), trusted=frozenset({second.host}))
    assert content(settings, redirected(first, second.file)) == b"content"


@pytest.mark.usefixtures("nobody")
def test_where_pip_has_no_certificates_set_those_count_that_it_brings(
    secure: Callable[[], Secure], tmp_path: Path
) -> None:
    server = secure()

    def start(command: tuple[str, ...], **_: object) -> Finished:
        return Finished(0, f"{server.certificate}\n" if "certifi" in command[-1] else "", "")

    assert content(read_settings({"HOME": str(tmp_path)}, start), server.file) == b"content"
    without = read_settings({"HOME": str(tmp_path)}, lambda *_, **__: Finished(1, "", "no pip"))
    with pytest.raises(EnvironmentLacksError, match="CERTIFICATE_VERIFY_FAILED"):
        content(without, server.file)


@pytest.mark.usefixtures("nobody")
def test_pip_is_asked_for_the_certificates_that_it_brings(tmp_path: Path) -> None:
    own = {name: text for name, text in pip_environment(tmp_path, "http://x").items() if "CA_BUNDLE" not in name}
    found = read_settings(own)
    assert found.certificates is None
    assert found.bundle
    assert "BEGIN CERTIFICATE" in Path(found.bundle).read_text(encoding="utf-8")


def test_certificates_in_a_folder_are_found(secure: Callable[[], Secure], tmp_path: Path) -> None:
    server = secure()
    command = ("openssl", "x509", "-hash", "-noout", "-in", str(server.certificate))
    name = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(server.certificate, tmp_path / f"{name}.0")
    assert content(Settings(certificates=str(tmp_path)), server.file) == b"content"


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_named(
    secure: Callable[[], Secure], tmp_path: Path, text: str | None
) -> None:
    if text:
        (tmp_path / "c.pem").write_text(text)
    with pytest.raises(EnvironmentLacksError, match=r"the certificates in \S*/c\.pem cannot be read: [^$]*REQUESTS_CA"):
        content(Settings(certificates=str(tmp_path / "c.pem")), secure().file)


def test_what_a_redirect_names_as_user_is_left_out_and_sent_to_nobody(
    served: Served, another: Served, told: Told
) -> None:
    elsewhere = another.add(TORCH_FILE, torch_wheel())
    to = elsewhere.url.replace("http://", "http://u:secret@")
    lock_torch(told, replace(served.add(TORCH_FILE, b"", f"to {to}"), sha256=elsewhere.sha256))
    assert {user for _, _, user in another.asked} == {None}


def test_a_redirect_that_is_no_address_of_the_web_is_told(served: Served) -> None:
    found = served.add(TORCH_FILE, b"", "to ftp://u:secret@127.0.0.1/x.whl")
    with pytest.raises(EnvironmentLacksError, match="cannot fetch .*ftp") as error:
        Transfer(Settings()).open(found.url, {})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("busy", "slept_s"),
    [
        ([(429, {"Retry-After": "7"})], [7.0]),
        ([(503, {}), (502, {})], [1.0, 2.0]),
        ([(503, {"Retry-After": "86400"})], [30.0]),
        ([(503, {"Retry-After": "-5"})], [1.0]),
        ([(503, {"Retry-After": "soon"})], [1.0]),
        ([(503, {"Retry-After": "9" * 5000})], [30.0]),
    ],
)
def test_a_server_that_is_busy_is_asked_again_after_a_pause_and_not_for_the_whole(
    served: Served, told: Told, busy: list[tuple[int, dict[str, str]]], slept_s: list[float]
) -> None:
    served.busy += busy
    lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    assert told.slept_s == slept_s
    assert None not in {part for _, part, _ in served.asked}, "all of the wheel was asked for"


def test_a_pause_may_be_told_as_a_date(served: Served, told: Told) -> None:
    served.busy.append((503, {"Retry-After": formatdate(time() + 10, usegmt=True)}))
    lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    (slept_s,) = told.slept_s
    assert 0 < slept_s <= 10


def test_a_server_that_stays_busy_is_told(served: Served, told: Told) -> None:
    served.busy += [(503, {})] * 50
    with pytest.raises(EnvironmentLacksError, match="the server answers 503"):
        lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    assert told.slept_s == [1.0, 2.0, 4.0] * 2, "of a part, and of the whole"


@pytest.mark.parametrize("length", ["abc", "9" * 5000, "-1"])
def test_a_length_that_is_no_number_is_none(served: Served, told: Told, length: str) -> None:
    served.said["Content-Length"] = length
    lock_torch(told, served.add(TORCH_FILE, torch_wheel(), "no ranges"))


def test_a_part_of_a_file_of_endless_length_is_no_part(served: Served, told: Told) -> None:
    lock_torch(told, served.add(TORCH_FILE, torch_wheel(), "endless"))
    assert any("asked for bytes 0-0, got 'bytes 0-0/999" in line for line in told.said)


def packed(served: Served) -> Found:
    """A wheel that comes as gzip of it."""
    wheel = torch_wheel()
    served.said["Content-Encoding"] = "gzip"
    return replace(served.add(TORCH_FILE, gzip.compress(wheel), "no ranges"), sha256=hashlib.sha256(wheel).hexdigest())


def test_a_body_that_is_encoded_though_asked_not_to_be_is_told_as_that(served: Served, told: Told) -> None:
    with pytest.raises(InputError, match=r"other bytes[^$]*hint: the server sends it as 'gzip', and was asked not to"):
        lock_torch(told, packed(served))


def test_a_header_that_says_encoded_of_a_wheel_that_is_not_does_no_harm(served: Served, told: Told) -> None:
    served.said["Content-Encoding"] = "gzip"
    lock_torch(told, served.add(TORCH_FILE, torch_wheel(), "no ranges"))
