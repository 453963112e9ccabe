"""Fetch from the index with what pip was told: certificates, a proxy, credentials. Secrets stay in here."""

from __future__ import annotations

import ast
import base64
import http.client
import netrc
import re
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.process import Finished, run
from hubkernels.toolchain.sdk.index import without_secrets

_LINE = re.compile(r"^(global|install|:env:)\.([\w-]+)=(.+)$", re.MULTILINE)
_SECTIONS = ("global", "install", ":env:")  # of what `pip install` reads, the last one wins
_TIMEOUT_S = 60.0
_UNAUTHORIZED = (401, 403, 407)
_PORTS = {"http": 80, "https": 443}


class GoneError(EnvironmentLacksError):
    """The index has no file under this address."""


class AnswerError(EnvironmentLacksError):
    """The server answers with an error that is about the question, or about itself."""


@dataclass(frozen=True)
class Settings:
    """What of pip's configuration decides a transfer. credentials: by host and port, as ``user:password``."""

    certificates: str | None = None
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
    bundle = environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    return Settings(
        certificates=said.get("cert", [bundle])[-1],
        proxy=said.get("proxy", [None])[-1],
        trusted=frozenset(word for text in said.get("trusted-host", ()) for word in text.split()),
        credentials={**dict(_netrc(environment)), **dict(_userinfo(pages))},
    )


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
    except (OSError, netrc.NetrcParseError):
        return
    for host, (login, _, password) in hosts.items():
        yield host, f"{login}:{password}"


def _host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS.get(parts.scheme)}"


def shown(url: str) -> str:
    """An address as messages may have it."""
    return without_secrets(url)


class Transfer:
    """Opens addresses of http and https."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._openers: dict[bool, urllib.request.OpenerDirector] = {}

    def open(self, url: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - urllib's response has several types
        """The response. Raises GoneError, or EnvironmentLacksError with the reason."""
        plain, _, _ = url.partition("#")
        request = urllib.request.Request(_without_user(plain), headers={"Accept-Encoding": "identity", **headers})  # noqa: S310 - the opener has two schemes
        self._authorize(request)
        try:
            return self._opener(url).open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            raise _refused(url, error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            hint = "is there a network? proxy and certificates are those of `pip config list`"
            raise EnvironmentLacksError(
                Problem(f"cannot fetch {shown(url)}: {without_secrets(str(reason))}", hint=hint)
            ) from error

    def _authorize(self, request: urllib.request.Request) -> None:
        """Credentials of the very host: a redirect to another one does not get them."""
        host = _host(request.full_url)
        known = self._settings.credentials.get(host) or self._settings.credentials.get(host.rpartition(":")[0])
        if known:
            word = base64.b64encode(known.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {word}")

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        host = _host(url)
        trusted = bool({host, host.rpartition(":")[0]} & self._settings.trusted)
        if trusted not in self._openers:
            self._openers[trusted] = self._new_opener(trusted=trusted)
        return self._openers[trusted]

    def _new_opener(self, *, trusted: bool) -> urllib.request.OpenerDirector:
        context = ssl.create_default_context(cafile=self._settings.certificates)
        if trusted:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        proxy = self._settings.proxy
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            _Redirects(self._authorize),
        ):
            opener.add_handler(handler)
        return opener


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, authorize: Callable[[urllib.request.Request], None]) -> None:
        self._authorize = authorize

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, PLR0913, PLR0917 - as urllib has it
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise urllib.error.URLError("it redirects from https to http")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following:
            self._authorize(following)
        return following


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _refused(url: str, error: urllib.error.HTTPError) -> EnvironmentLacksError:
    what = f"cannot fetch {shown(url)}: the server answers {error.code} {without_secrets(str(error.reason))}"
    if error.code in {404, 410}:
        hint = "what pip told may be out of date: run again, `toolchain lock` with --update"
        return GoneError(Problem(what, hint=hint))
    if error.code in _UNAUTHORIZED:
        return EnvironmentLacksError(
            Problem(what, hint="credentials are taken from pip's index addresses and ~/.netrc: is the right one there?")
        )
    return AnswerError(Problem(what, hint="run again later"))
