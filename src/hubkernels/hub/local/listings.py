"""What a revision holds: its files and folders, and the commits that led to it, a page at a time."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hubkernels.hub.local import describe
from hubkernels.hub.local.answers import Json, Refusal
from hubkernels.hub.local.asked import Site, base_url, body, commit_asked, flag, json_body, part
from hubkernels.hub.local.tree import entries, walk

_REPO = "/api/{kind:kind}/{owner}/{name}"
_NUMBER = re.compile(r"[0-9]{1,15}")
_KEPT = frozenset({"recursive", "expand", "limit"})
_EXPANDED_PAGE = 50
"""Entries with last commits, which are looked for in the history, of a listing and of paths that are named."""


class Listings:
    def __init__(self, site: Site) -> None:
        self.site = site

    def routes(self) -> list[Route]:
        return [
            Route(f"{_REPO}/commits/{{revision}}", self.commits),
            Route(f"{_REPO}/tree/{{revision}}", self.tree),
            Route(f"{_REPO}/tree/{{revision}}/{{path:path}}", self.tree),
            Route(f"{_REPO}/paths-info/{{revision}}", self.paths_info, methods=["POST"]),
        ]

    def commits(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git
        oid, at, most = commit_asked(request, git), *self._page(request)
        found = [describe.commit(info) for info in islice(git.log(oid), at, at + most + 1)]
        return _paged(request, found[:most], f"commits/{oid}", at + most if len(found) > most else None)

    def tree(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git
        oid, at, most = commit_asked(request, git), *self._page(request)
        path = part(request, "path").strip("/") if "path" in request.path_params else ""
        folder = git.find(oid, path)
        if folder is None or not folder.is_folder:
            raise Refusal(404, f"there is no folder {path[:200]!r} in {oid}", "EntryNotFound")
        listed = walk if flag(request.query_params, "recursive") else entries
        expand = flag(request.query_params, "expand")
        most = min(most, _EXPANDED_PAGE) if expand else most
        found = list(islice(listed(git.objects, folder.oid, f"{path}/" if path else ""), at, at + most + 1))
        told = [describe.entry(git, each) for each in found[:most]]
        if expand:
            told = describe.with_last_commits(git, oid, told)
        # The next page is of this commit, whatever is committed in the meantime.
        where = f"tree/{oid}/{quote(path, safe='')}" if path else f"tree/{oid}"
        return _paged(request, told, where, at + most if len(found) > most else None)

    def _page(self, request: Request) -> tuple[int, int]:
        """Where a listing begins and how many entries are told of at once."""
        words = (request.query_params.get("cursor", "0"), request.query_params.get("limit", ""))
        at, most = (int(word) if _NUMBER.fullmatch(word) else 0 for word in words)
        return at, min(most or self.site.limits.page, self.site.limits.page)

    async def paths_info(self, request: Request) -> Response:
        """Of a form, as the client sends it, or JSON."""
        if "json" in request.headers.get("content-type", ""):
            asked = await json_body(request)
            paths, expand = asked.get("paths"), flag(asked, "expand")
        else:
            form = self._form(await body(request))
            paths, expand = form.get("paths", []), flag({"expand": form.get("expand", [""])[0]}, "expand")
        wanted = paths if isinstance(paths, list) else [paths]
        if len(wanted) > self.site.limits.page:
            raise self._too_many()
        if expand and len(wanted) > _EXPANDED_PAGE:
            raise Refusal(413, f"{_EXPANDED_PAGE} paths at most are told of with their last commits: ask several times")
        once = list(dict.fromkeys(str(path).strip("/") for path in wanted))
        return await run_in_threadpool(self._paths_info, request, once, expand=expand)

    def _form(self, text: bytes) -> dict[str, list[str]]:
        """A form of paths, counted before it is read. Raises Refusal."""
        if text.count(b"&") > self.site.limits.page:  # one field more says whether to expand
            raise self._too_many()
        return parse_qs(text.decode("utf-8", "replace"))

    def _too_many(self) -> Refusal:
        return Refusal(413, f"{self.site.limits.page} paths at most are told of at once: ask several times")

    def _paths_info(self, request: Request, paths: list[str], *, expand: bool) -> Response:
        git = self.site.repository(request).stored.git
        oid = commit_asked(request, git)
        found = (git.find(oid, path) for path in paths)
        told = [describe.entry(git, each) for each in found if each]
        return Json(describe.with_last_commits(git, oid, told) if expand else told)


def _paged(request: Request, told: list[Any], where: str, following: int | None) -> Response:
    """A page of a listing; a header names the next one."""
    headers = {}
    if following is not None:
        stem = "/".join(request.url.path.split("/")[:5])
        kept = {name: text for name, text in request.query_params.items() if name in _KEPT}
        query = urlencode({"cursor": following, **kept})
        headers["Link"] = f'<{base_url(request)}{stem}/{where}?{query}>; rel="next"'
    return Json(told, headers=headers)
