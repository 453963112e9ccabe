"""Git objects: read in pieces, and written so that all of a commit's are on the disk before anything names them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dulwich.object_format import DEFAULT_OBJECT_FORMAT
from dulwich.object_store import DiskObjectStore
from dulwich.objects import Commit, ObjectID, ShaFile, Tag
from dulwich.pack import Pack, PackData, PackFileDisappeared, PackInflater

from hubkernels.host.files import open_regular
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.durable import make_folders, move, scratch_file, sync_all
from hubkernels.hub.local.packs import NOT_A_PACK, inflate, read_packed

_LOG = logging.getLogger(__name__)

Pieces = Callable[[], Iterator[bytes]]

_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}  # of git's kinds of objects, in packs
_HEAD = re.compile(rb"(commit|tree|blob|tag) [0-9]+")
_PIECE = 1 << 20
_LOOKS = 2  # `git gc` moves an object into a pack, or out of one, between a look here and one there
DAMAGED_PACK = "is damaged, or its index"
_CLOSES_WITHIN_S = 1.0  # a look at indexes takes milliseconds
_LEVEL = 1  # a library of 5.9 MB: to 33% in 50 ms; level 6, to 30%, takes 150 ms


class MissingObjectError(KeyError):
    """No such object. Of one that a ref or another object names, `refusal` is what to say of that."""

    def __init__(self, oid: str, store: ObjectStore) -> None:
        super().__init__(oid)
        self.oid = oid
        self.store = store

    def refusal(self) -> Refusal:
        if not self.store.folder.is_dir():
            return Refusal(404, "the repository was deleted", "RepoNotFound")
        return DamagedObjectError(self.oid, self.store, "is missing")


class DamagedFileError(Refusal):
    """A file of a repository that cannot be read, which who asks cannot help. name: where its path says too little."""

    def __init__(self, folder: Path, path: Path, what: str, why: object = "", *, name: str = "") -> None:
        _LOG.error("%s %s%s", path, what, f": {why}" if why else "")
        file = name or path.relative_to(folder).as_posix()
        repo = f"{folder.parent.name}/{folder.name.removesuffix('.git')}"
        hint = "bring it back from a copy, or delete the repository and `kernel-builder hub pull` it again"
        super().__init__(503, f"{file} of {repo} {what}: who runs the Hub may {hint}")


class DamagedObjectError(DamagedFileError):
    """An object that cannot be read."""

    def __init__(self, oid: str, store: ObjectStore, what: str, why: object = "") -> None:
        path = store.path(oid)
        name = "" if path.exists() else f"the object {oid}"
        super().__init__(store.folder.parent, path, what, why, name=name)


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
        self._looks_up = threading.Lock()

    def close(self) -> None:
        """Who looks something up and hangs is not waited for: what he has open goes with the process."""
        if not self._looks_up.acquire(timeout=_CLOSES_WITHIN_S):
            _LOG.error("%s is still read by a request that does not end: it was left behind", self.folder)
            return
        try:
            self._packed.close()
        finally:
            self._looks_up.release()

    def path(self, oid: str) -> Path:
        return self.folder / oid[:2] / oid[2:]

    def __getitem__(self, oid: str) -> ShaFile:
        """A commit, a tree or a tag. Raises KeyError where it is missing, DamagedObjectError where it is none."""
        kind, *pieces = self._read(oid)
        try:
            return _parsed(kind, b"".join(pieces))
        except NOT_A_PACK as error:
            raise DamagedObjectError(oid, self, "is damaged", error) from error

    def blob(self, oid: str) -> Blob:
        return Blob(oid, int(next(self._read(oid)).split()[1]), self)

    def stream(self, oid: str) -> Iterator[bytes]:
        """The content of an object, in pieces. Raises KeyError."""
        pieces = self._read(oid)
        next(pieces)
        yield from pieces

    def kind(self, oid: str) -> str:
        """What an object is. Raises KeyError. Of a large one no more than its header is read."""
        with contextlib.closing(self._read(oid)) as pieces:
            return next(pieces).split()[0].decode()

    def _read(self, oid: str) -> Generator[bytes, None, None]:
        """The header of an object, then its content in pieces."""
        file, offset = self._open(oid)
        try:
            with file:
                yield from _loose(file) if offset is None else read_packed(file, offset, self._read)
        except MissingObjectError:
            raise
        except NOT_A_PACK as error:
            raise DamagedObjectError(oid, self, "is damaged", error) from error

    def _open(self, oid: str) -> tuple[BinaryIO, int | None]:
        """The file that has an object, and where in a pack it begins. Raises KeyError."""
        for _ in range(_LOOKS):
            with contextlib.suppress(FileNotFoundError):
                return self.open_loose(oid), None
            with contextlib.suppress(FileNotFoundError, PackFileDisappeared):
                if found := self._open_packed(ObjectID(oid.encode())):
                    return found
        raise MissingObjectError(oid, self)

    def open_loose(self, oid: str) -> BinaryIO:
        """The file of an object. Raises FileNotFoundError where it has none, DamagedObjectError where that is none."""
        path = self.path(oid)
        try:
            return open_regular(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            if path.is_file():  # the disk's failure
                raise
            raise DamagedObjectError(oid, self, "is no plain file") from error

    def _open_packed(self, oid: ObjectID) -> tuple[BinaryIO, int] | None:
        """A file of its own for each reader: the lock is for the indexes alone, not held while somebody reads."""
        with self._looks_up:
            for pack in self._packed.packs:
                with contextlib.suppress(KeyError):
                    return self._open_in(pack, oid)
        return None

    def _open_in(self, pack: Pack, oid: ObjectID) -> tuple[BinaryIO, int]:
        """Raises KeyError where it has no such object, DamagedFileError where that cannot be told."""
        try:
            offset = pack.index.object_offset(oid)
            return Path(pack.data.path).open("rb"), offset
        except KeyError:
            raise
        except NOT_A_PACK as error:
            path = Path(f"{pack._basename}.pack")  # noqa: SLF001 - its public name is read from the index
            raise DamagedFileError(self.folder.parent, path, DAMAGED_PACK, error) from error

    def write_out(self) -> tuple[str, ...]:
        """Make one file of each object in packs, by what it hashes to: the index of a pack is not believed.

        Tells what is against it; nothing was written then.
        """
        folder = self.folder / "pack"
        with contextlib.closing(Staging(self)) as staging:
            packs = sorted(folder.glob("*.pack"))
            damaged = tuple(f"{pack.name} is damaged: {why}" for pack in packs if (why := _add_packed(pack, staging)))
            if not damaged:
                staging.publish()
        if not damaged:
            self.close()
            for path in folder.iterdir():
                path.unlink()
        return damaged


def _loose(file: BinaryIO) -> Iterator[bytes]:
    """As `read_packed`, of an object in a file of its own. Raises one of NOT_A_PACK."""
    pieces = inflate(file)
    head, _, first = next(pieces, b"").partition(b"\0")
    if not _HEAD.fullmatch(head):
        raise ValueError("it does not begin as an object")
    yield head
    yield first
    yield from pieces


def _parsed(kind: bytes, text: bytes) -> ShaFile:
    """Raises one of NOT_A_PACK for what has not all that is read of it: dulwich itself would wait for who reads it."""
    found = ShaFile.from_raw_string(_NUMBERS[kind.split()[0]], text)
    if isinstance(found, Commit) and None in {found.tree, found.author, found.commit_time}:
        raise ValueError("it is no whole commit")
    if isinstance(found, Tag) and None in found.object:
        raise ValueError("it is no whole tag")
    return found


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
            try:
                os.utime(target)  # `git gc` deletes what is old and named by nothing: it is named now
            except (FileNotFoundError, PermissionError):
                folders |= {*make_folders(target.parent, self.store.folder), target.parent}
                path.chmod(0o444)
                move(path, target)
        sync_all(folders)


def _add_packed(pack: Path, staging: Staging) -> str | None:
    """All objects of a pack; tells why it cannot be read."""
    try:
        with PackData.from_path(pack, object_format=DEFAULT_OBJECT_FORMAT) as data:
            return _add_each(data, staging)
    except NOT_A_PACK as error:
        return str(error) or type(error).__name__


def _add_each(data: PackData, staging: Staging) -> str | None:
    """Its error ends in here: with one on its way, dulwich cannot close the pack."""
    try:
        for found in PackInflater.for_pack_data(data):
            staging.add_object(found)
    except NOT_A_PACK as error:
        return str(error) or type(error).__name__
    return None
