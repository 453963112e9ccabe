"""The libraries of a program that are part of it: by its own list, without starting the loader."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<32xQ14xHH")  # offset, entry size and number of the program headers
_SEGMENT = struct.Struct("<I4xQQ8xQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29
_LONGEST = 4096
_NAMES = (_NEEDED, _RPATH, _RUNPATH)
_USUAL = (*(f"{folder}/{os.uname().machine}-linux-gnu" for folder in ("/lib", "/usr/lib")), "/usr/lib64", "/usr/lib")


def needed_libraries(program: str, wanted: re.Pattern[str]) -> list[str]:
    """Paths of those that a program needs and whose names match, and that these need, in one order."""
    found: dict[str, None] = {}
    left = [program]
    while left:
        path = os.path.realpath(left.pop())
        needed, folders = _read(Path(path))
        for name in needed:
            if wanted.match(name) and (library := _find(name, path, folders)) and library not in found:
                found[library] = None
                left.append(library)
    return list(found)


def _find(name: str, path: str, folders: tuple[str, ...]) -> str | None:
    origin = Path(path).parent
    own = [Path(folder.replace("${ORIGIN}", str(origin)).replace("$ORIGIN", str(origin))) for folder in folders]
    for folder in (*own, origin.parent / "lib", *map(Path, _USUAL)):
        if (folder / name).is_file():
            return os.path.realpath(folder / name)
    return None


def _read(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the libraries that a file needs, and the folders that it names for them; nothing of other files."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # noqa: PLR2004 - 64 bits, little end first
                return (), ()
            start, size, count = _HEADER.unpack(head[: _HEADER.size])
            file.seek(start)
            table = file.read(size * count)
            segments = [_SEGMENT.unpack_from(table, size * index) for index in range(count)]
            dynamic = next(((offset, length) for kind, offset, _, length in segments if kind == _DYNAMIC), (0, 0))
            file.seek(dynamic[0])
            entries = list(_entries(file.read(dynamic[1])))
            values = dict(entries)
            address = values.get(_STRINGS, 0)
            loaded = (
                (at, base) for kind, at, base, size in segments if kind == _LOAD and base <= address < base + size
            )
            strings = next((at + address - base for at, base in loaded), 0)
            text = [(tag, _string(file, strings + value)) for tag, value in entries if tag in _NAMES]
    except (OSError, ValueError, OverflowError, struct.error):
        return (), ()
    return (
        tuple(name for tag, name in text if tag == _NEEDED),
        tuple(folder for tag, names in text if tag != _NEEDED for folder in names.split(":") if folder),
    )


def _entries(table: bytes) -> Iterator[tuple[int, int]]:
    return _ENTRY.iter_unpack(table[: len(table) - len(table) % _ENTRY.size])


def _string(file: BinaryIO, offset: int) -> str:
    """One of the strings, of which libLLVM has megabytes."""
    file.seek(offset)
    return os.fsdecode(file.read(_LONGEST).partition(b"\0")[0])
