"""One repository of a Hub, through the Hub's own client: what is there, and one commit onto it.

The one place that knows what the client raises.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from hubkernels.errors import EnvironmentLacksError, HubRefusedError, Problem
from hubkernels.host.files import read_errors
from hubkernels.host.token import insist_on_token
from hubkernels.hub.changes import Changes, RemoteFile
from hubkernels.hub.offer import Content
from hubkernels.hub.token import hub_token, way_to_write
from hubkernels.hub.waiting import PATIENCE, GaveUpError, bound_waiting, endpoint_errors
from hubkernels.model.client import spelled_alike
from hubkernels.model.refused import FORBIDDEN, way_out

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi

Answer = TypeVar("Answer")

RepoType = Literal["kernel", "model"]

STALE_PARENT = 412
_NOBODY, _MAY_NOT, _NO_ORGANIZATION = 401, 403, 404
_BUSY = frozenset({429, 500, 502, 503, 504})
_NOT_TAKEN = frozenset({429, 503})
"""Of these, what a Hub answers before it does anything: with the others what was asked for may be done."""

_PAUSES_S = (0.5, 2.0, 5.0)
"""Before a busy Hub is asked again."""

_LONGEST_S = 30.0
"""Of a pause that the Hub itself asks for."""


class RaceLostError(HubRefusedError):
    """The branch moved between the look at it and the commit."""


class ForbiddenError(HubRefusedError):
    """Who asks may not do that there."""


def start_again(attempt: Callable[[], Answer], tries: int = 3) -> Answer:
    """Where another was quicker, once more from what is there then. Raises RaceLostError where that is too often."""
    try:
        return attempt()
    except RaceLostError:
        if tries == 1:
            raise
        return start_again(attempt, tries - 1)


@dataclass(frozen=True)
class Committed:
    """pull_request: its address, where the commit is one."""

    commit: str
    pull_request: str | None = None


class Remote:
    """A repository, which need not exist. token: of the Hub; None takes what `hf auth login` left.

    cache: folder for what is read; None is the Hub client's own.
    """

    def __init__(
        self, repo_id: str, repo_type: RepoType = "kernel", token: str | None = None, cache: Path | None = None
    ) -> None:
        self.repo_id = repo_id
        self.repo_type: RepoType = repo_type
        self._cache = cache
        self._api = _client(token)

    @property
    def url(self) -> str:
        prefix = "kernels/" if self.repo_type == "kernel" else ""
        return f"{self._api.endpoint}/{prefix}{self.repo_id}"

    def credentials(self) -> dict[str, str]:
        """What another process needs in its environment to see what this one sees."""
        token = self._api.token or hub_token()
        return {"HF_ENDPOINT": self._api.endpoint, **({"HF_TOKEN": token} if isinstance(token, str) else {})}

    def near(self, repo_id: str, cache: Path) -> Remote:
        """Another repository, or this one, of the same Hub, through another cache."""
        token = self._api.token
        return Remote(repo_id, self.repo_type, token if isinstance(token, str) else None, cache)

    def branches(self) -> dict[str, str] | None:
        """Commit of each branch; None where there is no such repository, or none that may be seen."""
        from huggingface_hub.errors import RepositoryNotFoundError  # noqa: PLC0415 - an extra

        try:
            found = self._ask(lambda: self._api.list_repo_refs(self.repo_id, repo_type=self.repo_type))
        except HubRefusedError as error:
            if isinstance(error.__cause__, RepositoryNotFoundError):
                return None
            raise
        return {branch.name: branch.target_commit for branch in found.branches}

    def commit_of(self, revision: str) -> str:
        """The commit of a branch, a tag or a commit, in full."""
        kind = self.repo_type
        found = self._ask(lambda: self._api.repo_info(self.repo_id, repo_type=kind, revision=revision)).sha
        if not found:
            raise HubRefusedError(Problem(f"the Hub does not tell which commit {revision} is", self.url))
        return found

    def is_of_trusted_publisher(self) -> bool:
        """Whether the Hub vouches for the owner: what the client asks before it loads a kernel. Of users it never does.

        Raises EnvironmentLacksError where it cannot be asked.
        """
        try:
            owner = self._ask(lambda: self._api.get_organization_overview(self.repo_id.partition("/")[0]))
        except HubRefusedError as error:
            if _status(error.__cause__) != _NO_ORGANIZATION:
                raise
            return False
        return getattr(owner, "trustedKernelPublisher", False) is True

    def insist_on_right(self) -> None:
        """Raises HubRefusedError where there is no token, ForbiddenError for one that plainly may not write there.

        Of one that may write some repositories of an owner, the Hub tells at the first of them.
        """
        if not (self._api.token or hub_token()):
            raise HubRefusedError(Problem("there is no token to write with", self.url, way_to_write()))
        try:
            who = self._ask(self._api.whoami)
        except HubRefusedError as error:
            if _status(error.__cause__) == _NOBODY:
                raise
            return
        if why := why_not_writing(who, self.repo_id.partition("/")[0]):
            raise ForbiddenError(Problem(why, self.url, FORBIDDEN))

    def create(self, *, private: bool) -> None:
        kind, hidden = self.repo_type, private or None
        self._ask(lambda: self._api.create_repo(self.repo_id, repo_type=kind, private=hidden, exist_ok=True))

    def create_branch(self, name: str) -> None:
        kind = self.repo_type
        self._ask(lambda: self._api.create_branch(self.repo_id, branch=name, repo_type=kind, exist_ok=True))

    def files(self, commit: str) -> dict[str, RemoteFile]:
        """Every file of a commit, by path."""
        from huggingface_hub.hf_api import RepoFile  # noqa: PLC0415 - an extra

        kind = self.repo_type
        tree = self._ask(
            lambda: list(self._api.list_repo_tree(self.repo_id, recursive=True, revision=commit, repo_type=kind))
        )
        return {
            file.path: RemoteFile(file.path, file.size, file.blob_id, file.lfs.sha256 if file.lfs else None)
            for file in tree
            if isinstance(file, RepoFile)
        }

    def read(self, commit: str, path: str) -> bytes:
        """One file of a commit, kept in the Hub's cache."""
        return self.path_of(commit, path).read_bytes()

    def path_of(self, commit: str, path: str) -> Path:
        """Where one file of a commit is in the Hub's cache; it is fetched where it is not there."""
        return self._cached_file(commit, path, anew=False)

    def path_anew(self, commit: str, path: str) -> Path:
        """The same, fetched whatever is in the cache, which the client believes: a file there may be damaged."""
        return self._cached_file(commit, path, anew=True)

    def _cached_file(self, commit: str, path: str, *, anew: bool) -> Path:
        """Raises EnvironmentLacksError where something else stands in its place: the client looks at names alone."""
        kind, cache = self.repo_type, self._cache
        found = self._ask(
            lambda: self._api.hf_hub_download(
                self.repo_id, path, revision=commit, repo_type=kind, cache_dir=cache, force_download=anew
            )
        )
        place = Path(found).resolve()
        if not place.is_file():
            raise EnvironmentLacksError(Problem(f"{place} is no plain file", found, "delete it and try again"))
        return Path(found)

    def is_private(self) -> bool:
        kind = self.repo_type
        return self._ask(lambda: self._api.repo_info(self.repo_id, repo_type=kind)).private is True

    def fetch(self, commit: str) -> None:
        """Every file of a commit into the Hub's cache. What is there already is not read again."""
        kind, cache = self.repo_type, self._cache
        self._ask(lambda: self._api.snapshot_download(self.repo_id, repo_type=kind, revision=commit, cache_dir=cache))

    def snapshot(self, commit: str, patterns: Sequence[str]) -> Path:
        """The files of a commit that fit a pattern, in the Hub's cache; tells the folder that stands for its top."""
        kind, cache, chosen = self.repo_type, self._cache, list(patterns)
        return Path(
            self._ask(
                lambda: self._api.snapshot_download(
                    self.repo_id, repo_type=kind, revision=commit, allow_patterns=chosen, cache_dir=cache
                )
            )
        )

    def commit(  # noqa: PLR0913 - what a commit is made of
        self,
        branch: str,
        parent: str,
        message: str,
        offered: Mapping[str, Content],
        changes: Changes,
        *,
        as_pull_request: bool = False,
    ) -> Committed:
        """One commit onto ``parent``. Raises RaceLostError where the branch has another head by now.

        Where the answer to one that was made was lost, the next try finds another head: its own. A proposal moves no
        head: it is asked for again only where the Hub has not begun.
        """
        operations = _operations(offered, changes)

        def send() -> CommitInfo:
            return self._api.create_commit(
                self.repo_id,
                [copy(each) for each in operations],  # the client marks them: each try has its own
                commit_message=message,
                repo_type=self.repo_type,
                revision=branch,
                parent_commit=parent,
                create_pr=as_pull_request or None,
            )

        busy = _NOT_TAKEN if as_pull_request else _BUSY
        made = self._ask(lambda: _with_or_without_xet(send), branch, busy=busy)
        return Committed(made.oid, made.pr_url)

    def _ask(
        self,
        call: Callable[[], Answer],
        branch: str | None = None,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        busy: frozenset[int] = _BUSY,
    ) -> Answer:
        """An answer of the client's; what it raises names the repository and the way out. A busy Hub is asked again.

        call: the client alone. What is ours is done before or after: a bug of ours is no Hub's.
        """
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415 - an extra

        if pauses_s == _PAUSES_S:
            PATIENCE.forget()
        try:
            return call()
        except GaveUpError as error:
            raise self._unreachable(error) from error
        except HfHubHTTPError as error:
            if not pauses_s or _status(error) not in busy:
                raise self._refused(error, branch) from error
            time.sleep(_wished_s(error) or pauses_s[0])
        except (ConnectionError, LocalEntryNotFoundError) as error:
            raise self._unreachable(error) from error
        except OSError as error:
            raise self._broken_off(error) from error
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise self._no_hub(error) from error
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"httpx", "httpx2", "httpcore"}:
                raise
            raise self._unreachable(error) from error
        return self._ask(call, branch, pauses_s[1:], busy)

    def _unreachable(self, error: Exception) -> EnvironmentLacksError:
        hint = "is HF_ENDPOINT right, and the network there? HF_HUB_OFFLINE must not be set"
        return EnvironmentLacksError(Problem(f"the Hub cannot be reached: {error}", self._api.endpoint, hint))

    def _broken_off(self, error: OSError) -> EnvironmentLacksError:
        if error.errno is None:  # the client's own word for a file that is shorter than it was said to be
            what = f"the Hub broke off: {str(error).splitlines()[0] if str(error) else 'a download is not whole'}"
            return EnvironmentLacksError(Problem(what, self._api.endpoint, "try again"))
        from huggingface_hub import constants  # noqa: PLC0415 - an extra

        where = error.filename or f"{self._cache or constants.HF_HUB_CACHE}, or {tempfile.gettempdir()}"
        hint = "free some space, or name other folders with HF_HOME (of kernels: KERNELS_CACHE) and TMPDIR"
        what = f"the Hub's client cannot read or write a file: {error.strerror}"
        return EnvironmentLacksError(Problem(what, str(where), hint))

    def _no_hub(self, error: Exception) -> EnvironmentLacksError:
        """What the client raises where the answer is not what a Hub says: the page of a network's login, say."""
        what = f"the answer is not one of a Hub: {type(error).__name__}: {error}"
        hint = "that is no Hub, or something stands before it: is HF_ENDPOINT right, does a proxy or a login answer?"
        return EnvironmentLacksError(Problem(what, self._api.endpoint, hint))

    def _refused(self, error: Exception, branch: str | None) -> HubRefusedError:
        status = _status(error)
        said = getattr(error, "server_message", None) or str(error).splitlines()[0]
        if status == STALE_PARENT:
            what = f"{branch} of {self.repo_id} was changed by another while this was published"
            return RaceLostError(Problem(what, self.url, "publish again: it starts from what is there now"))
        hint = way_out(status, token_was_sent=_sent_a_token(error))
        hint = hint or "try again; where it persists, ask who runs the Hub"
        kind = ForbiddenError if status == _MAY_NOT else HubRefusedError
        return kind(Problem(f"the Hub refused ({status}): {said}", self.url, hint))


def why_not_writing(who: object, owner: str) -> str | None:
    """Why a token does not write to an owner's repositories, of what the Hub tells of it; None where it may."""
    token = _at(who, "auth", "accessToken", "role")
    named, roles = _at(who, "name"), {}
    for org in found if isinstance(found := _at(who, "orgs"), list) else ():
        role = "write" if _at(org, "resourceGroups") else _at(org, "roleInOrg")  # a group may have another
        roles[spelled_alike(str(_at(org, "name")))] = role
    if token == "read":  # noqa: S105 - a role
        return f"the token of {named} is one to read with"
    if _at(who, "type") != "user" or spelled_alike(str(named)) == spelled_alike(owner):
        return None
    if spelled_alike(owner) not in roles:
        return f"the token of {named} has no role on {owner}"
    return f"the token of {named} has the role read on {owner}" if roles[spelled_alike(owner)] == "read" else None


def _at(value: object, *names: str) -> object:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _with_or_without_xet(send: Callable[[], Answer]) -> Answer:
    """A Hub that keeps large files apart need not have a Xet store: the client asks for one, and gives up without."""
    from huggingface_hub import constants  # noqa: PLC0415 - an extra

    try:
        return send()
    except ConnectionError as error:
        if not ("xet-write-token" in str(error) and "404" in str(error)):
            raise
        constants.HF_HUB_DISABLE_XET = True  # the client reads it at each upload; no argument says so
        try:
            return send()
        finally:
            constants.HF_HUB_DISABLE_XET = False


def _operations(
    offered: Mapping[str, Content], changes: Changes
) -> list[CommitOperationAdd | CommitOperationDelete | CommitOperationCopy]:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete  # noqa: PLC0415 - an extra

    sent = (*changes.added, *changes.changed)
    with read_errors(Path(tempfile.gettempdir())):
        return [
            *(CommitOperationDelete(path, is_folder=False) for path in changes.deleted),
            *(CommitOperationAdd(path, offered[path].place) for path in sent),
        ]


def _status(error: BaseException | None) -> int:
    return int(getattr(getattr(error, "response", None), "status_code", 0))


def _sent_a_token(error: Exception) -> bool:
    request = getattr(getattr(error, "response", None), "request", None)
    return "authorization" in getattr(request, "headers", {})


def _wished_s(error: Exception) -> float | None:
    """How long the Hub asks to be left alone, where that is no longer than a user would wait."""
    text = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    return min(float(text), _LONGEST_S) if text.isdecimal() else None


def _client(token: str | None) -> HfApi:
    try:
        with endpoint_errors():
            from huggingface_hub import HfApi  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = "publishing needs the Hub's client, huggingface_hub"
        raise EnvironmentLacksError(Problem(what, hint="pip install 'hubkernels[client]'")) from error
    own = insist_on_token(token or "", "HF_TOKEN")
    if own is None:
        hub_token()  # what the client will read by itself
    bound_waiting()
    return HfApi(token=own, library_name="hubkernels")
