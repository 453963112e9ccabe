"""Requests to a Hub, with the standard library: retried while it is busy, bounded, the token for its origin alone."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urljoin, urlsplit

from hubkernels import __version__
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, HubRefusedError, Problem
from hubkernels.model.refused import way_out

Result = TypeVar("Result")

AGENT = f"hubkernels/{__version__}"

_BUSY = frozenset({429, 500, 502, 503, 504})
_PAUSES_S = (0.5, 2.0, 5.0)
"""Before a busy Hub is asked again."""

_LONGEST_S = 30.0
"""Of a pause that the Hub itself asks for."""

_TIMEOUT_S = 60.0
_PIECE = 1 << 20
_SAID_MOST = 1 << 16
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_UNAUTHORIZED, _MISSING = 401, 404
_PORTS = {"http": 80, "https": 443}


class RefusedError(HubRefusedError):
    """An answer with an error status. code: the Hub's word for it."""

    def __init__(self, problem: Problem, status: int, code: str | None = None) -> None:
        super().__init__(problem)
        self.status = status
        self.code = code

    @property
    def no_repository(self) -> bool:
        """Whether there is none that whoever asks may see: the public Hub says 401 of one that is not there."""
        return self.code == "RepoNotFound" or (self.status == _UNAUTHORIZED and self.code is None)


class TooMuchError(HubRefusedError):
    """An answer is longer than it may be."""


@dataclass(frozen=True)
class Answer:
    url: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        """Raises HubRefusedError for what is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            hint = "is HF_ENDPOINT a Hub? A proxy may have answered in its place"
            raise HubRefusedError(Problem("the answer is no JSON", self.url, hint)) from error


class Web:
    """One origin, and where it leads to. token: shown to it alone."""

    def __init__(self, endpoint: str, token: str | None) -> None:
        self.endpoint = endpoint
        self._token = token
        self._opener = _opener()

    def read(self, path: str, most: int, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a request. A path is of the endpoint; an address must be of its origin.

        Raises RefusedError, TooMuchError, and EnvironmentLacksError where nobody answers.
        """
        url = path if "://" in path else self.endpoint + path
        if not self._is_own(url):
            raise HubRefusedError(Problem(f"the Hub leads to another one: {url[:200]}", self.endpoint))

        def attempt() -> Answer:
            with self._open(url, body, headers or {}) as answer:
                found = answer.read(most + 1)
                if len(found) > most:
                    raise TooMuchError(Problem(f"the answer has more than {most} bytes", url))
                _insist_on_end(answer)
                return Answer(url, answer.headers, found)

        return self._again(attempt, url)

    def save(self, path: str, file: BinaryIO, most: int) -> None:
        """The content at a path, written to an open file from its start. Raises as `read`."""
        url = self.endpoint + path

        def attempt() -> None:
            file.seek(0)
            file.truncate()
            with self._open(url, None, {}) as answer:
                while piece := answer.read(_PIECE):
                    file.write(piece)
                    if file.tell() > most:
                        raise TooMuchError(Problem(f"the file has more than the {most} bytes that it should have", url))
                _insist_on_end(answer)

        self._again(attempt, url)

    def _open(self, url: str, body: bytes | None, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - a response
        """Follows redirections of what is only read."""
        for _ in range(_HOPS):
            request = urllib.request.Request(url, body, {"User-Agent": AGENT, **headers})  # noqa: S310 - the opener has no other schemes
            if self._token and self._is_own(url):
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            try:
                return self._opener.open(request, timeout=_TIMEOUT_S)
            except urllib.error.HTTPError as error:
                where = error.headers.get("Location")
                if error.code not in _REDIRECTS or body is not None or not where:
                    raise
                error.close()
                url = _next(url, where)
            except ValueError as error:  # of what a Hub wrote: our own addresses were looked at
                raise HubRefusedError(
                    Problem(f"an address that cannot be asked: {url[:200]!r}", self.endpoint)
                ) from error
        raise HubRefusedError(Problem(f"more than {_HOPS} redirections", url))

    def _is_own(self, url: str) -> bool:
        try:
            return _origin(url) == _origin(self.endpoint)
        except ValueError:
            return False

    def _again(self, attempt: Callable[[], Result], url: str, pauses_s: tuple[float, ...] = _PAUSES_S) -> Result:
        try:
            return attempt()
        except urllib.error.HTTPError as error:
            with error:
                if not pauses_s or error.code not in _BUSY:
                    raise self._refused(error, url) from error
                pause = _wished_s(error)
            time.sleep(pauses_s[0] if pause is None else pause)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
            if not pauses_s or not isinstance(error, (http.client.IncompleteRead, ConnectionResetError)):
                raise self._unreachable(error) from error
            time.sleep(pauses_s[0])
        return self._again(attempt, url, pauses_s[1:])

    def _refused(self, error: urllib.error.HTTPError, url: str) -> RefusedError:
        said = error.headers.get("X-Error-Message") or error.reason or ""
        hint = way_out(error.code, token_was_sent=bool(self._token) and self._is_own(error.geturl()))
        code = error.headers.get("X-Error-Code")
        if code == "RevisionNotFound":
            hint = "a branch, a tag, or a commit of 40 hex digits that is there"
        return RefusedError(Problem(f"the Hub refused ({error.code}): {said[:500]}", url, hint), error.code, code)

    def _unreachable(self, error: Exception) -> HubkernelsError:
        hint = "is HF_ENDPOINT right, and the network there? HF_HUB_OFFLINE=1 loads what is in the cache"
        reason = getattr(error, "reason", None) or error
        return EnvironmentLacksError(Problem(f"the Hub cannot be reached: {reason}", self.endpoint, hint))


def _opener() -> urllib.request.OpenerDirector:
    """For http and https, through the proxies of the environment; redirections are followed here, or not at all."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _insist_on_end(answer: http.client.HTTPResponse) -> None:
    """Reading by pieces, Python takes an answer that is cut off for a whole one."""
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _next(url: str, where: str) -> str:
    """Where a redirection leads. Raises HubRefusedError for what is no web, no address, or less protected."""
    refused = HubRefusedError(Problem(f"a redirection that is not followed: {where[:200]!r}", url))
    allowed = {"https"} if url.startswith("https:") else set(_PORTS)
    try:
        found = urljoin(url, where)
        scheme, *_ = _origin(found)
    except ValueError as error:
        raise refused from error
    if scheme not in allowed:
        raise refused
    return found


def _wished_s(error: urllib.error.HTTPError) -> float | None:
    """How long the Hub asks to be left alone, where that is no longer than a user would wait."""
    text = error.headers.get("Retry-After") or ""
    return min(float(text), _LONGEST_S) if text.isdecimal() else None
