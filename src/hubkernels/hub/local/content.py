"""The content of large files, by SHA-256, where git-lfs keeps it in a repository.

Each repository has its own: who knows the hash of a file in a private one could else commit a pointer to it elsewhere,
and read it there.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hubkernels.host.files import open_regular, read_regular
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.durable import make_folders, move_into_place, scratch_file, sync_all, write_durably

_OID = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_POINTER_MOST = 512
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n")


@dataclass(frozen=True)
class Pointer:
    """What stands in git for a large file."""

    oid: str
    size: int

    def text(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.oid}\nsize {self.size}\n".encode()


def read_pointer(text: bytes) -> Pointer | None:
    match = _POINTER.fullmatch(text)
    return Pointer(match[1].decode(), int(match[2])) if match else None


def may_be_pointer(size: int) -> bool:
    return size < _POINTER_MOST


def check_oid(oid: object) -> str:
    if not isinstance(oid, str) or not _OID.fullmatch(oid):
        raise Refusal(422, f"{str(oid)[:80]!r} is no SHA-256 in lower-case hex")
    return oid


class Content:
    """The large files of one repository."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch

    def path(self, oid: str) -> Path:
        return self.folder / oid[:2] / oid[2:4] / oid

    def size(self, oid: str) -> int | None:
        """None for what is not here."""
        try:
            return self.path(oid).stat().st_size
        except FileNotFoundError:
            return None

    def has(self, pointer: Pointer) -> bool:
        return self.size(pointer.oid) == pointer.size

    def left_out(self) -> frozenset[str]:
        """What `hub pull` did not bring, for no lock named it: that alone may be missing."""
        try:
            lines = read_regular(self._left_out).decode("ascii", "replace").split("\n")
        except OSError:  # what cannot be read excuses nothing
            return frozenset()
        return frozenset(filter(_OID.fullmatch, lines))

    def leave_out(self, oids: Iterable[str]) -> None:
        """These may be missing, too. What is here by now is none of them any more."""
        before = self.left_out()
        found = {oid for oid in {*before, *oids} if self.size(oid) is None}
        if found != before:
            sync_all(make_folders(self._left_out.parent, self.folder.parents[1]))
            write_durably(self._left_out, "".join(f"{oid}\n" for oid in sorted(found)).encode(), self.scratch)

    @property
    def _left_out(self) -> Path:
        return self.folder.with_name("left-out")

    def pieces(self, oid: str, start: int, length: int) -> Iterator[bytes]:
        with open_regular(self.path(oid)) as file:
            file.seek(start)
            while length > 0 and (piece := file.read(min(_PIECE, length))):
                length -= len(piece)
                yield piece


class Receiver:
    """A file that arrives in pieces: hashed on the way, kept when it is what was announced, else deleted."""

    def __init__(self, scratch: Path, size: int) -> None:
        self._file, self.path = scratch_file(scratch)
        self._digest = hashlib.sha256()
        self._expected = size
        self.size = 0

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def write(self, piece: bytes) -> None:
        """Raises Refusal for more bytes than were announced."""
        self.size += len(piece)
        if self.size > self._expected:
            raise Refusal(413, f"{self._expected} bytes were announced and more were sent: nothing was kept")
        self._digest.update(piece)
        self._file.write(piece)

    def copy(self, file: BinaryIO) -> None:
        while piece := file.read(_PIECE):
            self.write(piece)

    def finish(self) -> str:
        """Bring it to the disk; tells its SHA-256. Raises Refusal for fewer bytes than were announced."""
        if self.size != self._expected:
            raise Refusal(400, f"{self._expected} bytes were announced, {self.size} were sent: nothing was kept")
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._digest.hexdigest()

    def keep(self, content: Content, oid: str) -> None:
        """Let readers see it. Raises Refusal where its bytes are not those of the hash."""
        found = self.finish()
        if found != oid:
            raise Refusal(400, f"what was sent has the SHA-256 {found}, not {oid}: nothing was kept")
        self.path.chmod(0o444)
        try:
            move_into_place(self.path, content.path(oid), content.folder.parents[1])
        except FileNotFoundError as error:
            raise Refusal(404, "the repository was deleted", "RepoNotFound") from error
