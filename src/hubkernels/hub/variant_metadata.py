"""A variant of a repository, as its metadata.json describes it: its digest, its sources, what it depends on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubkernels.errors import InputError, Problem
from hubkernels.hub.offer import BUILD
from hubkernels.model.client import COMMIT
from hubkernels.model.digest import METADATA
from hubkernels.model.lock import read_dependency
from hubkernels.model.project import KernelDependency

_DEPTH = 2
"""Slashes in build/<variant>/<file>."""


@dataclass(frozen=True)
class VariantMetadata:
    """A variant of a repository, as its metadata.json describes it."""

    tag: str
    metadata: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{BUILD}/{self.tag}"

    @property
    def sources(self) -> Sources:
        return sources_of(self.metadata)

    @property
    def files(self) -> Mapping[str, str]:
        """What the digest names, by path in the variant; the hashes are standard base64."""
        digest = self.metadata.get("digest")
        files = digest.get("files") if isinstance(digest, dict) else None
        return files if isinstance(files, dict) else {}

    @property
    def algorithm(self) -> str | None:
        """Of its digest; None where it has none."""
        digest = self.metadata.get("digest")
        return digest.get("algorithm") if isinstance(digest, dict) else None

    @property
    def promised(self) -> Mapping[str, str]:
        """The same by path in the repository."""
        return {f"{self.place}/{name}": value for name, value in self.files.items()}

    def depends(self, where: str) -> tuple[KernelDependency, ...]:
        """Raises InputError for what is no dependency."""
        found = self.metadata.get("kernel-depends", [])
        if not isinstance(found, list):
            raise InputError(Problem("kernel-depends is no list", where))
        return tuple(read_dependency(entry, f"{where}: kernel-depends") for entry in found)


@dataclass(frozen=True)
class Sources:
    """What a variant was built of, as far as its metadata tell. dirty: whether files were uncommitted then."""

    commit: str | None = None
    dirty: bool | None = None


def sources_of(metadata: Mapping[str, Any]) -> Sources:
    """By its provenance, whose commit the client also takes as ``sha``."""
    provenance = metadata.get("provenance")
    kernel = provenance.get("kernel") if isinstance(provenance, dict) else None
    if not isinstance(kernel, dict):
        return Sources()
    commit, dirty = kernel.get("commit", kernel.get("sha")), kernel.get("dirty")
    return Sources(
        commit if isinstance(commit, str) and COMMIT.fullmatch(commit) else None,
        dirty if isinstance(dirty, bool) else None,
    )


def metadata_of(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths of metadata.json of each variant."""
    found = (path for path in paths if path.startswith(f"{BUILD}/") and path.count("/") == _DEPTH)
    return tuple(sorted(path for path in found if path.endswith(f"/{METADATA}")))


def read_variant(path: str, content: bytes, where: str) -> VariantMetadata:
    """A variant by its metadata.json. Raises InputError for what is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(f"{path} is no JSON: {error}", where)) from error
    if not isinstance(found, dict):
        raise InputError(Problem(f"{path} is no object", where))
    return VariantMetadata(path.split("/")[1], found)
