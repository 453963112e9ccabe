"""Fetching pinned kernels whole, so that they load without a network.

A part of a commit will not do: without a network, huggingface_hub from 1.22 on takes a snapshot only where every
file of the commit is there, and the client asks for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.cached import Cached
from hubkernels.hub.hashes import against_uncovered, not_as_promised, refuse_bytecode
from hubkernels.hub.lock import RemoteOf, versions_of
from hubkernels.model.lock import LOCK, Files, Lock, Pin, hashes_beside


@dataclass(frozen=True)
class Fetched:
    """A kernel that is in the cache, whole and as promised. versions: names by which it is found there."""

    pin: Pin
    folder: Path
    files: int
    versions: tuple[int, ...]


def prefetch(lock: Lock, remote_of: RemoteOf, cache: Path) -> Iterator[Fetched]:
    """Fetch each kernel of a lock and hold it against its hashes. Files in the cache that differ are fetched again.

    Raises CheckFailedError where they differ then, too: they are not left there; and for bytecode, of which no hash is
    asked, before anything is fetched.
    """
    for pin in lock.pins:
        promised = promised_of(lock, pin)
        cached = Cached(pin, cache)
        remote = remote_of(pin.dependency.repo_id)
        refuse_bytecode(remote.files(pin.commit), f"{remote.url}/tree/{pin.commit}")
        remote.fetch(pin.commit)
        _insist_on_snapshot(cached)
        if wrong_files(cached, promised):
            _discard_wrong(cached, promised)
            remote.fetch(pin.commit)
            _refuse_wrong(cached, promised)
        versions = _versions(pin, remote_of)
        for version in versions:
            cached.name_version(version)
        yield Fetched(pin, cached.snapshot, sum(1 for _ in cached.paths()), versions)


def _insist_on_snapshot(cached: Cached) -> None:
    """Where nothing is, nothing is wrong."""
    if not cached.snapshot.is_dir():
        what = f"{cached.pin.key} is not in the cache that it was fetched into"
        raise CheckFailedError(Problem(what, str(cached.snapshot), "is KERNELS_CACHE, or HF_HOME, a full path?"))


def promised_of(lock: Lock, pin: Pin) -> Files | None:
    """The hashes of a pin; None where the lock has none at all. Raises CheckFailedError where it has others' alone."""
    if lock.files is None:
        return None
    if pin.key not in lock.files:
        what = f"{hashes_beside(LOCK)} has no hashes of {pin.key}, which {LOCK} names: they do not belong together"
        raise CheckFailedError(Problem(what, hint="`kernel-builder lock` writes both anew"))
    return lock.files[pin.key]


def wrong_files(cached: Cached, promised: Files | None) -> tuple[Problem, ...]:
    """Every file in the cache that is not as the lock, or its variant's digest, has it."""
    where = str(cached.snapshot)
    told = not_as_promised(promised, cached.hashes(), where, cached.read)
    return (*against_uncovered(cached.uncovered(), where), *told)


def _discard_wrong(cached: Cached, promised: Files | None) -> None:
    """Without hashes in a lock nobody knows which file is wrong: all of them are fetched again."""
    found = cached.hashes()
    cached.discard(path for path in found if promised is None or promised.get(path) != found[path])


def _refuse_wrong(cached: Cached, promised: Files | None) -> None:
    problems = wrong_files(cached, promised)
    if problems:
        _discard_wrong(cached, promised)
        raise CheckFailedError(*problems)


def _versions(pin: Pin, remote_of: RemoteOf) -> tuple[int, ...]:
    """The version that is pinned; of a commit, those whose branches end in it."""
    wanted = pin.dependency
    if wanted.version is not None:
        return (wanted.version,)
    there = versions_of(remote_of(wanted.repo_id))
    return tuple(sorted(version for version, commit in there.items() if commit == pin.commit))
