"""Fetch from the index with what pip was told: certificates, a proxy, credentials. Secrets stay in here."""

from __future__ import annotations

import ast
import base64
import contextlib
import http.client
import io
import netrc
import re
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.process import Finished, run
from hubkernels.toolchain.sdk.index import UnreachedError, without_secrets
from hubkernels.toolchain.sdk.patience import PATIENT, Patience

_LINE = re.compile(r"^(global|install|:env:)\.([\w-]+)=(.+)$", re.MULTILINE)
_SECTIONS = ("global", "install", ":env:")  # of what `pip install` reads, the last one wins
_TIMEOUT_S = 60.0
_UNAUTHORIZED = (401, 403, 407)
_BUSY = (429, 500, 502, 503, 504)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_PORTS = {"http": 80, "https": 443}
_BUNDLE_OF_PIP = "from pip._vendor import certifi; print(certifi.where())"
_FILES_OF_SYSTEMS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems have certificates: for an OpenSSL that was built to look elsewhere, as pip does."""


class AnswerError(EnvironmentLacksError):
    """The server answers with an error that is about the question, or about itself."""


@dataclass(frozen=True)
class Settings:
    """What of pip's configuration decides a transfer. credentials: by host and port, as ``user:password``.

    certificates: a file, or a folder as OpenSSL has them. bundle: those that pip brings, where none are set.
    """

    certificates: str | None = None
    bundle: str | None = None
    proxy: str | None = None
    trusted: frozenset[str] = frozenset()
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_settings(environment: Mapping[str, str], start: Callable[..., Finished] = run) -> Settings:
    """Ask pip, and look into ``~/.netrc``, as pip does. Where pip cannot say, nothing is set."""
    said: dict[str, list[str]] = {}  # by option, what wins last: within a section that is pip's own order
    lines = _LINE.findall(start((sys.executable, "-m", "pip", "config", "list"), env=environment).output)
    for _, option, value in sorted(lines, key=lambda line: _SECTIONS.index(line[0])):
        said.setdefault(option, []).append(_literal(value))
    pages = [
        word
        for name in ("index-url", "extra-index-url", "find-links")
        for text in said.get(name, ())
        for word in text.split()
    ]
    certificates = environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    certificates = said.get("cert", [certificates])[-1]
    return Settings(
        certificates=certificates,
        bundle=None if certificates else _bundle(environment, start),
        proxy=said.get("proxy", [None])[-1],
        trusted=frozenset(word for text in said.get("trusted-host", ()) for word in text.split()),
        credentials={**dict(_netrc(environment)), **dict(_userinfo(pages))},
    )


def _bundle(environment: Mapping[str, str], start: Callable[..., Finished]) -> str | None:
    return start((sys.executable, "-c", _BUNDLE_OF_PIP), env=environment).output.strip() or None


def _literal(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def _userinfo(pages: Iterable[str]) -> Iterator[tuple[str, str]]:
    for page in pages:
        user, at, _ = urlsplit(page).netloc.rpartition("@")
        if at:
            name, _, password = user.partition(":")
            yield _host(page), f"{unquote(name)}:{unquote(password)}"


def _netrc(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    path = environment.get("NETRC") or Path(environment.get("HOME", "/"), ".netrc")
    try:
        hosts = netrc.netrc(str(path)).hosts
    except (OSError, ValueError, netrc.NetrcParseError):  # ValueError: it is not UTF-8
        return
    for host, (login, _, password) in hosts.items():
        yield host, f"{login}:{password}"


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"


class Transfer:
    """Opens addresses of http and https. A server that says that it is busy is asked again, after a pause.

    tries: how often to begin where what is read breaks off.
    """

    def __init__(
        self, settings: Settings, sleep: Callable[[float], None] = time.sleep, patience: Patience = PATIENT
    ) -> None:
        self._settings = settings
        self._sleep = sleep
        self._patience = patience
        self._tries = patience.busy + 1
        self.tries = patience.broken + 1
        self._timeout_s = patience.answer_s or _TIMEOUT_S

    def open(self, url: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - urllib's response has several types
        """The response. Raises UnreachedError where there is none, EnvironmentLacksError where it is an error."""
        for asked in range(1, self._tries + 1):
            try:
                return self._open(url, {"Accept-Encoding": "identity", **headers})
            except urllib.error.HTTPError as error:  # noqa: PERF203 - each try is a request
                error.close()
                if error.code not in _BUSY or asked == self._tries:
                    raise _refused(url, error) from error
                self._sleep(_pause_s(error.headers.get("Retry-After", ""), asked))
        raise AssertionError

    def _open(self, url: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - as above
        try:
            request = urllib.request.Request(_without_user(url.partition("#")[0]), headers=dict(headers))  # noqa: S310 - the opener has two schemes
            self._authorize(request)
            return self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            hint = "is there a network? proxy and certificates are pip's: `pip config list`"
            what = f"cannot fetch {without_secrets(url)}: {without_secrets(str(reason))}"
            raise UnreachedError(Problem(what, hint=hint)) from error

    def _authorize(self, request: urllib.request.Request) -> None:
        """Credentials of the very host: a redirect to another one does not get them."""
        host = _host(request.full_url)
        known = self._settings.credentials.get(host) or self._settings.credentials.get(host.rpartition(":")[0])
        if known:
            word = base64.b64encode(known.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {word}")

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        proxy = self._settings.proxy
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None),
            urllib.request.UnknownHandler(),
            _Http(self._patience),
            _Https(self._settings, self._patience),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(self._authorize),
        ):
            opener.add_handler(handler)
        return opener


class _Answer(http.client.HTTPResponse):
    """An answer that is given up, in its headers or its body, where what comes is not enough."""

    def __init__(self, connected: socket.socket, url: str, patience: Patience, method: str | None = None) -> None:
        super().__init__(connected, method=method)
        self.fp = io.BufferedReader(_Watched(self.fp.detach(), url, patience))


class _Watched(io.RawIOBase):
    """What comes from a server. Raises UnreachedError where it is not enough."""

    def __init__(self, raw: io.RawIOBase, url: str, patience: Patience) -> None:
        self._raw, self._url, self._patience = raw, url, patience
        self._began, self._received = time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - whatever has room for bytes
        count: int | None = self._raw.readinto(buffer)
        self._received += count or 0
        waited_s = time.monotonic() - self._began
        if not self._patience.is_enough(self._received, waited_s):
            what = f"cannot fetch {without_secrets(self._url)}: {self._received} bytes came in {waited_s:.0f} s"
            raise UnreachedError(Problem(what, hint="`kernel-builder toolchain lock` waits for a slow server"))
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _watched(
    kind: Callable[..., http.client.HTTPConnection], url: str, patience: Patience
) -> Callable[..., http.client.HTTPConnection]:
    """How to connect so that the answer is watched."""

    def connect(*words: Any, **more: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - as urllib calls it
        made = kind(*words, **more)
        made.response_class = partial(_Answer, url=url, patience=patience)  # type: ignore[assignment]  # it is called alone
        return made

    return connect


class _Http(urllib.request.HTTPHandler):
    def __init__(self, patience: Patience) -> None:
        super().__init__()
        self._patience = patience

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_watched(http.client.HTTPConnection, request.full_url, self._patience), request)


class _Https(urllib.request.AbstractHTTPHandler):
    """HTTPS that asks for each host, of a redirect too, whether its certificate counts."""

    def __init__(self, settings: Settings, patience: Patience) -> None:
        super().__init__()
        self._settings = settings
        self._patience = patience

    https_request = urllib.request.AbstractHTTPHandler.do_request_

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        host = _host(request.full_url)
        trusted = {host, host.rpartition(":")[0]} & self._settings.trusted
        connection = _watched(http.client.HTTPSConnection, request.full_url, self._patience)
        return self.do_open(connection, request, context=self._blind if trusted else self._checking)

    @cached_property
    def _checking(self) -> ssl.SSLContext:
        if place := self._settings.certificates:
            with _reading(place):
                folder = Path(place).is_dir()
                return ssl.create_default_context(capath=place if folder else None, cafile=None if folder else place)
        context = ssl.create_default_context()
        for file in filter(None, (self._settings.bundle, _file_of_system())):
            with _reading(file):
                context.load_verify_locations(file)
        return context

    @cached_property
    def _blind(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, authorize: Callable[[urllib.request.Request], None]) -> None:
        self._authorize = authorize

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0913, PLR0917 - as urllib has it
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError("it redirects from https to http")
        following = super().redirect_request(req, fp, code, msg, headers, _without_user(newurl))
        if following:
            self._authorize(following)
        return following


@contextlib.contextmanager
def _reading(certificates: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"the certificates in {certificates} cannot be read: {error.strerror or error}"
        hint = "the place is that of `cert` in `pip config list`, else of REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE"
        raise EnvironmentLacksError(Problem(what, hint=hint)) from error


def _file_of_system() -> str | None:
    """Certificates of the system, where OpenSSL knows of none."""
    known = ssl.get_default_verify_paths()
    if known.cafile or (known.capath and any(Path(known.capath).iterdir())):
        return None
    return next((file for file in _FILES_OF_SYSTEMS if Path(file).is_file()), None)


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _refused(url: str, error: urllib.error.HTTPError) -> EnvironmentLacksError:
    what = f"cannot fetch {without_secrets(url)}: the server answers {error.code} {without_secrets(str(error.reason))}"
    if error.code in {404, 410}:
        hint = "what pip told may be out of date: run again, `toolchain lock` with --update"
        return EnvironmentLacksError(Problem(what, hint=hint))
    if error.code in _UNAUTHORIZED:
        return EnvironmentLacksError(
            Problem(what, hint="credentials are taken from pip's index addresses and ~/.netrc: is the right one there?")
        )
    return AnswerError(Problem(what, hint="run again later"))


def _pause_s(said: str, asked: int) -> float:
    """How long to wait: what the server says, else twice as long each time; never long."""
    if re.fullmatch("[0-9]+", said):
        return min(float(said), _LONGEST_PAUSE_S)
    try:
        left_s = (parsedate_to_datetime(said) - datetime.now(timezone.utc)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        left_s = _FIRST_PAUSE_S * 2 ** (asked - 1)
    return min(max(left_s, 0.0), _LONGEST_PAUSE_S)
