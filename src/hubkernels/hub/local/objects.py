"""Git objects: read in pieces, and written so that all of a commit's are on the disk before anything names them."""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dulwich.object_store import DiskObjectStore
from dulwich.objects import ObjectID, RawObjectID, ShaFile
from dulwich.pack import Pack

from hubkernels.hub.local.durable import make_folders, scratch_file, sync_all

Pieces = Callable[[], Iterator[bytes]]

_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}  # of git's kinds of objects, in packs
_BY_OFFSET, _BY_ID = 6, 7  # kept as a difference from another entry
_PIECE = 1 << 20
_LEVEL = 1  # a library of 5.9 MB: to 33% in 50 ms; level 6, to 30%, takes 150 ms


@dataclass(frozen=True)
class Blob:
    """A file's content in a repository."""

    oid: str
    size: int
    store: ObjectStore

    def pieces(self, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The content from an offset on, in pieces: never the whole in memory."""
        left = self.size - start if length is None else length
        yield from _cut(self.store.stream(self.oid), start, left)

    def content(self) -> bytes:
        return b"".join(self.pieces())


class ObjectStore:
    """The objects of one repository: those that we write, one a file, and what `git gc` made of them."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch
        self._packed = DiskObjectStore(str(folder))
        self._reads_packed = threading.Lock()

    def close(self) -> None:
        with self._reads_packed:
            self._packed.close()

    def path(self, oid: str) -> Path:
        return self.folder / oid[:2] / oid[2:]

    def __getitem__(self, oid: str) -> ShaFile:
        """A commit, a tree or a tag. Raises KeyError."""
        kind, *pieces = self._read(oid)
        return ShaFile.from_raw_string(_NUMBERS[kind.split()[0]], b"".join(pieces))

    def kind(self, oid: str) -> str:
        """What an object is, of which no more than its beginning is read. Raises KeyError."""
        try:
            file = self.path(oid).open("rb")
        except FileNotFoundError:
            with self._reads_packed:
                return self._packed_kind(ObjectID(oid.encode()))
        with file:
            return next(inflated(file)).split()[0].decode()

    def _packed_kind(self, oid: ObjectID) -> str:
        for pack in self._packed.packs:
            if oid in pack:
                return _kind_at(pack, pack.index.object_offset(oid))
        return self._packed[oid].type_name.decode()  # of a folder that this one borrows from

    def blob(self, oid: str) -> Blob:
        return Blob(oid, int(next(self._read(oid)).split()[1]), self)

    def stream(self, oid: str) -> Iterator[bytes]:
        """The content of an object, in pieces. Raises KeyError."""
        pieces = self._read(oid)
        next(pieces)
        yield from pieces

    def _read(self, oid: str) -> Iterator[bytes]:
        """The header of an object, then its content in pieces."""
        try:
            file = self.path(oid).open("rb")
        except FileNotFoundError:
            with self._reads_packed:  # it keeps its place in a pack's file
                found = self._packed[ObjectID(oid.encode())]
            content = found.as_raw_string()
            yield b"%s %d" % (found.type_name, len(content))
            yield content
            return
        with file:
            pieces = inflated(file)
            head, _, first = next(pieces).partition(b"\0")
            yield head
            yield first
            yield from pieces


def _kind_at(pack: Pack, offset: int) -> str:
    """By the first bits of an entry; one that is kept as a difference is of the kind of what it differs from."""
    with Path(pack.data.path).open("rb") as file:
        while True:
            file.seek(offset)
            first = byte = file.read(1)[0]
            while byte & 0x80:
                byte = file.read(1)[0]
            number = first >> 4 & 7
            if number == _BY_ID:
                offset = pack.index.object_offset(RawObjectID(file.read(20)))
            elif number == _BY_OFFSET:
                offset -= _distance(file)
            else:
                return {of: kind.decode() for kind, of in _NUMBERS.items()}[number]


def _distance(file: BinaryIO) -> int:
    byte = file.read(1)[0]
    found = byte & 0x7F
    while byte & 0x80:
        byte = file.read(1)[0]
        found = ((found + 1) << 7) | (byte & 0x7F)
    return found


def inflated(file: BinaryIO) -> Iterator[bytes]:
    """The text of a compressed file, in pieces; the first one has the whole of an object's header."""
    inflater = zlib.decompressobj()
    most = 4096
    while not inflater.eof:
        data = inflater.unconsumed_tail or file.read(most)
        if not data:
            raise OSError(f"{file.name} is cut off")
        piece = inflater.decompress(data, most)
        if piece:
            yield piece
        most = _PIECE


def _cut(pieces: Iterable[bytes], start: int, length: int) -> Iterator[bytes]:
    """Some of a text that comes in pieces."""
    for piece in pieces:
        if length <= 0:
            return
        if start >= len(piece):
            start -= len(piece)
            continue
        part = piece[start : start + length]
        start, length = 0, length - len(part)
        yield part


class Staging:
    """New objects that nobody sees yet: written, brought to the disk, and last renamed to where readers look.

    What is left when it is closed is deleted: a commit that was refused leaves nothing behind.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._new: dict[str, Path] = {}
        self._unsynced: set[str] = set()

    def close(self) -> None:
        for path in self._new.values():
            path.unlink(missing_ok=True)

    def add(self, kind: str, content: bytes) -> str:
        return self._write(kind, len(content), lambda: iter((content,)))

    def add_file(self, file: BinaryIO) -> str:
        """A blob with the content of an open file, which is read twice: an object begins with its size."""
        size = file.seek(0, os.SEEK_END)

        def pieces() -> Iterator[bytes]:
            file.seek(0)
            while piece := file.read(_PIECE):
                yield piece

        return self._write("blob", size, pieces)

    def add_object(self, new: ShaFile) -> str:
        return self.add(new.type_name.decode(), new.as_raw_string())

    def _write(self, kind: str, size: int, pieces: Pieces) -> str:
        header = f"{kind} {size}\0".encode()
        digest = hashlib.sha1(header, usedforsecurity=False)
        for piece in pieces():
            digest.update(piece)
        oid = digest.hexdigest()
        if oid not in self._new:
            file, path = scratch_file(self.store.scratch)
            self._new[oid] = path
            self._unsynced.add(oid)
            deflater = zlib.compressobj(_LEVEL)
            with file:
                file.write(deflater.compress(header))
                for piece in pieces():
                    file.write(deflater.compress(piece))
                file.write(deflater.flush())
        return oid

    def sync(self) -> None:
        """Bring what was added to the disk; before a lock is taken, for this is what takes long."""
        sync_all(self._new[oid] for oid in self._unsynced)
        self._unsynced.clear()

    def publish(self) -> None:
        """Give the objects their names: they are on the disk when this returns."""
        self.sync()
        folders = set()
        for oid, path in self._new.items():
            target = self.store.path(oid)
            if not target.exists():
                folders |= {*make_folders(target.parent, self.store.folder), target.parent}
                path.chmod(0o444)
                path.replace(target)
        sync_all(folders)
