"""The digest in metadata.json: one hash a file of the artifact, as the client computes it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

ALGORITHM = "sha256"
METADATA = "metadata.json"
SIGNATURE = f"{METADATA}.sigstore"
OUTSIDE = frozenset({METADATA, SIGNATURE})
"""Files of an artifact that its digest does not have."""


def digest_folder(folder: Path) -> dict[str, str]:
    """Map each file's path below ``folder`` to the standard base64 of its SHA-256, sorted by path."""
    return {
        name: base64.b64encode(hashlib.sha256((folder / name).read_bytes()).digest()).decode()
        for name in sorted(hashed_files(folder))
    }


def in_hex(entry: str) -> str:
    """A hash of the digest as other programs write it; empty where it is none."""
    try:
        return base64.b64decode(entry, validate=True).hex()
    except ValueError:
        return ""


def hashed_files(folder: Path) -> Iterator[str]:
    """Paths that the digest covers: all but the metadata itself, its signature, and bytecode."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and str(name) not in OUTSIDE and not is_bytecode(name):
            yield name.as_posix()


def uncovered(folder: Path) -> Iterator[str]:
    """What no digest covers and Python would import all the same: links to folders, and bytecode without a source.

    What Python itself writes into __pycache__ is passed over; what is no regular file is never as it was published.
    """
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        planted = is_bytecode(name) and ("__pycache__" not in name.parts or path.is_symlink())
        strange = path.is_symlink() if path.is_dir() else not path.is_file()
        if strange or planted:
            yield name.as_posix()


def is_bytecode(name: PurePath) -> bool:
    return "__pycache__" in name.parts or name.suffix == ".pyc"


def hash_digest(files: Mapping[str, str]) -> str:
    """One name for a whole artifact: SHA-256, in hex, of ``<path> <digest>`` lines sorted by path."""
    lines = "".join(f"{name} {files[name]}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()
