"""Files of a pinned kernel against what was promised about them: by the lock, and by the digest of each variant."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.hub.offer import BUILD
from hubkernels.model.artifact import METADATA
from hubkernels.model.client import COMMIT
from hubkernels.model.digest import SIGNATURE, is_bytecode
from hubkernels.model.lock import Files, read_dependency
from hubkernels.model.project import KernelDependency

_ALGORITHMS = frozenset({"sha256", "sha512"})
"""Of digests that the client knows."""

_VARIANT_DEPTH = 2
"""Slashes in build/<variant>/<file>."""


@dataclass(frozen=True)
class Described:
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
    found = (path for path in paths if path.startswith(f"{BUILD}/") and path.count("/") == _VARIANT_DEPTH)
    return tuple(sorted(path for path in found if path.endswith(f"/{METADATA}")))


def read_variant(path: str, content: bytes, where: str) -> Described:
    """A variant by its metadata.json. Raises InputError for what is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(f"{path} is no JSON: {error}", where)) from error
    if not isinstance(found, dict):
        raise InputError(Problem(f"{path} is no object", where))
    return Described(path.split("/")[1], found)


def differences(promised: Files, found: Files, by: str, where: str) -> Iterator[Problem]:
    """Every file that is missing, that has another hash, or that nothing promised."""
    hint = "remove it from the Hub's cache and `kernel-builder prefetch` again; where it persists, do not load it"
    for path in sorted({*promised, *found}):
        if path not in found:
            yield Problem(
                f"{path} is missing: {by} has {promised[path]}", where, "`kernel-builder prefetch` fetches it"
            )
        elif path not in promised:
            yield Problem(f"{path} has {found[path]}: {by} does not name it", where, hint)
        elif promised[path] != found[path]:
            yield Problem(f"{path} has {found[path]}: {by} has {promised[path]}", where, hint)


def against_digest(variant: Described, found: Files, where: str, other: Callable[[str], bytes]) -> Iterator[Problem]:
    """The files of one variant against its own digest. found: SHA-256 of the files of the repository.

    other: reads a file, for a digest of another algorithm. A variant without a digest promises nothing.
    """
    if variant.algorithm is None:
        return
    if variant.algorithm not in _ALGORITHMS:
        yield Problem(f"{variant.place}: the client knows no digest by {variant.algorithm}", where)
        return
    own = {path: found[path] for path in found if path.startswith(f"{variant.place}/") and _is_covered(path)}
    if variant.algorithm != "sha256":
        own = {path: hashlib.new(variant.algorithm, other(path)).hexdigest() for path in own}
    promised = {path: _hex(value) for path, value in variant.promised.items()}
    yield from differences(promised, own, f"the digest in {variant.place}/{METADATA}", where)


def not_as_promised(
    promised: Files | None, found: Files, where: str, read: Callable[[str], bytes]
) -> tuple[Problem, ...]:
    """Every file of a commit that is not as the lock, or its variant's digest, has it. promised: by the lock."""
    if promised is not None and (wrong := tuple(differences(promised, found, "the lock", where))):
        return wrong
    variants = [read_variant(path, read(path), where) for path in metadata_of(found)]
    return tuple(problem for each in variants for problem in against_digest(each, found, where, read))


def refuse_bytecode(paths: Iterable[str], where: str) -> None:
    """Raises CheckFailedError for what was published of it: see `against_bytecode`."""
    if found := tuple(against_bytecode(paths, where)):
        raise CheckFailedError(*found)


def against_bytecode(paths: Iterable[str], where: str) -> Iterator[Problem]:
    """No digest covers it, and Python may run it instead of a source that one does.

    The client does not download it, but a whole snapshot has it.
    """
    found = sorted(path for path in paths if is_bytecode(PurePosixPath(path)))
    if found:
        hint = "do not load it from a whole snapshot; `publish` sends none"
        yield Problem(f"there is bytecode, for which nobody can vouch: {', '.join(found)}", where, hint)


def against_uncovered(paths: Iterable[str], where: str) -> Iterator[Problem]:
    """What is in a cache and no digest covers."""
    found = sorted(paths)
    yield from against_bytecode(found, where)
    hint = "remove it from the Hub's cache and `kernel-builder prefetch` again"
    for path in found:
        if not is_bytecode(PurePosixPath(path)):
            yield Problem(f"{path} is there and nobody named it: a link to a folder, or no file at all", where, hint)


def _is_covered(path: str) -> bool:
    inner = PurePosixPath(*path.split("/")[_VARIANT_DEPTH:])
    return str(inner) not in {METADATA, SIGNATURE} and not is_bytecode(inner)


def _hex(value: object) -> str:
    """A hash of a digest as the other hashes are written; what is none stays as it is, and differs."""
    try:
        return base64.b64decode(str(value), validate=True).hex()
    except ValueError:
        return str(value)
