"""Pulling: the repositories of a lock from one Hub into a folder that another one serves, with the same commits."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, get_transport_and_path
from dulwich.config import ConfigDict
from dulwich.errors import GitProtocolError, NotGitRepository
from dulwich.objects import ObjectID
from dulwich.refs import Ref
from dulwich.repo import Repo
from urllib3.exceptions import HTTPError

from hubkernels.errors import CheckFailedError, HubRefusedError, Problem
from hubkernels.hub.changes import RemoteFile
from hubkernels.hub.hashes import not_as_promised, refuse_bytecode
from hubkernels.hub.local.adopt import opened, take_in
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.content import Pointer, Receiver
from hubkernels.hub.local.describe import pointer_of
from hubkernels.hub.local.hub import Hub
from hubkernels.hub.local.names import RepoId
from hubkernels.hub.local.packs import NOT_A_PACK
from hubkernels.hub.local.repository import MAIN, Repository, lay_out
from hubkernels.hub.local.tree import Entry, walk
from hubkernels.hub.local.whole import insist_on_whole, lacking
from hubkernels.hub.lock import RemoteOf
from hubkernels.hub.offer import Content
from hubkernels.hub.prefetch import promised_of
from hubkernels.hub.remote import Remote
from hubkernels.hub.waiting import SILENT_S
from hubkernels.model.lock import Lock, Pin
from hubkernels.model.refused import UNSEEN

_HEADS = "refs/heads/"
_SILENT_S = 10 * SILENT_S
"""Of git. A Hub makes the whole pack before its first byte: the embedded one takes a minute or more for 1 GB."""

_REFUSES = (GitProtocolError, NotGitRepository, HTTPUnauthorized, HTTPProxyUnauthorized, HTTPError)


@dataclass(frozen=True)
class Pulled:
    """A repository that is in the folder. branches: where they are now."""

    repo_id: str
    commits: tuple[str, ...]
    branches: dict[str, str]


def pull(lock: Lock, remote_of: RemoteOf, folder: Path) -> Iterator[Pulled]:
    """Each repository of a lock: its pinned commits with their history, and main; large files of pinned commits alone.

    A version's branch ends in the commit that is locked. Raises CheckFailedError where files are not those of the lock.
    """
    with opened(folder) as hub:
        for repo_id, pins in groupby(lock.pins, key=lambda pin: pin.dependency.repo_id):
            yield _pull(lock, tuple(pins), remote_of(repo_id), hub)


def _pull(lock: Lock, pins: Sequence[Pin], remote: Remote, hub: Hub) -> Pulled:
    private = remote.is_private()  # asked first: it tells best why a repository cannot be had
    remote.branches()  # and this, of a Hub of ours, that one of them is damaged: of git's refusals no word is seen
    new = Path(tempfile.mkdtemp(dir=hub.scratch))
    lay_out(new)
    heads = _fetch(remote, new, {pin.commit for pin in pins})
    git = Repository(new, hub.scratch)
    with closing(git.objects):
        for pin in pins:
            _check(lock, pin, git, remote)
        for name, commit in _branches(pins, heads, git, remote).items():
            git.refs.set(f"{_HEADS}{name}", commit)
        owner, _, name = remote.repo_id.partition("/")
        repo = RepoId("kernels", owner, name)
        insist_on_whole(git, repo, remote.url, "nothing of it was taken: ask who runs the Hub")
        git.content.leave_out(pointer.oid for pointer in lacking(git))
    stored = take_in(hub, repo, new, private=private)
    return Pulled(remote.repo_id, tuple(pin.commit for pin in pins), stored.git.refs.below(_HEADS))


def _fetch(remote: Remote, folder: Path, wanted: set[str]) -> dict[str, str]:
    """All objects of the commits that are wanted, and of main, by git; tells the branches there are.

    Where a commit is the head of no branch any more, all branches are fetched: one of them has it in its history.
    """

    def choose(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:  # noqa: ARG001 - dulwich's
        heads = {ref.decode(): oid for ref, oid in refs.items() if ref.startswith(_HEADS.encode())}
        named = {oid.decode() for oid in heads.values()}
        found = [oid for ref, oid in heads.items() if wanted - named or oid.decode() in wanted or ref == MAIN]
        return list(dict.fromkeys(found))

    token = remote.credentials().get("HF_TOKEN")
    try:
        client, path = get_transport_and_path(
            remote.url, _waiting(), username="token" if token else None, password=token
        )
        with Repo(str(folder), bare=True) as target:
            refs = client.fetch(path, target, determine_wants=choose).refs
    except _REFUSES as error:
        unseen = isinstance(error, (HTTPUnauthorized, NotGitRepository))
        hint = UNSEEN if unseen else "try again"
        raise HubRefusedError(
            Problem(f"git fetch failed: {error or type(error).__name__}", remote.url, hint)
        ) from error
    except NOT_A_PACK as error:
        what = f"what git fetched is damaged: {str(error) or type(error).__name__}"
        raise CheckFailedError(
            Problem(what, remote.url, "try again; where it persists, ask who runs the Hub")
        ) from error
    heads = {ref.decode(): oid.decode() for ref, oid in refs.items() if oid and ref.startswith(_HEADS.encode())}
    return {name.removeprefix(_HEADS): commit for name, commit in heads.items()}


def _waiting() -> ConfigDict:
    """git waits for ever: this is the one way to tell dulwich's transport not to."""
    config = ConfigDict()
    config.set(b"http", b"timeout", str(_SILENT_S).encode())
    return config


def _check(lock: Lock, pin: Pin, git: Repository, remote: Remote) -> None:
    """Large files come here too. Raises CheckFailedError for a commit that is not there, other files and bytecode."""
    try:
        tree = git.info(pin.commit).tree
    except KeyError as error:
        what = f"no branch of {remote.repo_id} has the commit {pin.commit} any more"
        raise CheckFailedError(Problem(what, remote.url, "`kernel-builder lock` names another")) from error
    there = {entry.path: entry for entry in walk(git.objects, tree) if not entry.is_folder}
    refuse_bytecode(there, remote.url)
    large = _bring_large(git, remote, pin.commit, there)
    found = {path: large.get(path) or _sha256(git, entry) for path, entry in there.items()}

    def read(path: str) -> bytes:
        oid = large.get(path)
        return git.content.path(oid).read_bytes() if oid else git.objects.blob(there[path].oid).content()

    if wrong := not_as_promised(promised_of(lock, pin), found, remote.url, read):
        raise CheckFailedError(*wrong)


def _bring_large(git: Repository, remote: Remote, commit: str, there: Mapping[str, Entry]) -> dict[str, str]:
    """SHA-256 of each large file. Raises CheckFailedError where the Hub lists not the one that git has a pointer to."""
    found = {}
    for path, file in remote.files(commit).items():
        if file.sha256 and path in there:
            if there[path].oid != Content(Pointer(file.sha256, file.size).text()).blob:
                what = f"{path} is a large file on the Hub, and in git it is no pointer to what the Hub lists"
                raise CheckFailedError(Problem(what, remote.url, "ask who runs the Hub"))
            _bring(git, remote, commit, file)
            found[path] = file.sha256
    pointers = (path for path, entry in there.items() if pointer_of(git, entry.oid, git.objects.blob(entry.oid).size))
    if lost := next((path for path in pointers if path not in found), None):
        what = f"{lost} is the pointer of a large file, and the Hub has none there"
        raise CheckFailedError(Problem(what, remote.url, "ask who runs the Hub"))
    return found


def _bring(git: Repository, remote: Remote, commit: str, large: RemoteFile) -> None:
    """Raises CheckFailedError for other bytes than those that git has a pointer to, when they were just fetched too."""
    try:
        _take(git, large, remote.path_of(commit, large.path))
    except Refusal:
        try:
            _take(git, large, remote.path_anew(commit, large.path))
        except Refusal as refusal:
            hint = "it is so when it is fetched anew, too: ask who runs the Hub"
            raise CheckFailedError(Problem(f"{large.path}: {refusal.message}", remote.url, hint)) from refusal


def _take(git: Repository, large: RemoteFile, source: Path) -> None:
    """Raises Refusal for other bytes."""
    receiver = Receiver(git.content.scratch, large.size)
    try:
        with source.open("rb") as file:
            receiver.copy(file)
        receiver.keep(git.content, large.sha256 or "")
    finally:
        receiver.close()


def _sha256(git: Repository, entry: Entry) -> str:
    digest = hashlib.sha256()
    for piece in git.objects.blob(entry.oid).pieces():
        digest.update(piece)
    return digest.hexdigest()


def _branches(pins: Sequence[Pin], heads: dict[str, str], git: Repository, remote: Remote) -> dict[str, str]:
    """main as it is, each locked version at its commit, and other branches at the last pinned commit that they have."""
    pinned = {pin.commit for pin in pins}
    found = {}
    for name, head in heads.items():
        history = (info.oid for info in git.log(head)) if git.has(head) else ()
        last = next((oid for oid in history if oid in pinned), None)
        if last:
            found[name] = last
    found |= {f"v{pin.dependency.version}": pin.commit for pin in pins if pin.dependency.version is not None}
    if "main" not in heads:
        raise HubRefusedError(Problem(f"{remote.repo_id} has no branch main", remote.url))
    return {**found, "main": heads["main"]}
