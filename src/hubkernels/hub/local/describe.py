"""Files, commits and repositories as the API tells of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from hubkernels.hub.local.change import CommitInfo
from hubkernels.hub.local.content import Pointer, may_be_pointer, read_pointer
from hubkernels.hub.local.hub import Stored
from hubkernels.hub.local.repository import Repository
from hubkernels.hub.local.tree import Entry, differing, walk

Json = dict[str, Any]

COMMITS_MOST = 1000
"""So far back the last commits of an expanded listing are looked for: whoever may read may ask for them."""


def moment(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def pointer_of(git: Repository, oid: str, size: int) -> Pointer | None:
    """What a file of git points to, whether the content is here or was lost. No text comes in that looks so."""
    return read_pointer(git.objects.blob(oid).content()) if may_be_pointer(size) else None


def entry(git: Repository, found: Entry) -> Json:
    if found.is_folder:
        return {"type": "directory", "oid": found.oid, "size": 0, "path": found.path}
    size = git.objects.blob(found.oid).size
    pointer = pointer_of(git, found.oid, size)
    told: Json = {"type": "file", "oid": found.oid, "size": size, "path": found.path}
    if pointer:
        told["size"] = pointer.size
        told["lfs"] = {"oid": pointer.oid, "size": pointer.size, "pointerSize": size}
    return told


def with_last_commits(git: Repository, commit: str, entries: Iterable[Json]) -> list[Json]:
    """Each entry with the last commit that changed it; without one where that is none of the last `COMMITS_MOST`."""
    told = list(entries)
    left = {tuple(each["path"].split("/")) if each["path"] else (): each for each in told}
    for info in islice(git.log(commit), COMMITS_MOST):
        if not left:
            break
        parent = git.info(info.parents[0]).tree if info.parents else None
        for parts in differing(git.objects, info.tree, parent, list(left)):
            left.pop(parts)["lastCommit"] = {"id": info.oid, "title": info.title, "date": moment(info.moment)}
    return told


def commit(info: CommitInfo) -> Json:
    return {
        "id": info.oid,
        "title": info.title,
        "message": info.text,
        "authors": [{"user": info.author}],
        "date": moment(info.moment),
    }


def repository(stored: Stored, oid: str) -> Json:
    """The members that the clients read. `siblings` are for models alone: older clients fail on a kernel's."""
    info = stored.git.info(oid)
    told: Json = {
        "id": str(stored.repo),
        "author": stored.repo.owner,
        "sha": oid,
        "private": stored.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "lastModified": moment(info.moment),
        "createdAt": moment(stored.created),
    }
    if stored.repo.kind == "models":
        files = (each for each in walk(stored.git.objects, info.tree) if not each.is_folder)
        told |= {"modelId": str(stored.repo), "siblings": [{"rfilename": each.path} for each in files]}
    return told
