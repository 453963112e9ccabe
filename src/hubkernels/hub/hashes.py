"""Files of a pinned kernel against their hashes: of the lock, and of the digest of each variant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.variant_metadata import VariantMetadata, metadata_of, read_variant
from hubkernels.model.digest import METADATA, SIGNATURE, in_hex, is_bytecode
from hubkernels.model.lock import Files

_ALGORITHMS = frozenset({"sha256", "sha512"})
"""Of digests that the client knows."""

_VARIANT_DEPTH = 2
"""Slashes in build/<variant>/<file>."""


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


def against_digest(
    variant: VariantMetadata, found: Files, where: str, other: Callable[[str], bytes]
) -> Iterator[Problem]:
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
    # what is no hash stays as it is written, and differs
    promised = {path: in_hex(str(value)) or str(value) for path, value in variant.promised.items()}
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
