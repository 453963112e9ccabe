"""Which devices a library holds code for: read from the containers that CUDA's compiler puts into it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

PTX = "+PTX"

_SECTION = ".nv_fatbin"
_MAGIC = (0xBA55ED50).to_bytes(4, "little")
_CONTAINER = struct.Struct("<4xHHQ")  # version, size of this header, size of the entries
_ENTRY = struct.Struct("<H2xIQ12xI8xQ")  # kind, size of this header, of the content; architecture; flags
_KINDS = {1: PTX, 2: ""}
_SUFFIXES = {0x100000: "a", 0x200000: "f"}
_TENS = 10


def read_archs(path: Path) -> frozenset[str]:
    """The devices in a library, as build.toml spells them: ``9.0a`` for code, ``12.0+PTX`` for PTX. None has none."""
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        section = elf.get_section_by_name(_SECTION)
        return frozenset(_archs(section.data())) if section else frozenset()


def _archs(content: bytes) -> Iterator[str]:
    place = content.find(_MAGIC)
    while place >= 0:
        _, header, size = _CONTAINER.unpack_from(content, place)
        end = place + header + size
        entry = place + header
        while entry < end:
            kind, skip, length, number, flags = _ENTRY.unpack_from(content, entry)
            if kind in _KINDS:
                suffix = next((letter for bit, letter in _SUFFIXES.items() if flags & bit), "")
                yield f"{number // _TENS}.{number % _TENS}{suffix}{_KINDS[kind]}"
            entry += skip + length
        place = content.find(_MAGIC, end)
