"""What a package offers to a Hub: its artifacts, as they will stand there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from hubkernels import __version__
from hubkernels.errors import InputError, Problem
from hubkernels.host.files import json_object, read_errors, read_json_object, read_regular
from hubkernels.hub.sealed import Sealed
from hubkernels.model.artifact import note_of
from hubkernels.model.digest import METADATA, in_hex

BUILD = "build"
"""The folder of a repository whose folders are the variants."""


@dataclass(frozen=True)
class Content:
    """The bytes of one file: in memory, or in a file that is read when they are sent, and must not differ by then."""

    source: bytes | Sealed

    @property
    def place(self) -> bytes | Path:
        """The bytes, or where they are; for who sends what is held still."""
        return self.source if isinstance(self.source, bytes) else self.source.path

    @property
    def bytes(self) -> bytes:
        return self.source if isinstance(self.source, bytes) else self.source.read()

    def held_still(self, place: Path) -> Content:
        return self if isinstance(self.source, bytes) else Content(self.source.copy(place))

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest() if isinstance(self.source, bytes) else self.source.sha256

    @cached_property
    def blob(self) -> str:
        """The id that git gives these bytes."""
        found = self.bytes
        return hashlib.sha1(b"blob %d\0" % len(found) + found, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Offered:
    """One artifact. own: its metadata.json. note: how it was built. files: by their path in the repository."""

    tag: str
    folder: Path
    own: bytes
    note: Mapping[str, Any]

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        return json_object(self.own)

    @property
    def place(self) -> str:
        return f"{BUILD}/{self.tag}"

    @property
    def traced(self) -> bool:
        """Whether it is known of which commit it was built: it is not where there was no git."""
        return isinstance(self.note.get("git"), dict)

    @property
    def dirty(self) -> bool:
        git = self.note.get("git")
        return isinstance(git, dict) and git.get("dirty") is True

    @cached_property
    def files(self) -> Mapping[str, Content]:
        """The files that the digest names, and the metadata with their provenance."""
        digest: Mapping[str, str] = self.metadata["digest"]["files"]
        found = {name: Content(Sealed(self.folder / name, in_hex(entry))) for name, entry in digest.items()}
        found[METADATA] = Content(self.stamped)
        return {f"{self.place}/{name}": content for name, content in found.items()}

    def read(self, name: str) -> bytes:
        """One file, as the digest names it."""
        return self.files[f"{self.place}/{name}"].bytes

    @cached_property
    def stamped(self) -> bytes:
        """metadata.json with its provenance: bytes of the artifact itself know no commit, so that they can be equal."""
        value = {**self.metadata, "provenance": provenance(self.note)}
        return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def provenance(note: Mapping[str, Any]) -> dict[str, Any]:
    """In the client's form. note: what the build wrote beside the artifact."""
    git = note.get("git")
    kernel = {"commit": git["commit"], "dirty": git["dirty"]} if isinstance(git, dict) else None
    return {"kernel-builder": {"version": __version__}, **({"kernel": kernel} if kernel else {})}


def read_offer(found: Mapping[str, Path]) -> tuple[Offered, ...]:
    """The artifacts of one package, by tag. Raises InputError for metadata that cannot be sent as they are."""
    return tuple(_read(tag, folder) for tag, folder in found.items())


def _read(tag: str, folder: Path) -> Offered:
    with read_errors(folder / METADATA):
        found = Offered(tag, folder, read_regular(folder / METADATA), read_json_object(note_of(folder)))
    digest = found.metadata.get("digest")
    files = digest.get("files") if isinstance(digest, dict) else None
    if not isinstance(files, dict):
        raise InputError(Problem(f"{tag} has no digest of its files", str(folder / METADATA), "`kernel-builder hash`"))
    hidden = [name for name in files if _is_hidden(name)]
    if hidden:
        what = f"{tag} has hidden files, which are never published: {', '.join(hidden)}"
        raise InputError(Problem(what, str(folder), "remove them and build again"))
    odd = [name for name in files if "\\" in name]
    if odd:
        what = f"{tag} has files that no Hub takes, with a backslash in their names: {', '.join(odd)}"
        raise InputError(Problem(what, str(folder), "give them other names and build again"))
    return found


@contextmanager
def held_still(offered: Mapping[str, Content]) -> Iterator[dict[str, Content]]:
    """The same bytes, those of files as copies of our own meanwhile: who sends them reads each several times.

    Raises CheckFailedError for a file that is not what was offered.
    """
    with TemporaryDirectory(prefix="hubkernels-") as folder:
        yield {path: each.held_still(Path(folder, str(number))) for number, (path, each) in enumerate(offered.items())}


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in PurePosixPath(name).parts)
