"""Locking: from what is declared to commits, with all that pinned kernels depend on, and to the hashes of their files.

The client looks at every variant, and so do we: a lock is for every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from hubkernels.errors import CheckFailedError, InputError, Problem, gathered
from hubkernels.hub.branches import version_of
from hubkernels.hub.changes import RemoteFile
from hubkernels.hub.hashes import against_digest, refuse_bytecode
from hubkernels.hub.offer import Content
from hubkernels.hub.remote import Remote
from hubkernels.hub.variant_metadata import metadata_of, read_variant
from hubkernels.model.client import BEGINNING_RULE, COMMIT, begins_a_commit, spelled_alike
from hubkernels.model.lock import Files, Lock, Pin, words
from hubkernels.model.project import KernelDependency
from hubkernels.model.refused import UNSEEN

_AT_A_TIME = 8

RemoteOf = Callable[[str], Remote]


@dataclass(frozen=True)
class Kernel:
    """A repository at one commit. files: SHA-256 of each."""

    files: Files
    depends: tuple[KernelDependency, ...]


def lock(wanted: Iterable[KernelDependency], remote_of: RemoteOf, trust: Collection[str] | None) -> Lock:
    """Pin what is wanted and all that it depends on. trust: ``OWNER`` or ``OWNER/NAME``, beside whom the Hub trusts.

    None trusts everybody: for who runs it where it can take nothing.

    Raises CheckFailedError for publishers that nobody trusts, a kernel-depends that can move, a cycle, and files
    that are not what their digests say; of all that is wanted at once.
    """
    walk = _Walk(remote_of, None if trust is None else frozenset(map(spelled_alike, trust)))
    gathered(walk.add, wanted)
    pins = tuple(sorted(walk.pins.values(), key=lambda pin: pin.place))
    return Lock(pins, {pin.key: walk.kernels[pin.key].files for pin in pins})


class _Walk:
    """What was found so far."""

    def __init__(self, remote_of: RemoteOf, trust: Collection[str] | None) -> None:
        self._remote_of = remote_of
        self._trust = trust
        self._trusted: set[str] = set()
        self.pins: dict[KernelDependency, Pin] = {}
        self.kernels: dict[str, Kernel] = {}

    def add(self, wanted: KernelDependency, above: tuple[KernelDependency, ...] = ()) -> None:
        if wanted in above:
            chain = " -> ".join(map(words, (*above[above.index(wanted) :], wanted)))
            raise CheckFailedError(Problem(f"these kernels depend on each other, and the client loads none: {chain}"))
        if wanted in self.pins:
            return
        remote = self._remote_of(wanted.repo_id)
        self._insist_on_trust(remote)
        if above:
            _insist_on_pin(wanted, above[-1], remote)
        pin = _pin(wanted, remote)
        if pin.key not in self.kernels:
            self.kernels[pin.key] = read_kernel(remote, pin.commit)
        for further in self.kernels[pin.key].depends:
            self.add(further, (*above, wanted))
        self.pins[pin.dependency] = pin

    def _insist_on_trust(self, remote: Remote) -> None:
        """Before anything of a repository is read, as the client does."""
        repo_id = remote.repo_id
        owner = repo_id.partition("/")[0]
        if self._trust is None or {spelled_alike(repo_id), spelled_alike(owner)} & {*self._trust, *self._trusted}:
            return
        if not remote.is_of_trusted_publisher():
            hint = f"look at it, then: --trust {repo_id}, or --trust {owner} for all of {owner}"
            raise CheckFailedError(Problem(f"{repo_id} is not from a publisher that the Hub trusts", remote.url, hint))
        self._trusted.add(spelled_alike(owner))


def _insist_on_pin(wanted: KernelDependency, by: KernelDependency, remote: Remote) -> None:
    if wanted.version is None and not COMMIT.fullmatch(wanted.revision or ""):
        what = f"{words(by)} takes {words(wanted)} as kernel-depends: a branch or a tag, which can move"
        revision = wanted.revision or ""
        commit = "all 40 hex digits of it" if begins_a_commit(revision) else remote.commit_of(revision)
        hint = f"its author should name {commit}, or a version"
        raise CheckFailedError(Problem(what, remote.url, hint))


def _pin(wanted: KernelDependency, remote: Remote) -> Pin:
    """With the dependency as the lock has it: a name that can move becomes the commit that it stands for now."""
    if wanted.version is None and wanted.revision is not None:
        commit = wanted.revision.lower()
        if not COMMIT.fullmatch(commit):
            commit = _commit_of(wanted.revision, remote)
        return Pin(replace(wanted, revision=commit), commit)
    versions = versions_of(remote)
    version = wanted.version if wanted.version is not None else max(versions, default=None)
    if version is None or version not in versions:
        there = ", ".join(map(str, sorted(versions))) or "none"
        missing = "no version" if version is None else f"no version {version}"
        raise InputError(Problem(f"{wanted.repo_id} has {missing}", remote.url, f"versions: {there}"))
    return Pin(replace(wanted, version=version), versions[version])


def _commit_of(revision: str, remote: Remote) -> str:
    """What the Hub says of a branch or a tag. Raises InputError for the beginning of a commit, before it is asked."""
    if begins_a_commit(revision):
        hint = f"all 40 hex digits of it, as `git log` shows; {BEGINNING_RULE}"
        raise InputError(Problem(f"{revision} is no whole commit", remote.url, hint))
    return remote.commit_of(revision)


def versions_of(remote: Remote) -> dict[int, str]:
    """The commit of each version: branches that are called v1, v2. Raises InputError where there is no repository."""
    branches = remote.branches()
    if branches is None:
        raise InputError(Problem(f"there is no kernel {remote.repo_id}", remote.url, UNSEEN))
    found = ((version_of(name), commit) for name, commit in branches.items())
    return {version: commit for version, commit in found if version is not None}


def read_kernel(remote: Remote, commit: str) -> Kernel:
    """The hashes of all files, and what any variant depends on. Raises CheckFailedError for what is not as promised.

    A large file's hash is in the listing, which `prefetch` holds its bytes against; others are read.
    """
    there, where = remote.files(commit), f"{remote.url}/tree/{commit}"
    refuse_bytecode(there, where)
    with ThreadPoolExecutor(_AT_A_TIME) as readers:
        files = dict(zip(there, readers.map(lambda file: _sha256(remote, commit, file), there.values()), strict=True))
    variants = [read_variant(path, remote.read(commit, path), where) for path in metadata_of(files)]
    problems = [
        problem
        for each in variants
        for problem in against_digest(each, files, where, lambda path: remote.read(commit, path))
    ]
    if problems:
        raise CheckFailedError(*problems)
    return Kernel(files, tuple(dict.fromkeys(kernel for each in variants for kernel in each.depends(where))))


def _sha256(remote: Remote, commit: str, file: RemoteFile) -> str:
    if file.sha256:
        return file.sha256
    found = Content(remote.read(commit, file.path))
    if not file.holds(found):
        what = f"{file.path} has {found.blob}: git at {commit} has {file.blob}"
        hint = "the Hub's cache or the Hub gave other bytes: remove the file from the cache and try again"
        raise CheckFailedError(Problem(what, remote.url, hint))
    return found.sha256


def outdated(there: Lock, now: Lock) -> tuple[Problem, ...]:
    """Why a lock is not what `lock` would write: nothing, where it is."""
    before = {pin.dependency: pin.commit for pin in there.pins}
    after = {pin.dependency: pin.commit for pin in now.pins}
    found = [Problem(f"{words(each)} is locked, and nothing depends on it") for each in before if each not in after]
    found += [Problem(f"{words(each)} is not locked") for each in after if each not in before]
    found += [
        Problem(f"{words(each)} is locked at {before[each]}: it is {after[each]} now")
        for each in after
        if each in before and before[each] != after[each]
    ]
    if not found and there.files != now.files:
        found = [Problem("the hashes beside the lock are missing, or those of other files")]
    return tuple(found)


def locked_twice(lock: Lock) -> tuple[str, ...]:
    """Repositories at several commits: the client's `load_kernel` takes the first of them for a name."""
    by_repo: dict[str, set[str]] = {}
    for pin in lock.pins:
        by_repo.setdefault(pin.dependency.repo_id, set()).add(pin.commit)
    return tuple(repo_id for repo_id, commits in sorted(by_repo.items()) if len(commits) > 1)
