"""Reading a pack of git's, from a server that need not mean well: every object by the hash of its own bytes.

What a pack says it holds decides nothing: an object is found by the id that its content has. Sizes are bounded before
anything is inflated, so that no pack can ask for more memory than `Bounds` allow.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_MAGIC, _VERSIONS = b"PACK", {2, 3}
_HEADER, _HASH = 12, 20
_KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS_DELTA, _REF_DELTA = 6, 7
_SIZE_BITS = 63
_COPY = 0x80
_COPY_ALL = 0x10000  # what a copy of size 0 means


class PackError(ValueError):
    """The bytes are no whole and sound pack."""


@dataclass(frozen=True)
class Bounds:
    """What a pack may unfold to: so many objects, bytes of one of them, and bytes of all, deltas included."""

    objects: int = 50_000
    one: int = 16 << 20
    all: int = 128 << 20


class Object(NamedTuple):
    kind: str
    content: bytes

    @property
    def oid(self) -> str:
        return object_id(self.kind, self.content)


def object_id(kind: str, content: bytes) -> str:
    """The id that git gives to a content."""
    digest = hashlib.sha1(f"{kind} {len(content)}\0".encode(), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


class _Delta(NamedTuple):
    """base: where it begins in the pack, or its id."""

    base: int | str
    content: bytes


def read_pack(pack: bytes, bounds: Bounds | None = None) -> dict[str, Object]:
    """The objects of a pack, by id. Raises PackError."""
    limits = bounds or Bounds()
    if len(pack) < _HEADER + _HASH or not pack.startswith(_MAGIC):
        raise PackError("this is no pack")
    body, trailer = pack[:-_HASH], pack[-_HASH:]
    if hashlib.sha1(body, usedforsecurity=False).digest() != trailer:
        raise PackError("the pack does not have the checksum at its end: it is cut off or was changed")
    version, count = int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big")
    if version not in _VERSIONS:
        raise PackError(f"a pack of version {version}")
    if count > limits.objects:
        raise PackError(f"the pack has {count} objects, more than the {limits.objects} that a kernel may have")
    return _Reader(body, count, limits).read()


class _Reader:
    def __init__(self, body: bytes, count: int, limits: Bounds) -> None:
        self.body, self.count, self.limits = body, count, limits
        self.left = limits.all
        self.at: dict[int, Object] = {}
        self.by_id: dict[str, Object] = {}

    def read(self) -> dict[str, Object]:
        deltas = {}
        place = _HEADER
        for _ in range(self.count):
            start = place
            found, place = self._entry(start)
            if isinstance(found, Object):
                self._keep(start, found)
            else:
                deltas[start] = found
        if place != len(self.body):
            raise PackError(f"{len(self.body) - place} bytes stand after the last object")
        self._resolve(deltas)
        return self.by_id

    def _keep(self, start: int, found: Object) -> None:
        self.at[start] = found
        self.by_id[found.oid] = found

    def _resolve(self, deltas: dict[int, _Delta]) -> None:
        """Each as soon as its base is known: a base by id may stand behind."""
        waiting: dict[int | str, list[int]] = {}
        ready = []
        for start, delta in deltas.items():
            if self._base(delta.base):
                ready.append(start)
            else:
                waiting.setdefault(delta.base, []).append(start)
        while ready:
            start = ready.pop()
            base = self._base(deltas[start].base)
            if base is None:
                raise PackError("a delta without its base")
            made = Object(base.kind, self._apply(base.content, deltas[start].content))
            self._keep(start, made)
            ready += waiting.pop(start, []) + waiting.pop(made.oid, [])
        if waiting:
            raise PackError("deltas whose bases are not in the pack")

    def _base(self, where: int | str) -> Object | None:
        return self.at.get(where) if isinstance(where, int) else self.by_id.get(where)

    def _entry(self, start: int) -> tuple[Object | _Delta, int]:
        """The entry that begins there, and where the next one does."""
        kind, size, place = self._head(start)
        base: int | str = ""
        if kind == _OFS_DELTA:
            distance, place = self._distance(place)
            base = start - distance
            if not _HEADER <= base < start:
                raise PackError("a delta against nothing")
        elif kind == _REF_DELTA:
            base, place = self.body[place : place + _HASH].hex(), place + _HASH
        elif kind not in _KINDS:
            raise PackError(f"an object of no kind: {kind}")
        content, place = self._inflate(place, self._allowed(size))
        return (_Delta(base, content) if base else Object(_KINDS[kind], content)), place

    def _byte(self, place: int) -> int:
        if place >= len(self.body):
            raise PackError("the pack ends within an object")
        return self.body[place]

    def _head(self, place: int) -> tuple[int, int, int]:
        """Kind and size of an entry, and where it goes on."""
        byte = self._byte(place)
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            place += 1
            byte = self._byte(place)
            size |= (byte & 0x7F) << shift
            shift += 7
            if shift > _SIZE_BITS:
                raise PackError("an object's size is no number")
        return kind, size, place + 1

    def _distance(self, place: int) -> tuple[int, int]:
        """How far before a delta its base begins, and where the delta goes on."""
        byte = self._byte(place)
        found = byte & 0x7F
        while byte & 0x80:
            place += 1
            byte = self._byte(place)
            found = (found + 1) << 7 | byte & 0x7F
            if found >> _SIZE_BITS:
                raise PackError("a delta's distance is no number")
        return found, place + 1

    def _allowed(self, size: int) -> int:
        """A size, taken off what is left for the whole pack."""
        if size > self.limits.one:
            raise PackError(f"an object of {size} bytes: more than the {self.limits.one} that one may have")
        self.left -= size
        if self.left < 0:
            raise PackError(f"the pack unfolds to more than {self.limits.all} bytes")
        return size

    def _inflate(self, place: int, size: int) -> tuple[bytes, int]:
        """So many bytes, and where the compressed ones end. Never makes more than one byte beyond."""
        inflater = zlib.decompressobj()
        window = memoryview(self.body)[place : place + size + (size >> 3) + 1024]  # what deflate adds at worst
        try:
            content = inflater.decompress(window, size + 1)
            if not inflater.eof:
                content += inflater.decompress(inflater.unconsumed_tail, 1)
        except zlib.error as error:
            raise PackError(f"an object that cannot be inflated: {error}") from error
        if len(content) != size or not inflater.eof:
            raise PackError("an object is not as long as its entry says")
        return content, place + len(window) - len(inflater.unused_data)

    def _apply(self, base: bytes, delta: bytes) -> bytes:
        """The content that a delta makes of its base."""
        source, place = _number(delta, 0)
        target, place = _number(delta, place)
        if source != len(base):
            raise PackError("a delta for a base of another size")
        made = bytearray()
        self._allowed(target)
        for piece in _pieces(base, delta, place):
            made += piece
            if len(made) > target:
                break
        if len(made) != target:
            raise PackError("a delta makes more or less than it says")
        return bytes(made)


def _number(delta: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if place >= len(delta) or shift > _SIZE_BITS:
            raise PackError("a delta whose sizes are no numbers")
        byte = delta[place]
        found |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if not byte & 0x80:
            return found, place


def _pieces(base: bytes, delta: bytes, place: int) -> Iterator[bytes]:
    """What each step of a delta adds: a part of the base, or bytes of its own."""
    while place < len(delta):
        step, place = delta[place], place + 1
        if step & _COPY:
            start, place = _sparse(delta, place, step & 0x0F, 4)
            size, place = _sparse(delta, place, step >> 4 & 0x07, 3)
            size = size or _COPY_ALL
            if start + size > len(base):
                raise PackError("a delta copies from beyond its base")
            yield base[start : start + size]
        else:
            if not step or place + step > len(delta):
                raise PackError("a delta that ends within a step")
            yield delta[place : place + step]
            place += step


def _sparse(delta: bytes, place: int, present: int, width: int) -> tuple[int, int]:
    """A number of which only the bytes that are not zero are there."""
    found = 0
    for index in range(width):
        if present >> index & 1:
            if place >= len(delta):
                raise PackError("a delta that ends within a step")
            found |= delta[place] << 8 * index
            place += 1
    return found, place


def pack_objects(objects: Mapping[str, Object]) -> bytes:
    """Objects as one text from which `unpack_objects` finds them again: each as git hashes it."""
    return b"".join(b"%s %d\0%s" % (o.kind.encode(), len(o.content), o.content) for o in objects.values())


def unpack_objects(text: bytes) -> dict[str, Object]:
    """Objects by the ids that they have. Raises PackError."""
    found: dict[str, Object] = {}
    place = 0
    while place < len(text):
        head, _, _ = text[place : place + 40].partition(b"\0")
        kind, _, size = head.partition(b" ")
        if kind.decode("ascii", "replace") not in _KINDS.values() or not size.isdigit():
            raise PackError("no header of an object")
        start = place + len(head) + 1
        place = start + int(size)
        if place > len(text):
            raise PackError("an object is cut off")
        made = Object(kind.decode(), text[start:place])
        found[made.oid] = made
    return found
