"""Write a shared object that exports symbols and holds no code: enough to link against, the same bytes everywhere."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hubkernels.abi.exports import Export
from hubkernels.model.cpu import CPUS

_TYPES = {"o": 1, "f": 2, "t": 6}  # STT_OBJECT, STT_FUNC, STT_TLS
_GLOBAL = 1 << 4  # STB_GLOBAL in st_info
_HIDDEN_VERSION = 0x8000  # not the default one of its name: name@VERSION, not name@@VERSION
_FIRST_VERSION = 2  # 1 is the library itself
_PROGBITS, _STRTAB, _DYNAMIC, _NOBITS, _DYNSYM = 1, 3, 6, 8, 11
_VERDEF, _VERSYM = 0x6FFFFFFD, 0x6FFFFFFF
_DT_NULL, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 0, 5, 6, 10, 11, 14
_TEXT = 1  # number of the section that all symbols are said to be in


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    content: bytes = b""
    link: int = 0
    info: int = 0
    entry: int = 0


@dataclass
class _Strings:
    """A string table under construction: each string once."""

    content: bytearray = field(default_factory=lambda: bytearray(1))
    places: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        if text not in self.places:
            self.places[text] = len(self.content)
            self.content += text.encode() + b"\0"
        return self.places[text]


def shared_object(cpu: str, soname: str, symbols: Sequence[Export]) -> bytes:
    """A 64-bit little-endian ELF file for the linker. Of a name with several versions the last one is the default."""
    strings = _Strings()
    name = strings.add(soname)
    versions = {version: number for number, version in enumerate(_versions(symbols), start=_FIRST_VERSION)}
    default = {symbol.name: symbol.version for symbol in symbols}
    table, numbers = [bytes(24)], [0]
    for symbol in symbols:
        hidden = 0 if default[symbol.name] == symbol.version else _HIDDEN_VERSION
        numbers.append(versions[symbol.version] | hidden)
        table.append(struct.pack("<IBBHQQ", strings.add(symbol.name), _GLOBAL | _TYPES[symbol.kind], 0, _TEXT, 0, 0))
    definitions = _definitions(soname, versions, strings)
    text = bytes(strings.content)
    versioning = (
        _Section(".gnu.version", _VERSYM, struct.pack(f"<{len(numbers)}H", *numbers), link=3, entry=2),
        _Section(".gnu.version_d", _VERDEF, definitions, link=2, info=len(versions) + 1),
    )
    dynamic = ((_DT_SONAME, name), (_DT_STRTAB, 0), (_DT_SYMTAB, 0), (_DT_STRSZ, len(text)), (_DT_SYMENT, 24))
    return _file(
        CPUS[cpu].elf,
        (
            _Section("", 0),
            _Section(".text", _NOBITS),
            _Section(".dynstr", _STRTAB, text),
            _Section(".dynsym", _DYNSYM, b"".join(table), link=2, info=1, entry=24),
            *(versioning if symbols else ()),  # GNU ld refuses versions of nothing
            _Section(
                ".dynamic",
                _DYNAMIC,
                b"".join(struct.pack("<QQ", *entry) for entry in (*dynamic, (_DT_NULL, 0))),
                link=2,
                entry=16,
            ),
        ),
    )


def _versions(symbols: Iterable[Export]) -> Iterable[str]:
    return dict.fromkeys(symbol.version for symbol in symbols)


def _definitions(soname: str, versions: dict[str, int], strings: _Strings) -> bytes:
    """The version definitions, each with its name: the library itself (flag 1, VER_FLG_BASE), then its versions."""
    entries = [(soname, 1, 1), *((version, number, 0) for version, number in versions.items())]
    packed = b""
    for place, (text, number, flags) in enumerate(entries):
        following = 28 if place + 1 < len(entries) else 0
        packed += struct.pack("<HHHHIII", 1, flags, number, 1, _elf_hash(text), 20, following)
        packed += struct.pack("<II", strings.add(text), 0)
    return packed


def _elf_hash(text: str) -> int:
    value = 0
    for byte in text.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value


def _file(machine: int, sections: Sequence[_Section]) -> bytes:
    names = _Strings()
    for section in (*sections, _Section(".shstrtab", _STRTAB)):
        names.add(section.name)
    whole = (*sections, _Section(".shstrtab", _STRTAB, bytes(names.content)))
    body, headers = bytearray(64), b""
    for section in whole:
        body += bytes(-len(body) % 8)
        flags = 0 if section.kind in (0, _STRTAB) else 2  # SHF_ALLOC
        headers += struct.pack(
            "<IIQQQQIIQQ",
            names.places.get(section.name, 0) if section.name else 0,
            section.kind,
            flags,
            0,
            len(body) if section.kind else 0,
            len(section.content),
            section.link,
            section.info,
            8 if section.kind else 0,
            section.entry,
        )
        body += section.content
    body += bytes(-len(body) % 8)
    ident = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)  # 64 bits, little-endian, version 1
    body[:64] = ident + struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, len(body), 0, 64, 56, 0, 64, len(whole), len(whole) - 1
    )
    return bytes(body) + headers
