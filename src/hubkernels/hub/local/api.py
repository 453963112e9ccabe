"""The routes below /api but for commits: who one is, repositories, their branches and tags."""

from __future__ import annotations

import logging
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hubkernels.hub.local import describe
from hubkernels.hub.local.accounts import ROLES, Account
from hubkernels.hub.local.answers import Json, Refusal
from hubkernels.hub.local.asked import Asked, Site, base_url, commit_asked, flag, json_body, part
from hubkernels.hub.local.card import card_errors, card_warnings
from hubkernels.hub.local.hub import Stored
from hubkernels.hub.local.names import RepoId, kind_of
from hubkernels.hub.local.objects import DamagedFileError, MissingObjectError
from hubkernels.hub.local.refs import DamagedRefError
from hubkernels.hub.local.repository import MAIN
from hubkernels.model.client import spelled_alike

_LOG = logging.getLogger(__name__)

_REPO = "/api/{kind:kind}/{owner}/{name}"
_CARD_MOST = 1 << 20
_CARD_BODY_MOST = 3 * _CARD_MOST  # as JSON, of ASCII alone
_BODY_MOST = 64 << 10


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
        ]

    def whoami(self, request: Request) -> Response:
        now = self.site.clock()
        account = self.site.signed_in_at(request, now)
        orgs = dict.fromkeys(grant.organisation for grant in account.valid(now))
        ranks = {org: account.rank(org, now) for org in orgs}
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
        return Json(told)

    async def validate_card(self, request: Request) -> Response:
        text = str((await json_body(request, _CARD_BODY_MOST)).get("content", ""))
        if len(text) > _CARD_MOST:
            raise Refusal(413, f"a card has at most {_CARD_MOST} characters, and this one {len(text)}")
        return await run_in_threadpool(self._validate_card, text)

    def _validate_card(self, text: str) -> Response:
        errors, warnings = card_errors(text), card_warnings(text)
        told = {"errors": [{"message": each} for each in errors], "warnings": [{"message": each} for each in warnings]}
        return Json(told, 400 if errors else 200)

    async def create(self, request: Request) -> Response:
        asked = await json_body(request, _BODY_MOST)
        return await run_in_threadpool(self._create, request, asked)

    def _create(self, request: Request, asked: dict[str, Any]) -> Response:
        account = self.site.signed_in(request)
        repo = _named(asked, account.user)
        self.site.allow(account, "write", repo.owner)
        stored, new = self.site.hub.create(repo, account.user, private=_private(asked) or False)
        url = f"{base_url(request)}/{stored.repo.page}"
        if not new:
            raise Refusal(409, f"{stored.repo} is there already", more={"url": url})
        return Json({"url": url, "name": str(stored.repo), "id": str(stored.repo)})

    async def delete(self, request: Request) -> Response:
        asked = await json_body(request, _BODY_MOST)
        return await run_in_threadpool(self._delete, request, asked)

    def _delete(self, request: Request, asked: dict[str, Any]) -> Response:
        account = self.site.signed_in(request)
        stored = self.site.visible(_named(asked, account.user), account)
        self.site.allow(account, "admin", stored.repo.owner)
        self.site.hub.delete(stored)
        return Json({})

    def organisation(self, request: Request) -> Response:
        """Of one that has nothing to show to who asks, there is nothing to tell: neither that it has a token."""
        owner, known = part(request, "owner"), self._known(self.site.account(request))
        found = next((name for name in sorted(known) if spelled_alike(name) == spelled_alike(owner)), None)
        if found is None:
            raise Refusal(404, f"there is no organisation {owner!r} here")
        told = {"name": found, "fullname": found, "avatarUrl": "", "isVerified": False, "type": "org"}
        return Json({**told, "trustedKernelPublisher": self.site.accounts.trusts(found)})

    def _known(self, account: Account | None) -> set[str]:
        """The organisations that are trusted, that have something whoever asks may see, or are their own."""
        seen = {stored.repo.owner for stored in self.site.hub if self._sees(account, stored)}
        own = {grant.organisation for grant in account.valid(self.site.clock())} if account else set()
        return {*self.site.accounts.trusted, *seen, *own}

    def _sees(self, account: Account | None, stored: Stored) -> bool:
        return not stored.private or self.site.may(account, "read", stored.repo.owner)

    def repositories(self, request: Request) -> Response:
        account = self.site.account(request)
        author, words = request.query_params.get("author"), request.query_params.get("search", "").lower()
        found = (
            stored
            for stored in self.site.hub
            if stored.repo.kind == request.path_params["kind"]
            and (author is None or spelled_alike(author) == spelled_alike(stored.repo.owner))
            and words in str(stored.repo).lower()
            and self._sees(account, stored)
        )
        return Json([told for stored in found if (told := _told(stored))])

    def info(self, request: Request) -> Response:
        stored = self.site.repository(request).stored
        return Json(describe.repository(stored, commit_asked(request, stored.git)))

    async def settings(self, request: Request) -> Response:
        asked = await json_body(request, _BODY_MOST)
        return await run_in_threadpool(self._settings, request, asked)

    def _settings(self, request: Request, asked: dict[str, Any]) -> Response:
        stored = self.site.repository(request, "admin").stored
        private = _private(asked)
        if private is not None:
            self.site.hub.set_private(stored, private=private)
        return Json({"private": stored.private if private is None else private})

    def refs(self, request: Request) -> Response:
        git = self.site.repository(request).stored.git

        def told(kind: str) -> list[dict[str, str]]:
            found = ((name, git.peel(oid)) for name, oid in git.refs.below(kind).items())
            return [{"name": name, "ref": f"{kind}{name}", "targetCommit": oid} for name, oid in found if oid]

        answer = {"branches": told("refs/heads/"), "converts": [], "tags": told("refs/tags/")}
        if flag(request.query_params, "include_prs"):
            answer["pullRequests"] = told("refs/pr/")
        return Json(answer)

    async def create_branch(self, request: Request) -> Response:
        start = (await json_body(request, _BODY_MOST)).get("startingPoint")
        return await run_in_threadpool(self._create_branch, request, start and str(start))

    def _create_branch(self, request: Request, start: str | None) -> Response:
        self.site.repository(request, "write").stored.git.create_branch(part(request, "ref"), start)
        return Json({})

    def delete_branch(self, request: Request) -> Response:
        self.site.repository(request, "write").stored.git.delete_ref(f"refs/heads/{part(request, 'ref')}")
        return Json({})

    async def create_tag(self, request: Request) -> Response:
        asked = await json_body(request, _BODY_MOST)
        return await run_in_threadpool(self._create_tag, request, asked)

    def _create_tag(self, request: Request, asked: dict[str, Any]) -> Response:
        found = self.site.repository(request, "write")
        message = asked.get("message")
        git, user = found.stored.git, _user(found)
        git.create_tag(str(asked.get("tag", "")), part(request, "ref"), message and str(message), user)
        return Json({})

    def delete_tag(self, request: Request) -> Response:
        self.site.repository(request, "write").stored.git.delete_ref(f"refs/tags/{part(request, 'ref')}")
        return Json({})


def _told(stored: Stored) -> dict[str, Any] | None:
    """None, and a line of the log, where it is damaged: that is said to who asks for this repository.

    None, too, where it was deleted meanwhile.
    """
    try:
        stored.git.insist_on_kinds()
        head = stored.git.refs.get(MAIN)
        return describe.repository(stored, head) if head else None
    except (DamagedRefError, DamagedFileError):
        pass
    except MissingObjectError as error:
        error.refusal()  # which logs it, but for a repository that was deleted
    except KeyError:
        _LOG.error("%s names no commit", stored.git.folder / MAIN)
    return None


def _user(found: Asked) -> str:
    return found.account.user if found.account else "anonymous"


def _named(asked: dict[str, Any], user: str) -> RepoId:
    """The repository that a body names; without an organisation, the user's own."""
    return RepoId(kind_of(asked.get("type")), str(asked.get("organization") or user), str(asked.get("name", "")))


def _private(asked: dict[str, Any]) -> bool | None:
    """What is asked for; None where that is nothing."""
    visibility = asked.get("visibility")
    if visibility is not None:
        if str(visibility) not in {"private", "public"}:
            raise Refusal(400, "a repository is public or private")
        return bool(visibility == "private")
    return bool(asked["private"]) if "private" in asked else None
