"""Look a name up in a library by its GNU hash table, without reading its other names: torch has some 100,000."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size


@dataclass(frozen=True)
class HashedNames:
    """The exported names of one 64-bit little-endian library. needed: its DT_NEEDED.

    table, symbols, strings: where its sections .gnu.hash, .dynsym and .dynstr begin.
    """

    content: mmap.mmap
    needed: tuple[str, ...]
    table: int
    symbols: int
    strings: int

    def __contains__(self, name: str) -> bool:
        text, wanted = name.encode() + b"\0", _gnu_hash(name)
        buckets, first, filters, _ = struct.unpack_from("<4I", self.content, self.table)
        if not buckets:
            return False
        at = self.table + 16 + 8 * filters
        index = self._number(at, wanted % buckets)
        chains = at + 4 * buckets
        while index >= first:
            found = self._number(chains, index - first)
            if found | 1 == wanted | 1 and self._is_named(index, text):
                return True
            if found & 1:  # the last one of its bucket
                return False
            index += 1
        return False

    def _number(self, start: int, index: int) -> int:
        return int(struct.unpack_from("<I", self.content, start + 4 * index)[0])

    def _is_named(self, index: int, text: bytes) -> bool:
        name, _, _, section, _, _ = _SYMBOL.unpack_from(self.content, self.symbols + _SYMBOL.size * index)
        start = self.strings + name
        return bool(section) and self.content[start : start + len(text)] == text


def hashed_names(path: Path) -> HashedNames | None:
    """The names of a library; None where it has no such table. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        tags = elf.get_section_by_name(".dynamic").iter_tags()
        needed = tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED")
        symbols, strings = (int(elf.get_section_by_name(name)["sh_offset"]) for name in (".dynsym", ".dynstr"))
        table = _hash_offset(elf)
        if table is None:
            return None
        return HashedNames(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), needed, table, symbols, strings)


def _hash_offset(elf: Any) -> int | None:  # noqa: ANN401 - elftools has no types
    """By the section's header alone: elftools would read the whole table, for torch a quarter of a second."""
    headers = (elf._get_section_header(number) for number in range(elf.num_sections()))  # noqa: SLF001
    return next((int(header["sh_offset"]) for header in headers if header["sh_type"] == "SHT_GNU_HASH"), None)


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
