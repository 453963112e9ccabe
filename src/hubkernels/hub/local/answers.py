"""What the Hub says no with, in the form that huggingface_hub reads: two headers and a JSON object."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hubkernels.host.disk import is_full

_LOG = logging.getLogger(__name__)

_HEADER_BYTES = 500


class Refusal(Exception):  # noqa: N818 - it says what happened; the client's error is made from it
    """A request that is answered with an error status.

    code: what the client picks its exception by: RepoNotFound, RevisionNotFound, EntryNotFound.
    title: the header's text where the client compares it, and the message stands in the body alone.
    more: further members of the JSON object.
    """

    def __init__(  # noqa: PLR0913 - each is a part of the answer
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        title: str | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.title = title or message
        self.headers = dict(headers or {})
        self.more = dict(more or {})


class Json(JSONResponse):
    """JSON in ASCII: names in git need not be UTF-8, and half a character has no other form."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def refused(refusal: Refusal) -> Response:
    headers = {**refusal.headers, "X-Error-Message": header_text(refusal.title)}
    if refusal.code:
        headers["X-Error-Code"] = refusal.code
    return Json({"error": refusal.message, **refusal.more}, refusal.status, headers)


def header_text(text: str) -> str:
    """A text that a header can hold: one line of ASCII. What a client sent may stand in it."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return plain.encode("ascii", "replace")[:_HEADER_BYTES].decode("ascii").strip()


def on_refusal(_request: Request, error: Exception) -> Response:
    if not isinstance(error, Refusal):
        raise error
    return refused(error)


def on_http_error(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    known = {404: f"no such page: {path}", 405: f"{request.method} is not possible for {path}"}
    return refused(Refusal(error.status_code, known.get(error.status_code, error.detail), headers=error.headers))


def on_os_error(request: Request, error: Exception) -> Response:
    """A full disk is the operator's to mend, and the client's to know of; the rest is as any other failure."""
    if isinstance(error, OSError) and is_full(error):
        _LOG.error("%s %s: no space left for it", request.method, request.url.path)
        return refused(
            Refusal(507, "the Hub's disk is full: free some space there and try again; nothing half-written was kept")
        )
    _LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return on_failure(request, error)


def on_failure(_request: Request, _error: Exception) -> Response:
    """A bug, or a broken disk: the server's log has all of it, the client only that it happened."""
    return refused(Refusal(500, "the Hub failed to answer; its log tells why"))
