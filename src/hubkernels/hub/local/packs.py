"""Objects in packs, as `git gc` makes them: the size of one from its first bytes, its content in pieces.

One that is stored as a difference from another is put together whole; the attribute that `repository.lay_out` writes
keeps git from making such of files.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import BinaryIO

from dulwich.errors import ApplyDeltaError, ChecksumMismatch, ObjectFormatException
from dulwich.pack import UnresolvedDeltas, apply_delta

_KINDS = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_BY_DISTANCE = 6
_NAME_BYTES = 20
_PIECE = 1 << 20

NOT_A_PACK = (
    AssertionError,
    LookupError,
    OverflowError,
    ValueError,
    struct.error,
    zlib.error,
    ApplyDeltaError,
    ChecksumMismatch,
    ObjectFormatException,
    UnresolvedDeltas,
)
"""What dulwich raises for a pack that is damaged."""


def read_packed(file: BinaryIO, offset: int, read: Callable[[str], Iterator[bytes]]) -> Iterator[bytes]:
    """The header of an object, as of one in a file of its own, then its content in pieces.

    read: gives another object of the repository in that form.
    """
    file.seek(offset)
    first = file.read(1)[0]
    number, size = first >> 4 & 7, first & 15 | (_number(file) << 4 if first & 128 else 0)
    if number in _KINDS:
        yield b"%s %d" % (_KINDS[number], size)
        yield from inflate(file)
        return
    base = _before(offset, _distance(file)) if number == _BY_DISTANCE else file.read(_NAME_BYTES).hex()
    difference = b"".join(inflate(file))
    pieces = read_packed(file, base, read) if isinstance(base, int) else read(base)
    yield b"%s %d" % (next(pieces).split()[0], _size_after(difference))
    yield from apply_delta(b"".join(pieces), difference)


def _before(offset: int, distance: int) -> int:
    if not 0 < distance < offset:
        raise ValueError(f"an object is {distance} bytes after the one that it differs from")
    return offset - distance


def _number(file: BinaryIO) -> int:
    """Seven bits a byte, the lowest first."""
    found, shift, more = 0, 0, True
    while more:
        byte = file.read(1)[0]
        found |= (byte & 127) << shift
        shift, more = shift + 7, byte > 127  # noqa: PLR2004 - the eighth bit
    return found


def _distance(file: BinaryIO) -> int:
    """How far before an object the one is that it differs from: seven bits a byte, the highest first, each plus one."""
    byte = file.read(1)[0]
    found = byte & 127
    while byte > 127:  # noqa: PLR2004 - the eighth bit
        byte = file.read(1)[0]
        found = (found + 1) << 7 | byte & 127
    return found


def _size_after(difference: bytes) -> int:
    """A difference begins with the sizes of what it is from and of what it makes."""
    file = BytesIO(difference[:_NAME_BYTES])
    _number(file)
    return _number(file)


def inflate(file: BinaryIO) -> Iterator[bytes]:
    """A compressed text, from where a file is, in pieces; the first one has the whole of an object's header."""
    inflater = zlib.decompressobj()
    most = 4096
    while not inflater.eof:
        data = inflater.unconsumed_tail or file.read(most)
        if not data:
            raise ValueError(f"{file.name} is cut off")
        piece = inflater.decompress(data, most)
        if piece:
            yield piece
        most = _PIECE
