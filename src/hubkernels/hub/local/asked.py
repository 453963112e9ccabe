"""What routes share: who asks, for which repository, with which body; and answers that are long."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote, unquote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from hubkernels.host.disk import free_bytes
from hubkernels.hub.local.accounts import ROLES, Account, Accounts, require
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.hub import Hub, Stored
from hubkernels.hub.local.names import KINDS, RepoId
from hubkernels.hub.local.repository import Repository
from hubkernels.model.size import size_text

_BODY_MOST = 8 << 20
_JSON_MOST = 1 << 18
"""Members and elements of a body, each with a comma, a bracket or a brace: while it is parsed nobody is answered.

As many take 0.1 s, as many as 8 MiB may hold some seconds.
"""
_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True)
class Site:
    """What every route works on. content_port: of the origin of large files. clock: the time."""

    hub: Hub
    accounts: Accounts
    limits: Limits
    content_port: int
    clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc)

    def account(self, request: Request) -> Account | None:
        return self._account(request, self.clock())

    def signed_in(self, request: Request) -> Account:
        return self.signed_in_at(request, self.clock())

    def signed_in_at(self, request: Request, now: datetime) -> Account:
        """For who goes on to ask what the account may at that moment."""
        account = self._account(request, now)
        if account is None:
            raise Refusal(401, "this needs a token: set HF_TOKEN")
        return account

    def _account(self, request: Request, now: datetime) -> Account | None:
        return self.accounts.of(request.headers.get("authorization"), now)

    def allow(self, account: Account | None, role: str, owner: str) -> Account:
        return require(account, role, owner, self.clock())

    def repository(self, request: Request, role: str = "read") -> Asked:
        """Who asks for which repository. One that they may not see is answered as one that is not there."""
        account, repo = self.account(request), repo_of(request)
        if account is None and role != "read":
            self.allow(account, role, repo.owner)
        stored = self.visible(repo, account)
        if role != "read":
            self.allow(account, role, stored.repo.owner)
        stored.git.insist_on_kinds()
        return Asked(stored, account)

    def visible(self, repo: RepoId, account: Account | None) -> Stored:
        stored = self.hub.find(repo)
        if stored is None or (stored.private and not self.may(account, "read", stored.repo.owner)):
            hint = "" if account else "; one that is private shows with a token alone"
            raise Refusal(404, f"there is no {KINDS[repo.kind]} {repo} here{hint}", "RepoNotFound")
        return stored

    async def incoming(self, request: Request) -> AsyncIterator[bytes]:
        """A body that goes to the disk, in pieces. Raises Refusal where it would leave too little room there."""
        async for piece in pieces_of(request):
            self.require_room(len(piece))
            yield piece

    def require_room(self, size: int) -> None:
        """Raises Refusal where so many bytes more would leave less than ``limits.keep_free``."""
        if self.limits.keep_free and free_bytes(self.hub.folder) - size < self.limits.keep_free:
            least = size_text(self.limits.keep_free)
            raise Refusal(507, f"the Hub's disk has to keep {least} free: ask who runs it for room; nothing was kept")

    def may(self, account: Account | None, role: str, owner: str) -> bool:
        return account is not None and account.rank(owner, self.clock()) > ROLES.index(role)


@dataclass(frozen=True)
class Limits:
    """What one request may ask of the Hub; the sizes are bytes.

    file: of a file within a commit. large: of a large file. multipart: a larger one is uploaded in parts of ``part``
    each. keep_free: of the disk, whatever is uploaded. page: entries of a listing, and those that a client names to be
    told of. files: that are asked about before an upload; clients ask about 256. operations: lines of a commit.
    """

    file: int = 2 << 30
    large: int = 50 << 30
    multipart: int = 64 << 20
    part: int = 32 << 20
    keep_free: int = 0
    page: int = 1000
    files: int = 1000
    operations: int = 100_000


@dataclass(frozen=True)
class Asked:
    """A repository that whoever asks may see."""

    stored: Stored
    account: Account | None


def repo_of(request: Request) -> RepoId:
    kind = request.path_params.get("kind", "models")
    return RepoId(kind, part(request, "owner"), part(request, "name"))


def part(request: Request, name: str) -> str:
    """A part of the path as it was meant. Routes match the path as it was sent: a branch's name may have a slash."""
    return unquote(str(request.path_params[name]))


def commit_asked(request: Request, git: Repository) -> str:
    """The commit of the revision in the path; of main where there is none. Raises Refusal."""
    return git.commit_of(part(request, "revision") if "revision" in request.path_params else "main")


def flag(values: Mapping[str, Any], name: str) -> bool:
    return str(values.get(name, "")).lower() in {"1", "true"}


def base_url(request: Request) -> str:
    return f"{request.url.scheme}://{host_of(request)}"


def host_of(request: Request) -> str:
    """The host as the client calls it. Raises Refusal for what is none: links are made of it."""
    server = request.scope.get("server") or ("127.0.0.1", 80)
    host = request.headers.get("host") or f"{server[0]}:{server[1]}"
    if not _HOST.fullmatch(host):
        raise Refusal(400, "the Host header names no host")
    return host


async def json_body(request: Request, most: int = _BODY_MOST) -> dict[str, Any]:
    """most: bytes. Raises Refusal, too, where so many members are in them that others would wait."""
    text = await body(request, most) or b"{}"
    if sum(map(text.count, (b",", b"[", b"{"))) > _JSON_MOST:
        raise Refusal(413, f"the body has more than {_JSON_MOST} commas and brackets")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is no JSON") from error
    if not isinstance(found, dict):
        raise Refusal(400, "the body is no JSON object")
    return found


def objects(asked: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A member that is a list of objects; empty where it is missing. Raises Refusal."""
    found = asked.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refusal(400, f"{name} is no list of objects")
    return found


async def body(request: Request, most: int = _BODY_MOST) -> bytes:
    found = bytearray()
    async for piece in pieces_of(request):
        found += piece
        if len(found) > most:
            raise Refusal(413, f"the body has more than {most} bytes")
    return bytes(found)


async def pieces_of(request: Request) -> AsyncIterator[bytes]:
    """The body in pieces that are worth a thread. Raises Refusal where the client went away before its end."""
    gathered = bytearray()
    try:
        async for piece in request.stream():
            gathered += piece
            if len(gathered) >= _PIECE:
                yield bytes(gathered)
                gathered.clear()
    except ClientDisconnect as error:
        raise Refusal(400, "the body was cut off") from error
    if gathered:
        yield bytes(gathered)


Source = Callable[[int, int], Iterator[bytes]]
"""Gives a part of a content in pieces: from an offset, so many bytes."""


def content(request: Request, size: int, etag: str, source: Source, headers: Mapping[str, str]) -> Response:
    """A file: the whole, one range of it, or that the client has it already."""
    told = {"ETag": f'"{etag}"', "Accept-Ranges": "bytes", **headers}
    if etag in _etags(request.headers.get("if-none-match")):
        return Response(status_code=304, headers=told)
    wanted = request.headers.get("range")
    if etag not in (_etags(request.headers.get("if-range")) or {etag}):
        wanted = None
    found = _range(wanted or "", size)
    if found is None:
        start, end, status = 0, size, 200
    else:
        start, end, status = *found, 206
        if start >= end:
            raise Refusal(416, f"{wanted} is outside of {size} bytes", headers={"Content-Range": f"bytes */{size}"})
        told["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    told["Content-Length"] = str(end - start)
    media = "application/octet-stream"
    if request.method == "HEAD" or end == start:
        return Response(status_code=status, headers=told, media_type=media)
    return StreamingResponse(source(start, end - start), status, told, media)


def _range(wanted: str, size: int) -> tuple[int, int] | None:
    """Where a range begins and ends. None for what is no single range: it is answered with the whole (RFC 9110, 14.2).

    One that ends before it begins is none, either.
    """
    match = _RANGE.fullmatch(wanted)
    first, last = match.groups() if match else ("", "")
    if not size or not first + last or (first and last and int(last) < int(first)):
        return None
    if not first:
        return max(0, size - int(last)), size
    return min(int(first), size), min(int(last) + 1, size) if last else size


def _etags(header: str | None) -> set[str]:
    return {tag.strip().removeprefix("W/").strip('"') for tag in (header or "").split(",") if tag.strip()}


def attachment(path: str) -> str:
    """The Content-Disposition of a file: browsers show none of what people upload."""
    return f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}"
