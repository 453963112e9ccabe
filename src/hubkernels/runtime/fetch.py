"""A kernel of a Hub: what its revisions are, what a commit holds, and its files.

A commit costs one request where the Hub speaks git: the commit itself, its trees, and every small file, each proved by
its hash. Any other can be asked by its API, a request a page of the listing, and one a file; what it lists is believed
then, and each file held against that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import quote

from hubkernels.errors import HubkernelsError, HubRefusedError, Problem
from hubkernels.model.client import BEGINNING_RULE, SHA1_COMMIT, may_stand_for
from hubkernels.runtime.gitpack import PackError, read_pack
from hubkernels.runtime.pktline import LineError, NoPackError, ask_for, pack_of
from hubkernels.runtime.proof import BUILD, File, Proven, Told, wrong
from hubkernels.runtime.settings import UNPROVED
from hubkernels.runtime.web import AGENT, Answer, RefusedError, TooMuchError, Web

SMALL_BYTES = 128 << 10
"""Files up to this size come with the commit, those of every variant: a library is larger, or is kept elsewhere."""

_PACK_MOST = 64 << 20
_ANSWER_MOST = 16 << 20
_FILE_MOST = 4 << 30
_ENTRIES_MOST = 100_000
_NOT_FOUND = 404
_RESULT = "application/x-git-upload-pack-result"
_ASKING = {
    "Content-Type": "application/x-git-upload-pack-request",
    "Accept": _RESULT,
}
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')


class UnprovedError(RefusedError):
    """A Hub does not give a commit by git, or what stands before it does not let it."""


class Hub:
    """One kernel of a Hub."""

    def __init__(self, web: Web, repo_id: str) -> None:
        self.web = web
        self.repo_id = repo_id
        self._api = f"/api/kernels/{repo_id}"

    def is_vouched_for(self) -> bool:
        """Whether the Hub says that the owner is a trusted publisher. Raises what a request does."""
        owner = quote(self.repo_id.partition("/")[0], safe="")
        found = self.web.read(f"/api/organizations/{owner}/overview", _ANSWER_MOST).json()
        return isinstance(found, dict) and found.get("trustedKernelPublisher") is True

    def versions(self) -> dict[int, str]:
        """The commit of each version."""
        found = self.web.read(f"{self._api}/refs", _ANSWER_MOST).json()
        branches = found.get("branches") if isinstance(found, dict) else None
        named = ((str(each.get("name")), each.get("targetCommit")) for each in _objects(branches))
        return {
            int(name[1:]): str(commit)
            for name, commit in named
            if re.fullmatch(r"v[0-9]{1,18}", name) and SHA1_COMMIT.fullmatch(str(commit))
        }

    def commit_of(self, revision: str) -> str:
        """The commit that a branch, a tag, or the beginning of an id names. Raises HubRefusedError for another one."""
        answer = self.web.read(f"{self._api}/revision/{quote(revision, safe='')}", _ANSWER_MOST)
        found = answer.json()
        commit = found.get("sha") if isinstance(found, dict) else None
        if not isinstance(commit, str) or not SHA1_COMMIT.fullmatch(commit):
            raise HubRefusedError(Problem(f"the Hub does not tell which commit {revision} is", answer.url))
        if not may_stand_for(revision, commit):
            raise HubRefusedError(Problem(f"the Hub says that {revision} is {commit}", answer.url, BEGINNING_RULE))
        return commit

    def proved(self, commit: str) -> Proven:
        """What a commit holds, by git.

        Raises UnprovedError where the Hub does not give it so, CheckFailedError where what comes is not what its id
        says, and what a request does.
        """
        asked = ask_for(commit, SMALL_BYTES, AGENT)
        try:
            answer = self.web.read(f"/kernels/{self.repo_id}.git/git-upload-pack", _PACK_MOST, asked, _ASKING)
            objects = read_pack(_pack(answer))
        except (RefusedError, TooMuchError, NoPackError) as error:
            if isinstance(error, RefusedError) and error.code == "RepoNotFound":
                raise
            raise self._unproved(commit, error) from error
        except (LineError, PackError) as error:
            raise wrong(f"what the Hub sent for {self.repo_id} is damaged: {error}") from error
        if commit not in objects:
            raise wrong(f"the Hub sent another commit of {self.repo_id} than {commit}")
        return Proven(commit, objects)

    def _unproved(self, commit: str, error: Exception) -> UnprovedError:
        problem = error.problems[0] if isinstance(error, HubkernelsError) else Problem(str(error))
        what = f"{self.repo_id} at {commit} does not come by git, so that nothing proves it: {problem.what}"
        ours = (
            f"ask a Hub that gives it, through nothing that refuses git-upload-pack; {UNPROVED}=1 believes its listing"
        )
        hint = f"{problem.hint}; {ours}" if problem.hint else ours
        refused = (error.status, error.code) if isinstance(error, RefusedError) else (0, None)
        return UnprovedError(Problem(what, self.web.endpoint, hint), *refused)

    def listed(self, commit: str) -> Told:
        """What a commit holds, as the Hub lists it."""
        return Told(commit, {str(entry["path"]): _listed(entry) for entry in self._entries(commit) if "path" in entry})

    def _entries(self, commit: str) -> Iterator[dict[str, Any]]:
        """The files of all variants. Raises HubRefusedError for more than any kernel has."""
        following: str | None = f"{self._api}/tree/{commit}/{BUILD}?recursive=true"
        number = 0
        while following:
            try:
                answer = self.web.read(following, _ANSWER_MOST)
            except RefusedError as error:
                if error.status == _NOT_FOUND and error.code == "EntryNotFound":
                    return
                raise
            found = _objects(answer.json())
            number += len(found) + 1
            if number > _ENTRIES_MOST:
                raise HubRefusedError(Problem(f"more than {_ENTRIES_MOST} files", answer.url))
            yield from (entry for entry in found if entry.get("type") == "file")
            link = _NEXT.search(answer.headers.get("Link") or "")
            following = link[1] if link else None

    def save(self, commit: str, variant: str, file: File, target: BinaryIO) -> None:
        """The content of a file, which is not looked at here. One request; two where large files are elsewhere."""
        path = quote(f"{BUILD}/{variant}/{file.path}")
        most = _FILE_MOST if file.size is None else file.size
        self.web.save(f"/kernels/{self.repo_id}/resolve/{commit}/{path}", target, most)


def _pack(answer: Answer) -> bytes:
    if answer.headers.get("Content-Type", "").partition(";")[0] != _RESULT:
        raise NoPackError("the answer is no pack")
    return pack_of(answer.body)


def _objects(found: object) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _listed(entry: dict[str, Any]) -> File:
    """A file as the Hub lists it. Raises CheckFailedError for one without a hash to hold it against."""
    path, oid, size, large = (entry.get(name) for name in ("path", "oid", "size", "lfs"))
    sha256 = large.get("oid") if isinstance(large, dict) else None
    if isinstance(large, dict):
        size = large.get("size", size)
    if not SHA1_COMMIT.fullmatch(str(oid)) or (sha256 and not re.fullmatch(r"[0-9a-f]{64}", str(sha256))):
        raise wrong(f"the Hub lists a file without a hash: {path!r}")
    if not isinstance(size, int) or size < 0:
        raise wrong(f"the Hub lists a file without a size: {path!r}")
    return File(str(path), str(oid), str(sha256) if sha256 else None, size)
