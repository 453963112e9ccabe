"""How long the Hub's client waits, and how often it asks again: by itself, for ever and five times.

Our own retries are around its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    import httpx2

SILENT_S = 60.0
"""After which a Hub that says nothing has stalled."""

_TRIES = 4
_LONGEST_S = 60.0
"""For one request and its repetitions to begin in."""

_BAD = frozenset({408, 429})
_SERVER_ERROR = 500


class GaveUpError(Exception):
    """The same was asked often, or long, enough. No error of the client's, so that it asks no more either."""


class _Asked(threading.local):
    """Of each thread its own: one that asks something else forgets nobody else's tries."""

    def __init__(self) -> None:
        self.tries: dict[tuple[str, str], tuple[int, float]] = {}


class Patience:
    """Counts requests that were begun and not answered well."""

    def __init__(self, silent_s: float = SILENT_S, longest_s: float = _LONGEST_S) -> None:
        self._silent_s = silent_s
        self._longest_s = longest_s
        self._asked = _Asked()

    def before(self, request: httpx2.Request) -> None:
        """Raises GaveUpError for one too many. Waits that are not bounded are, from here on."""
        key, now = (request.method, str(request.url)), time.monotonic()
        tries, since = self._asked.tries.get(key, (0, now))
        if tries >= _TRIES or now - since > self._longest_s:
            self._asked.tries.pop(key, None)
            raise GaveUpError(f"{request.method} {request.url.path} was tried {tries} times")
        self._asked.tries[key] = tries + 1, since
        bounds = request.extensions.get("timeout", {})
        kinds = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = {kind: bounds.get(kind) or self._silent_s for kind in kinds}

    def after(self, response: httpx2.Response) -> None:
        if response.status_code < _SERVER_ERROR and response.status_code not in _BAD:
            self._asked.tries.pop((response.request.method, str(response.request.url)), None)

    def forget(self) -> None:
        """Another question: what was asked before it does not count."""
        self._asked.tries.clear()


PATIENCE = Patience()


@contextmanager
def endpoint_errors() -> Iterator[None]:
    """Around an import of the Hub's library: it reads the address then."""
    try:
        yield
    except ValueError as error:
        hint = "https://HOST, or http://HOST:PORT"
        raise InputError(Problem(f"HF_ENDPOINT is no address of a Hub: {error}", hint=hint)) from error


@cache
def bound_waiting() -> None:
    """For every client that the Hub's library makes in this process."""
    from huggingface_hub import set_client_factory  # noqa: PLC0415 - an extra
    from huggingface_hub.utils._http import default_client_factory  # noqa: PLC0415 - no public name has its hooks

    def make() -> httpx2.Client:
        client = default_client_factory()
        client.event_hooks = {
            "request": [*client.event_hooks["request"], PATIENCE.before],
            "response": [*client.event_hooks["response"], PATIENCE.after],
        }
        return client

    set_client_factory(make)
