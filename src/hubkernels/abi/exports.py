"""Everything that a library may link against: the symbols of glibc, libstdc++ and libgcc_s in their oldest release.

The tables in ``exports/`` are data that `scripts/abi_tables.py` writes. A build links against them and not against the
libraries of its machine, so that the same objects make the same library on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Export:
    """One symbol of a library. kind: "f" for a function, "o" for an object, "t" for a thread-local one."""

    name: str
    version: str
    kind: str


Exports = Mapping[str, tuple[Export, ...]]
"""What each library exports, by its SONAME. The versions of one library come with the oldest first."""


def exports_digest(cpu: str) -> str:
    """SHA-256 of the table of a CPU."""
    return hashlib.sha256(_table(cpu)).hexdigest()


@cache
def load_exports(cpu: str) -> Exports:
    """The table of a CPU."""
    found: dict[str, list[Export]] = {}
    library: list[Export] = []
    for line in _table(cpu).decode().splitlines():
        if line.startswith("["):
            library = found.setdefault(line.strip("[]"), [])
        elif not line.startswith("#"):
            version, kind, *names = line.split()
            library.extend(Export(name, version, kind) for name in names)
    return {soname: tuple(symbols) for soname, symbols in found.items()}


@cache
def versioned_names(cpu: str) -> frozenset[tuple[str, str]]:
    """The (name, version) pairs of all libraries of a CPU."""
    return frozenset((export.name, export.version) for library in load_exports(cpu).values() for export in library)


@cache
def library_names(cpu: str) -> tuple[str, ...]:
    """The libraries of the table of a CPU. Much faster than to load it."""
    return tuple(name.decode() for name in re.findall(rb"^\[(.+)\]$", _table(cpu), re.MULTILINE))


@cache
def _table(cpu: str) -> bytes:
    return (resources.files(__package__) / "exports" / f"{cpu}.txt").read_bytes()
