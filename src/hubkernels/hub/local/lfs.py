"""Large files: where to send them, and the origin that takes and gives them."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hubkernels.hub.local.answers import Json, Refusal
from hubkernels.hub.local.asked import Site, attachment, base_url, content, json_body, objects, part, repo_of
from hubkernels.hub.local.content import Receiver, check_oid
from hubkernels.hub.local.hub import Stored
from hubkernels.hub.local.links import LIVES_S, Links
from hubkernels.hub.local.names import RepoId

_MEDIA = "application/vnd.git-lfs+json"
_BATCH = "/{owner}/{name}.git/info/lfs/objects"
_CONTENT = "/content/{kind}/{owner}/{name}/{oid}"
_PARTS = "parts"
_MOST_PARTS = 1000
"""Of all files of one batch: each part is a link in the answer, which would else be a thousand times the request."""


class Lfs:
    """The batch API of git-lfs, with the Hub's upload in parts."""

    def __init__(self, site: Site, links: Links) -> None:
        self.site = site
        self.links = links

    def routes(self) -> list[Route]:
        return [
            Route(f"{prefix}{_BATCH}/{verb}", endpoint, methods=["POST"])
            for prefix in ("/{kind:kind}", "")
            for verb, endpoint in (("batch", self.batch), ("verify", self.verify))
        ]

    async def batch(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._batch, request, asked)

    def _batch(self, request: Request, asked: dict[str, Any]) -> Response:
        uploads = asked.get("operation") == "upload"
        stored = self._writable(request) if uploads else self.site.repository(request).stored
        in_parts = "multipart" in str(asked.get("transfers", ""))
        _delete_lapsed(self.site.hub.scratch / _PARTS, self.site.clock().timestamp() - LIVES_S)
        told, wanted = [], objects(asked, "objects")
        if len(wanted) > self.site.limits.page:
            raise Refusal(413, f"a batch has {self.site.limits.page} objects at most: make several batches")
        parts = max(1, _MOST_PARTS // max(1, len(wanted))) if in_parts else 1
        for each in wanted:
            oid, size = each.get("oid"), each.get("size")
            one: dict[str, Any] = {"oid": oid, "size": size, "authenticated": True}
            try:
                one |= self._actions(request, stored, oid, size, uploads=uploads, parts=parts)
            except Refusal as refusal:
                one["error"] = {"code": refusal.status, "message": refusal.message}
            told.append(one)
        cut = any("chunk_size" in one.get("actions", {}).get("upload", {}).get("header", {}) for one in told)
        answer = {"transfer": "multipart" if cut else "basic", "objects": told, "hash_algo": "sha256"}
        return Json(answer, media_type=_MEDIA)

    def _writable(self, request: Request) -> Stored:
        """Who may propose may upload what they propose; the client does not say here which of both it does."""
        self.site.signed_in(request)
        return self.site.repository(request).stored

    def _actions(  # noqa: PLR0913 - what one object of a batch depends on
        self, request: Request, stored: Stored, oid: object, size: object, *, uploads: bool, parts: int
    ) -> dict[str, Any]:
        """What is to be done with one object: nothing for one that is here. Raises Refusal."""
        name = check_oid(oid)
        if type(size) is not int or size < 0:
            raise Refusal(422, f"the size of {name} is missing")
        there = stored.git.content.size(name) == size
        if not uploads:
            if not there:
                raise Refusal(404, f"{name} is not in this repository")
            return {"actions": {"download": {"href": self.links.sign(request, "GET", stored.repo, name, {})}}}
        if there:
            return {}
        if size > self.site.limits.large:
            raise Refusal(413, f"{name} has {size} bytes: this Hub takes {self.site.limits.large} at most")
        self.site.require_room(size)
        verify = f"{base_url(request)}/{stored.repo.page}.git/info/lfs/objects/verify"
        cut = parts > 1 and size > self.site.limits.multipart
        upload = self._in_parts(request, stored, name, size, parts) if cut else self._whole(request, stored, name, size)
        return {"actions": {"upload": upload, "verify": {"href": verify, "header": {}}}}

    def _whole(self, request: Request, stored: Stored, oid: str, size: int) -> dict[str, Any]:
        return {"href": self.links.sign(request, "PUT", stored.repo, oid, {"size": str(size)}), "header": {}}

    def _in_parts(self, request: Request, stored: Stored, oid: str, size: int, most: int) -> dict[str, Any]:
        """The client sends one part to each link, then what it got for them to the last one."""
        length = max(self.site.limits.part, -(-size // most))
        query = {"upload": secrets.token_hex(16), "size": str(size), "part": str(length)}
        header = {"chunk_size": str(length)}
        for number in range(1, -(-size // length) + 1):
            header[f"{number:05}"] = self.links.sign(request, "PUT", stored.repo, f"{oid}/{number}", query)
        return {"href": self.links.sign(request, "POST", stored.repo, oid, query), "header": header}

    async def verify(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._verify, request, asked)

    def _verify(self, request: Request, asked: dict[str, Any]) -> Response:
        oid = check_oid(asked.get("oid"))
        found = self._writable(request).git.content.size(oid)
        if found is None or found != asked.get("size"):
            raise Refusal(404, f"{oid} was not uploaded, or with another size")
        return Json({})


class ContentOrigin:
    """The other origin. It knows no tokens, only links."""

    def __init__(self, site: Site, links: Links) -> None:
        self.site = site
        self.links = links

    def routes(self) -> list[Route]:
        return [
            Route(_CONTENT, self.give),
            Route(_CONTENT, self.take, methods=["PUT"]),
            Route(_CONTENT, self.assemble, methods=["POST"]),
            Route(f"{_CONTENT}/{{number:int}}", self.take_part, methods=["PUT"]),
        ]

    def give(self, request: Request) -> Response:
        self.links.check(request, "GET")
        stored, oid = self._stored(request), part(request, "oid")
        size = stored.git.content.size(oid)
        if size is None:
            raise Refusal(404, f"{oid} is not here any more")
        name = request.query_params.get("name", oid)
        headers = {"Content-Disposition": attachment(name)}
        return content(request, size, oid, lambda start, n: stored.git.content.pieces(oid, start, n), headers)

    async def take(self, request: Request) -> Response:
        self.links.check(request, "PUT")
        stored, oid = self._stored(request), part(request, "oid")
        with closing(Receiver(self.site.hub.scratch, int(request.query_params["size"]))) as receiver:
            async for piece in self.site.incoming(request):
                await run_in_threadpool(receiver.write, piece)
            await run_in_threadpool(receiver.keep, stored.git.content, oid)
        return Response(headers={"ETag": f'"{oid}"'})

    async def take_part(self, request: Request) -> Response:
        self.links.check(request, "PUT")
        query, number = request.query_params, int(request.path_params["number"])
        length, size = int(query["part"]), int(query["size"])
        with closing(Receiver(self.site.hub.scratch, min(length, size - (number - 1) * length))) as receiver:
            async for piece in self.site.incoming(request):
                await run_in_threadpool(receiver.write, piece)
            digest = await run_in_threadpool(_keep_part, receiver, self._parts(query), number)
        return Response(headers={"ETag": f'"{digest}"'})

    async def assemble(self, request: Request) -> Response:
        self.links.check(request, "POST")
        asked = await json_body(request)
        return await run_in_threadpool(self._assemble, request, asked)

    def _assemble(self, request: Request, asked: dict[str, Any]) -> Response:
        """One file of the parts, in the order of their numbers. Asked again, when an answer was lost, it is done."""
        stored, oid = self._stored(request), part(request, "oid")
        query = request.query_params
        size, length = int(query["size"]), int(query["part"])
        if stored.git.content.size(oid) == size:
            return Json({})
        folder, etags = self._parts(query), _etags(asked)
        with suppress(FileNotFoundError):
            os.utime(folder)  # it is no remain while it is read, however long ago its last part came
        with closing(Receiver(self.site.hub.scratch, size)) as receiver:
            for number in range(1, -(-size // length) + 1):
                with (
                    suppress(FileNotFoundError),
                    (folder / f"{number}.{etags.get(number)}").open("rb") as file,
                ):
                    receiver.copy(file)
                    continue
                raise Refusal(400, f"part {number} of {oid} is missing, or was not sent as its ETag says")
            receiver.keep(stored.git.content, oid)
        shutil.rmtree(folder, ignore_errors=True)
        return Json({})

    def _stored(self, request: Request) -> Stored:
        stored = self.site.hub.find(RepoId(part(request, "kind"), *repo_of(request)[1:]))
        if stored is None:
            raise Refusal(404, "the repository is not here any more", "RepoNotFound")
        return stored

    def _parts(self, query: Mapping[str, str]) -> Path:
        """The folder of an upload; its name comes from a signed link."""
        return self.site.hub.scratch / _PARTS / query["upload"]


def _delete_lapsed(parts: Path, oldest: float) -> None:
    """Take away the parts of uploads that nobody finished: every link to them was made before the last one came."""
    for folder in parts.glob("*"):
        with suppress(FileNotFoundError):  # another batch is as quick
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def _keep_part(receiver: Receiver, folder: Path, number: int) -> str:
    """A part that is sent again takes the place of the one before; tells its SHA-256. Raises Refusal."""
    digest = receiver.finish()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{number}.{digest}"
    receiver.path.replace(target)
    for older in folder.glob(f"{number}.*"):
        if older != target:
            older.unlink(missing_ok=True)
    return digest


def _etags(asked: dict[str, Any]) -> dict[int, str]:
    """What the client got for each part, by number."""
    found: dict[int, str] = {}
    for each in objects(asked, "parts"):
        number, etag = each.get("partNumber"), str(each.get("etag", "")).strip('"')
        if not isinstance(number, int) or not etag.isalnum():
            raise Refusal(400, "a part has a number and an ETag")
        found[number] = etag
    return found
