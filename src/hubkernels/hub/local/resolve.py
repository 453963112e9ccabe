"""Files of a revision: those in git as they are, large ones by a link to the other origin."""

from __future__ import annotations

import logging
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.asked import Site, attachment, content, part
from hubkernels.hub.local.content import Pointer
from hubkernels.hub.local.describe import pointer_of
from hubkernels.hub.local.hub import Stored
from hubkernels.hub.local.links import Links

_LOG = logging.getLogger(__name__)


class Resolve:
    def __init__(self, site: Site, links: Links) -> None:
        self.site = site
        self.links = links

    def routes(self) -> list[Route]:
        """After all others: a model's page has no prefix."""
        page = "/{owner}/{name}/{how:how}/{revision}/{path:path}"
        return [Route("/{kind:kind}" + page, self.file), Route(page, self.file)]

    def file(self, request: Request) -> Response:
        stored = self.site.repository(request).stored
        commit = stored.git.commit_of(part(request, "revision"))
        path = part(request, "path")
        headers = {"X-Repo-Commit": commit, "Cache-Control": "no-cache", "Content-Disposition": attachment(path)}
        blob = stored.git.blob(commit, path)
        if blob is None:
            raise Refusal(404, f"there is no file {path[:200]!r} in {commit}", "EntryNotFound", headers=headers)
        pointer = None if request.path_params["how"] == "raw" else pointer_of(stored.git, blob.oid, blob.size)
        if pointer is None:
            return content(request, blob.size, blob.oid, blob.pieces, headers)
        if not stored.git.content.has(pointer):
            raise _lost(stored, path, pointer)
        where = self.links.sign(request, "GET", stored.repo, pointer.oid, {"name": path.rpartition("/")[2]})
        headers |= {
            "Location": where,
            "ETag": f'"{blob.oid}"',
            "X-Linked-Etag": f'"{pointer.oid}"',
            "X-Linked-Size": str(pointer.size),
        }
        return Response(f"Found. Redirecting to {quote(path)}", 302, headers, "text/plain")


def _lost(stored: Stored, path: str, pointer: Pointer) -> Refusal:
    """The pointer would be taken for the file."""
    _LOG.error("%s, which %s of %s points to, is missing", stored.git.content.path(pointer.oid), path, stored.repo)
    what = f"the content of {path[:200]!r}, a large file of {stored.repo} with the SHA-256 {pointer.oid}, is not here"
    hint = "bring it back from a copy, or `kernel-builder hub pull` it with a lock that names this commit"
    return Refusal(503, f"{what}: who runs the Hub may {hint}")
