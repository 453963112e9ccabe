"""The digest in metadata.json, brought up to date after files of an artifact were changed by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import disk_errors, read_errors, read_regular, write_atomically
from hubkernels.model.artifact import note_of, with_digest
from hubkernels.model.digest import METADATA, SIGNATURE, digest_folder


@dataclass(frozen=True)
class Hashed:
    """One artifact. differing: files that its digest does not name, names with another hash, or names in vain."""

    folder: Path
    metadata: dict[str, Any]
    files: dict[str, str]
    differing: tuple[str, ...]

    @property
    def current(self) -> bool:
        """Whether the metadata are just what `write` would make of them."""
        return self.metadata == with_digest(self.metadata, self.files)


def look(folder: Path) -> Hashed:
    """Hash the files of an artifact and compare. Raises InputError where its metadata cannot be read."""
    path = folder / METADATA
    with read_errors(path):
        text = read_regular(path)
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(f"not JSON: {error}", where=str(path))) from error
    if not isinstance(metadata, dict):
        raise InputError(Problem("not a JSON object", where=str(path)))
    with read_errors(folder):
        files = digest_folder(folder)
    digest = metadata.get("digest")
    known = digest.get("files") if isinstance(digest, dict) else None
    known = known if isinstance(known, dict) else {}
    differing = sorted(name for name in known.keys() | files.keys() if known.get(name) != files.get(name))
    return Hashed(folder, metadata, files, tuple(differing))


def write(hashed: Hashed) -> None:
    """Put the digest into the metadata; other keys stay as they are.

    What told of the earlier content goes: how it was built, and a signature. So the next build makes the artifact anew.
    """
    for stale in (note_of(hashed.folder), hashed.folder / SIGNATURE):
        with disk_errors(stale):
            stale.unlink(missing_ok=True)
    content = json.dumps(with_digest(hashed.metadata, hashed.files), indent=2, ensure_ascii=False) + "\n"
    write_atomically(hashed.folder / METADATA, content.encode())
