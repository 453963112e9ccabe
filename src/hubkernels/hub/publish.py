"""Publishing: what is built becomes one commit on the branch of its version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from hubkernels.errors import CheckFailedError, HubRefusedError, Problem
from hubkernels.hub.changes import Changes, RemoteFile, compare
from hubkernels.hub.offer import BUILD, Content, Offered, held_still
from hubkernels.hub.promises import refuse_broken_promises
from hubkernels.hub.records import RECORDS, belongs_to, digest_of
from hubkernels.hub.remote import Committed, ForbiddenError, RaceLostError, Remote, start_again
from hubkernels.hub.sign import Read, Signer, signature_path, signed, stays_signed, with_signatures
from hubkernels.hub.variant_metadata import sources_of
from hubkernels.model.digest import METADATA

MAIN = "main"

Status = Literal["no_changes", "uploaded", "pull_request_created", "would_upload"]


@dataclass(frozen=True)
class Publication:
    """What is to be published, where. more: files beside the artifacts, by path, such as benchmarks and records.

    signer: who signs the metadata; None leaves good signatures that are there.
    """

    variants: tuple[Offered, ...]
    branch: str
    more: Mapping[str, Content]
    private: bool = False
    as_pull_request: bool = False
    signer: Signer | None = None

    @property
    def files(self) -> dict[str, Content]:
        found = {path: content for each in self.variants for path, content in each.files.items()}
        return found | dict(self.more)


@dataclass(frozen=True)
class Published:
    """commit: of the branch now. previous: before. Both are None where a dry run finds no branch."""

    status: Status
    repo_id: str
    url: str
    branch: str
    commit: str | None
    previous: str | None
    changes: Changes
    pull_request: str | None = None

    def to_json(self) -> dict[str, Any]:
        pulls = [{"branch": self.branch, "url": self.pull_request}] if self.pull_request else []
        return {
            "status": self.status,
            "repo_id": self.repo_id,
            "branch": self.branch,
            "url": self.url,
            "commit": self.commit,
            "previous": self.previous,
            "pull_requests": pulls,
            "added": list(self.changes.added),
            "changed": list(self.changes.changed),
            "deleted": list(self.changes.deleted),
        }


@dataclass(frozen=True)
class _Look:
    """A branch as it was found. head: what a commit goes onto. new: whether the branch is yet to be made.

    start: of a branch that is not there, the commit that it would begin at, whose files are these.
    """

    head: str | None
    new: bool
    files: Mapping[str, RemoteFile]
    start: str | None = None


def publish(publication: Publication, remote: Remote) -> Published:
    """One commit, or none where nothing differs. The branch, and the repository, are made where they are missing.

    Raises CheckFailedError where the API differs from that of variants that stay, HubRefusedError where the Hub does.
    """
    return start_again(lambda: _publish_once(publication, remote))


def preview(publication: Publication, remote: Remote) -> Published:
    """What `publish` would do."""
    look = _look(publication, remote)
    changes = _changes(publication, remote, look)
    before = None if look.new else look.head
    return _published(publication, remote, "would_upload" if changes else "no_changes", before, before, changes)


@contextmanager
def or_proposed() -> Iterator[None]:
    """Who may not write on a branch may propose what would be written: the way out of that refusal says so."""
    try:
        yield
    except ForbiddenError as error:
        told = (replace(each, hint=f"{each.hint}; --create-pr proposes the change") for each in error.problems)
        raise ForbiddenError(*told) from error


def _publish_once(publication: Publication, remote: Remote) -> Published:
    look = _look(publication, remote)
    changes = _changes(publication, remote, look)  # refuses before anything is made
    signatures = _signatures(publication, changes, {})  # who signs may refuse, too
    if look.head is None:
        _make_branch(publication, remote)
        look = _just_made(publication, _look(publication, remote))
        changes = _changes(publication, remote, look)
    if look.head is None:
        raise RaceLostError(Problem(f"{publication.branch} of {remote.repo_id} was deleted meanwhile", remote.url))
    if not changes:
        return _published(publication, remote, "no_changes", look.head, look.head, changes)
    pull_request = publication.as_pull_request
    message = f"Publish {', '.join(each.tag for each in publication.variants)}"
    files = publication.files | _signatures(publication, changes, signatures)
    with held_still({path: files[path] for path in (*changes.added, *changes.changed)}) as sent:
        with nullcontext() if pull_request else or_proposed():
            made = remote.commit(publication.branch, look.head, message, sent, changes, as_pull_request=pull_request)
        _refuse_incomplete(sent, remote, made.commit)
    status: Status = "pull_request_created" if pull_request else "uploaded"
    return _published(publication, remote, status, made.commit, look.head, changes, made)


def _signatures(publication: Publication, changes: Changes, there: Mapping[str, Content]) -> dict[str, Content]:
    """Those that the changes have, and are not there yet."""
    missing = tuple(each for each in publication.variants if signature_path(each) not in there)
    return {**there, **signed(missing, changes, publication.signer)}


def _refuse_incomplete(sent: Mapping[str, Content], remote: Remote, commit: str) -> None:
    """The Hub's client leaves out what a .gitignore there names, and says nothing.

    Raises CheckFailedError for what the commit does not have as it was sent.
    """
    there = remote.files(commit)
    lost = [path for path, content in sent.items() if path not in there or not there[path].holds(content)]
    if lost:
        hint = "a .gitignore on that branch may name it: take the pattern out of it, and publish again"
        raise CheckFailedError(
            *(Problem(f"{path} is not in {commit} as it was sent", remote.url, hint) for path in lost)
        )


def _published(  # noqa: PLR0913, PLR0917 - the parts of the result
    publication: Publication,
    remote: Remote,
    status: Status,
    commit: str | None,
    previous: str | None,
    changes: Changes,
    made: Committed | None = None,
) -> Published:
    pull_request = made.pull_request if made else None
    return Published(status, remote.repo_id, remote.url, publication.branch, commit, previous, changes, pull_request)


def _look(publication: Publication, remote: Remote) -> _Look:
    branches = remote.branches() or {}
    head, start = branches.get(publication.branch), branches.get(MAIN)
    if head is not None:
        return _Look(head, new=False, files=remote.files(head), start=start)
    return _Look(None, new=True, files=remote.files(start) if start else {}, start=start)


def _just_made(publication: Publication, look: _Look) -> _Look:
    """A branch that this run made has nothing of its own, unless another was quick and committed to it.

    One that was there before may be another's, also where it still is what main is.
    """
    return replace(look, new=look.head == look.start and publication.branch != MAIN) if look.head else look


def _make_branch(publication: Publication, remote: Remote) -> None:
    if not publication.as_pull_request:  # who may not write may propose; the repository is there then
        remote.create(private=publication.private)
        remote.create_branch(publication.branch)
        return
    try:
        remote.create_branch(publication.branch)
    except HubRefusedError as error:
        what = f"{publication.branch} of {remote.repo_id} is not there, and a proposal is for a branch that is"
        hint = "ask an owner to make the branch, or propose a version that is there"
        raise HubRefusedError(Problem(what, remote.url, hint)) from error


def _changes(publication: Publication, remote: Remote, look: _Look) -> Changes:
    """Against what is there; a branch that begins at main keeps none of the variants of main."""
    offered = publication.files
    ours = (BUILD, RECORDS) if look.new else tuple(each.place for each in publication.variants)
    benchmarks = any(path.startswith("benchmarks/") for path in publication.more)
    signatures = {signature_path(each) for each in publication.variants}
    of_other_bytes = frozenset() if look.new else _outlived_records(publication, remote, look)

    def is_ours(path: str) -> bool:
        if path in signatures:  # decided on when it is known what becomes of the metadata
            return False
        stale_benchmark = benchmarks and path.startswith("benchmarks/benchmark") and path.count("/") == 1
        return stale_benchmark or path in of_other_bytes or any(path.startswith(f"{place}/") for place in ours)

    found = compare(offered, look.files, is_ours)
    if not look.new and look.head is not None:
        refuse_broken_promises(publication.variants, remote, look.head, look.files)
    start = look.head or look.start or ""  # where there is nothing, nothing is read

    def read(path: str) -> bytes:
        return remote.read(start, path)

    found = _without_mere_stamps(publication, look, found, read)
    return with_signatures(publication.variants, found, look.files, publication.signer, read)


def _outlived_records(publication: Publication, remote: Remote, look: _Look) -> frozenset[str]:
    """The records there of bytes that are replaced; those of the same bytes stay, whoever made them."""
    return frozenset(
        path
        for each in publication.variants
        for path in look.files
        if path.startswith(f"{RECORDS}/{each.tag}/") and path not in publication.more and look.head is not None
        if not belongs_to(remote.read(look.head, path), digest_of(each))
    )


def _without_mere_stamps(publication: Publication, look: _Look, found: Changes, read: Read) -> Changes:
    """The same content at a later commit of the sources is not published again, unless it was dirty before.

    Nor unless it is to be signed, and is not: then what is signed is what was built now.
    """
    for each in publication.variants:
        name = f"{each.place}/{METADATA}"
        touched = [path for path in (*found.added, *found.changed, *found.deleted) if path.startswith(f"{each.place}/")]
        if touched != [name] or name not in found.changed:
            continue
        before = read(name)
        if _says_the_same(before, each) and stays_signed(each, before, look.files, publication.signer, read):
            rest = tuple(path for path in found.changed if path != name)
            found = replace(found, changed=rest, kept=tuple(sorted((*found.kept, name))))
    return found


def _says_the_same(there: bytes, offered: Offered) -> bool:
    """Where what is there is no JSON, it is replaced."""
    try:
        before = json.loads(there)
    except (ValueError, RecursionError):
        return False
    if not isinstance(before, dict):
        return False
    now = json.loads(offered.stamped)
    same_state = sources_of(before).dirty == sources_of(now).dirty
    return same_state and _unstamped(before) == _unstamped(now)


def _unstamped(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != "provenance"}
