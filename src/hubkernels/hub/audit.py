"""Auditing: what is known of each pinned kernel, of the files in the cache alone. Asks no Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.errors import HubkernelsError, Problem
from hubkernels.hub.cached import Cached
from hubkernels.hub.offer import BUILD
from hubkernels.hub.prefetch import promised_of, wrong_files
from hubkernels.hub.records import PARITY, RECORDS, FoundParity, read_parity
from hubkernels.hub.sign_policy import Policy
from hubkernels.hub.sign_state import SignatureState, signature_state
from hubkernels.hub.variant_metadata import VariantMetadata, metadata_of, read_variant
from hubkernels.model.lock import Lock, Pin, dependency_to_json, words


@dataclass(frozen=True)
class AuditedVariant:
    """commit, dirty: of the sources that it was built of; None where its metadata do not tell.

    parity: None where no record is along, or one of other bytes.
    """

    tag: str
    signature: SignatureState
    has_digest: bool
    license: str | None
    commit: str | None
    dirty: bool | None
    parity: FoundParity | None

    def to_json(self) -> dict[str, Any]:
        parity = vars(self.parity) if self.parity else None
        return {
            **vars(self),
            "signature": self.signature.status,
            "signer": self.signature.signer,
            "parity": parity,
        }

    def __str__(self) -> str:
        sources = f"sources {self.commit[:12]}" if self.commit else "sources unknown"
        parts = (
            "digest" if self.has_digest else "no digest",
            "unsigned" if self.signature.status == "unsigned" else str(self.signature),
            f"{sources}, with uncommitted files" if self.dirty else sources,
            self.license or "no licence",
            str(self.parity or "no parity record"),
        )
        return f"{self.tag}: {'; '.join(parts)}"


@dataclass(frozen=True)
class Audited:
    """One pinned kernel. files: how many are in the cache. by_lock: whether the lock has hashes of them."""

    pin: Pin
    files: int
    by_lock: bool
    variants: tuple[AuditedVariant, ...]
    problems: tuple[Problem, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": dependency_to_json(self.pin.dependency),
            "commit": self.pin.commit,
            "files": self.files,
            "hashes": "lock" if self.by_lock else "digest",
            "variants": [each.to_json() for each in self.variants],
            "problems": [each.to_json() for each in self.problems],
        }


_TOLD_ONLY = frozenset({"good", "unsigned", "other signer"})
"""What a signature may be without a wrong: nobody need sign, and who may is for who loads the kernel to say."""


def audit(lock: Lock, cache: Path, policy: Policy) -> tuple[Audited, ...]:
    """Each kernel of a lock, with every file that is not as the lock, its variant's digest or a signature has it."""
    return tuple(_audit(lock, Cached(pin, cache), policy) for pin in lock.pins)


def _audit(lock: Lock, cached: Cached, policy: Policy) -> Audited:
    pin, where = cached.pin, str(cached.snapshot)
    by_lock = lock.files is not None
    if not cached.snapshot.is_dir():
        missing = Problem(
            f"{words(pin.dependency)} at {pin.commit} is not in the cache", where, "`kernel-builder prefetch`"
        )
        return Audited(pin, 0, by_lock, (), (missing,))
    paths = tuple(cached.paths())
    try:
        problems = wrong_files(cached, promised_of(lock, pin))
        variants = [read_variant(path, cached.read(path), where) for path in metadata_of(paths)]
    except HubkernelsError as failure:
        return Audited(pin, len(paths), by_lock, (), failure.problems)
    found = tuple(_variant(each, cached.snapshot, policy) for each in variants)
    forged = (each.signature.problem(f"{where}/{BUILD}/{each.tag}") for each in found if _is_wrong(each.signature))
    return Audited(pin, len(paths), by_lock, found, (*problems, *forged))


def _is_wrong(signature: SignatureState) -> bool:
    return signature.status not in _TOLD_ONLY


def _variant(described: VariantMetadata, snapshot: Path, policy: Policy) -> AuditedVariant:
    licence, sources = described.metadata.get("license"), described.sources
    return AuditedVariant(
        described.tag,
        signature_state(snapshot / described.place, policy),
        described.algorithm is not None,
        licence if isinstance(licence, str) else None,
        sources.commit,
        sources.dirty,
        read_parity(snapshot / RECORDS / described.tag / PARITY, described.files),
    )
