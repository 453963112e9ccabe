"""What was published, loaded as a user will load it: a fresh process, the stock client, the commit.

It is fetched and held against its digest here, where nothing of it runs. What runs it has no token and asks no Hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hubkernels.build.pipeline import Builder
from hubkernels.check.client import Task, run_in_fresh_process
from hubkernels.check.metadata import backend_type
from hubkernels.check.parity import TIMEOUT_S, read_row
from hubkernels.check.runnable import find_runnable
from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.cached import Cached
from hubkernels.hub.hashes import refuse_bytecode
from hubkernels.hub.lock import lock
from hubkernels.hub.offer import Offered
from hubkernels.hub.prefetch import prefetch
from hubkernels.hub.publish import Publication
from hubkernels.hub.records import digest_in, digest_of
from hubkernels.hub.remote import Remote
from hubkernels.hub.variant_metadata import VariantMetadata
from hubkernels.model.lock import Pin
from hubkernels.model.project import KernelDependency, Package

READ_BACK = Task("read back", "hubkernels.hub.loaded_back:load_back", counts=True)

_ELSEWHERE = frozenset({"LOCAL_KERNELS", "KERNELS_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
"""Where a client would look before it looks into the cache that is meant."""


@dataclass(frozen=True)
class ReadBack:
    """One variant as it came back. passed, rows: of its parity cases; no rows where it has none.

    worst: the largest error, in units of the tolerance.
    """

    variant: str
    commit: str
    digest: str
    passed: int
    rows: int
    worst: float | None = None

    def __str__(self) -> str:
        cases = f"{self.passed}/{self.rows} agree with the float64 reference" if self.rows else "loaded"
        return f"read back  {self.variant}  {self.commit[:12]}: {cases}"

    def to_json(self) -> dict[str, Any]:
        counts = {"passed": self.passed, "rows": self.rows}
        return {"variant": self.variant, "commit": self.commit, "digest": self.digest, **counts, "worst": self.worst}


def read_back(
    builder: Builder, package: Package, publication: Publication, remote: Remote, commit: str
) -> tuple[ReadBack, ...]:
    """Load each published variant that this machine can load, at the commit, and run its parity cases.

    None of a model repository: the client has not loaded from these since 0.14.
    Raises CheckFailedError where other bytes come back, where one does not load, or a number is wrong.
    """
    if remote.repo_type != "kernel":
        return ()
    runnable = {folder.name for folder in find_runnable(builder, package, ()).found}
    cases = [str((package.root / file).resolve()) for file in package.parity]
    return tuple(
        _read_back(each, remote, commit, cases, builder.surroundings)
        for each in publication.variants
        if each.tag in runnable
    )


def _read_back(
    offered: Offered, remote: Remote, commit: str, cases: list[str], surroundings: Mapping[str, str]
) -> ReadBack:
    tag, digest = offered.tag, digest_of(offered)
    backend = backend_type(offered.metadata)
    request = {"repo_id": remote.repo_id, "commit": commit, "backend": backend, "tag": tag, "cases": cases}
    with TemporaryDirectory(prefix="hubkernels-") as cache:
        _fetch(offered, remote, commit, Path(cache))
        known = {name: value for name, value in surroundings.items() if name not in _ELSEWHERE}
        environment = {**known, "HF_HUB_CACHE": cache}
        answer = run_in_fresh_process(READ_BACK, request, timeout_s=TIMEOUT_S, environment=environment)
    rows = [read_row(row) for row in answer["rows"]]
    wrong = [row for row in rows if not row.ok]
    if wrong:
        raise CheckFailedError(*(Problem(f"read back at {commit}: {row}", where=tag) for row in wrong))
    worst = max((row.max_error for row in rows if row.max_error is not None), default=None)
    return ReadBack(tag, commit, digest, len(rows), len(rows), worst)


def _fetch(offered: Offered, remote: Remote, commit: str, cache: Path) -> None:
    """The files of one variant, as they were sent, and all of what it depends on, as it was promised."""
    refuse_bytecode((path for path in remote.files(commit) if path.startswith(f"{offered.place}/")), remote.url)
    folder = remote.near(remote.repo_id, cache).snapshot(commit, [f"{offered.place}/*"]) / offered.place
    if digest_in(folder) != digest_of(offered):
        what = f"{remote.repo_id} at {commit} gives other bytes for {offered.tag} than were sent"
        hint = "publish again; where it persists, something between changes files"
        raise CheckFailedError(Problem(what, hint=hint))
    Cached(Pin(KernelDependency(remote.repo_id, revision=commit), commit), cache).pass_for_whole()

    def remote_of(repo_id: str) -> Remote:
        return remote.near(repo_id, cache)

    depends = VariantMetadata(offered.tag, offered.metadata).depends(str(offered.folder))
    for _ in prefetch(lock(depends, remote_of, trust=None), remote_of, cache):
        pass
