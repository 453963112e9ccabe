"""The routes below /api but for commits: who one is, repositories, their branches, tags and listings."""

from __future__ import annotations

from itertools import islice
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hubkernels.hub.local import describe
from hubkernels.hub.local.accounts import ROLES
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.asked import Asked, Site, base_url, body, flag, json_body, part
from hubkernels.hub.local.card import card_errors, card_warnings
from hubkernels.hub.local.names import RepoId, check_path, kind_of, spelled_alike
from hubkernels.hub.local.tree import entries, walk

_REPO = "/api/{kind:kind}/{owner}/{name}"
_EXPANDED_PAGE = 50
"""Entries of a listing with last commits, which are looked for in the history."""


class Api:
    def __init__(self, site: Site) -> None:
        self.site = site

    def routes(self) -> list[Route]:
        return [
            Route("/api/whoami-v2", self.whoami),
            Route("/api/validate-yaml", self.validate_card, methods=["POST"]),
            Route("/api/repos/create", self.create, methods=["POST"]),
            Route("/api/repos/delete", self.delete, methods=["DELETE"]),
            Route("/api/organizations/{owner}/overview", self.organisation),
            Route("/api/{kind:kind}", self.repositories),
            Route(_REPO, self.info),
            Route(f"{_REPO}/revision/{{revision}}", self.info),
            Route(f"{_REPO}/settings", self.settings, methods=["PUT"]),
            Route(f"{_REPO}/refs", self.refs),
            Route(f"{_REPO}/branch/{{ref}}", self.create_branch, methods=["POST"]),
            Route(f"{_REPO}/branch/{{ref}}", self.delete_branch, methods=["DELETE"]),
            Route(f"{_REPO}/tag/{{ref}}", self.create_tag, methods=["POST"]),
            Route(f"{_REPO}/tag/{{ref}}", self.delete_tag, methods=["DELETE"]),
            Route(f"{_REPO}/commits/{{revision}}", self.commits),
            Route(f"{_REPO}/tree/{{revision}}", self.tree),
            Route(f"{_REPO}/tree/{{revision}}/{{path:path}}", self.tree),
            Route(f"{_REPO}/paths-info/{{revision}}", self.paths_info, methods=["POST"]),
        ]

    def whoami(self, request: Request) -> Response:
        account = self.site.signed_in(request)
        grants = account.valid(self.site.clock())
        orgs = dict.fromkeys(grant.organisation for grant in grants)
        ranks = {org: account.rank(org, self.site.clock()) for org in orgs}
        best = ROLES[max(ranks.values()) - 1]
        told = {
            "type": "user",
            "id": account.user,
            "name": account.user,
            "fullname": account.user,
            "isPro": False,
            "orgs": [{"type": "org", "name": org, "roleInOrg": ROLES[rank - 1]} for org, rank in ranks.items()],
            "auth": {"type": "access_token", "accessToken": {"displayName": account.user, "role": best}},
        }
        return JSONResponse(told)

    async def validate_card(self, request: Request) -> Response:
        text = str((await json_body(request)).get("content", ""))
        errors, warnings = card_errors(text), card_warnings(text)
        told = {"errors": [{"message": each} for each in errors], "warnings": [{"message": each} for each in warnings]}
        return JSONResponse(told, 400 if errors else 200)

    async def create(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._create, request, asked)

    def _create(self, request: Request, asked: dict[str, Any]) -> Response:
        account = self.site.signed_in(request)
        repo = _named(asked, account.user)
        self.site.allow(account, "write", repo.owner)
        stored, new = self.site.hub.create(repo, account.user, private=_private(asked) or False)
        url = f"{base_url(request)}/{stored.repo.page}"
        if not new:
            raise Refusal(409, f"{stored.repo} is there already", more={"url": url})
        return JSONResponse({"url": url, "name": str(stored.repo), "id": str(stored.repo)})

    async def delete(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._delete, request, asked)

    def _delete(self, request: Request, asked: dict[str, Any]) -> Response:
        account = self.site.signed_in(request)
        stored = self.site.visible(_named(asked, account.user), account)
        self.site.allow(account, "admin", stored.repo.owner)
        self.site.hub.delete(stored)
        return JSONResponse({})

    def organisation(self, request: Request) -> Response:
        owner = part(request, "owner")
        known = self.site.accounts.organisations() | {stored.repo.owner for stored in self.site.hub}
        found = next((name for name in sorted(known) if spelled_alike(name) == spelled_alike(owner)), None)
        if found is None:
            raise Refusal(404, f"there is no organisation {owner!r} here")
        told = {"name": found, "fullname": found, "avatarUrl": "", "isVerified": False, "type": "org"}
        return JSONResponse({**told, "trustedKernelPublisher": self.site.accounts.trusts(found)})

    def repositories(self, request: Request) -> Response:
        account = self.site.account(request)
        author, words = request.query_params.get("author"), request.query_params.get("search", "").lower()
        found = (
            stored
            for stored in self.site.hub
            if stored.repo.kind == request.path_params["kind"]
            and (author is None or spelled_alike(author) == spelled_alike(stored.repo.owner))
            and words in str(stored.repo).lower()
            and (not stored.private or self.site.may(account, "read", stored.repo.owner))
        )
        return JSONResponse([describe.repository(stored, stored.git.commit_of("main")) for stored in found])

    def info(self, request: Request) -> Response:
        stored = self.site.repository(request).stored
        return JSONResponse(describe.repository(stored, _commit(request, stored.git.commit_of)))

    async def settings(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._settings, request, asked)

    def _settings(self, request: Request, asked: dict[str, Any]) -> Response:
        stored = self.site.repository(request, "admin").stored
        private = _private(asked)
        if private is not None:
            self.site.hub.set_private(stored, private=private)
        return JSONResponse({"private": stored.private if private is None else private})

    def refs(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git

        def told(kind: str) -> list[dict[str, str]]:
            found = git.refs.below(kind).items()
            return [{"name": name, "ref": f"{kind}{name}", "targetCommit": git.peel(oid)} for name, oid in found]

        answer = {"branches": told("refs/heads/"), "converts": [], "tags": told("refs/tags/")}
        if flag(request.query_params, "include_prs"):
            answer["pullRequests"] = told("refs/pr/")
        return JSONResponse(answer)

    async def create_branch(self, request: Request) -> Response:
        start = (await json_body(request)).get("startingPoint")
        return await run_in_threadpool(self._create_branch, request, start and str(start))

    def _create_branch(self, request: Request, start: str | None) -> Response:
        self.site.repository(request, "write").stored.git.create_branch(part(request, "ref"), start)
        return JSONResponse({})

    def delete_branch(self, request: Request) -> Response:
        self.site.repository(request, "write").stored.git.delete_ref(f"refs/heads/{part(request, 'ref')}")
        return JSONResponse({})

    async def create_tag(self, request: Request) -> Response:
        asked = await json_body(request)
        return await run_in_threadpool(self._create_tag, request, asked)

    def _create_tag(self, request: Request, asked: dict[str, Any]) -> Response:
        found = self.site.repository(request, "write")
        message = asked.get("message")
        git, user = found.stored.git, _user(found)
        git.create_tag(str(asked.get("tag", "")), part(request, "ref"), message and str(message), user)
        return JSONResponse({})

    def delete_tag(self, request: Request) -> Response:
        self.site.repository(request, "write").stored.git.delete_ref(f"refs/tags/{part(request, 'ref')}")
        return JSONResponse({})

    def commits(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git
        oid, at, most = _commit(request, git.commit_of), *self._page(request)
        found = [describe.commit(info) for info in islice(git.log(oid), at, at + most + 1)]
        return _paged(request, found[:most], f"commits/{oid}", at + most if len(found) > most else None)

    def tree(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git
        oid, at, most = _commit(request, git.commit_of), *self._page(request)
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
        at, most = (int(word) if word.isdecimal() else 0 for word in words)
        return at, min(most or self.site.limits.page, self.site.limits.page)

    async def paths_info(self, request: Request) -> Response:
        """Of a form, as the client sends it, or JSON."""
        if "json" in request.headers.get("content-type", ""):
            asked = await json_body(request)
            paths, expand = asked.get("paths"), flag(asked, "expand")
        else:
            form = parse_qs((await body(request)).decode("utf-8", "replace"))
            paths, expand = form.get("paths", []), flag({"expand": form.get("expand", [""])[0]}, "expand")
        wanted = [check_path(str(path).strip("/")) for path in (paths if isinstance(paths, list) else [paths])]
        return await run_in_threadpool(self._paths_info, request, wanted, expand=expand)

    def _paths_info(self, request: Request, paths: list[str], *, expand: bool) -> Response:
        git = self.site.repository(request).stored.git
        oid = _commit(request, git.commit_of)
        found = (git.find(oid, path) for path in paths)
        told = [describe.entry(git, each) for each in found if each]
        return JSONResponse(describe.with_last_commits(git, oid, told) if expand else told)


def _commit(request: Request, commit_of: Any) -> str:  # noqa: ANN401
    oid: str = commit_of(part(request, "revision") if "revision" in request.path_params else "main")
    return oid


def _user(found: Asked) -> str:
    return found.account.user if found.account else "anonymous"


def _named(asked: dict[str, Any], user: str) -> RepoId:
    """The repository that a body names; without an organisation, the user's own."""
    return RepoId(kind_of(asked.get("type")), str(asked.get("organization") or user), str(asked.get("name", "")))


def _private(asked: dict[str, Any]) -> bool | None:
    """What is asked for; None where that is nothing."""
    if asked.get("visibility") not in {None, "private", "public"}:
        raise Refusal(400, "a repository is public or private")
    if "visibility" in asked:
        return bool(asked["visibility"] == "private")
    return bool(asked["private"]) if "private" in asked else None


def _paged(request: Request, told: list[Any], where: str, following: int | None) -> Response:
    """A page of a listing; a header names the next one."""
    headers = {}
    if following is not None:
        stem = "/".join(request.url.path.split("/")[:5])
        kept = "".join(f"&{name}={quote(text)}" for name, text in request.query_params.items() if name != "cursor")
        headers["Link"] = f'<{base_url(request)}{stem}/{where}?cursor={following}{kept}>; rel="next"'
    return JSONResponse(told, headers=headers)
