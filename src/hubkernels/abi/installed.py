"""Look symbols up in libraries that are installed here: those of torch, those of this system, and this Python."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from hubkernels.abi.hash_table import HashedNames, hashed_names

SYSTEM_FOLDERS = ("/lib/{cpu}-linux-gnu", "/usr/lib/{cpu}-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


class Installed:
    """The libraries of some folders, torch's first, opened when first asked for; what they need counts as theirs.

    headers: torch's include folder, where it is not beside the first.
    """

    def __init__(self, *folders: Path, headers: Path | None = None) -> None:
        self.folders = folders
        self._headers = headers or folders[0].parent / "include"
        self._opened: dict[str, HashedNames | None] = {}
        self._declared: str | None = None

    def has(self, library: str) -> bool:
        return self._find(library) is not None

    def declares(self, name: str) -> bool:
        """Whether the headers of torch's C shim have a function, also for devices that this torch is without."""
        if self._declared is None:
            headers = sorted(self._headers.glob("torch/csrc/inductor/aoti_torch/**/*.h"))
            headers += sorted(self._headers.glob("torch/csrc/stable/c/*.h"))
            self._declared = "\n".join(header.read_text(encoding="utf-8", errors="replace") for header in headers)
        return re.search(rf"\b{re.escape(name)}\b", self._declared) is not None

    def _find(self, library: str) -> Path | None:
        return next((folder / library for folder in self.folders if (folder / library).is_file()), None)

    def provider(self, name: str, needed: Sequence[str]) -> str | None:
        """The library that defines a name, among these and what they need in turn."""
        return next((library for library, names in self._closure(needed) if name in names), None)

    def _closure(self, needed: Sequence[str]) -> Iterator[tuple[str, HashedNames]]:
        waiting, seen = list(needed), set(needed)
        while waiting:
            library = waiting.pop(0)
            if names := self._open(library):
                yield library, names
                waiting += [found for found in names.needed if found not in seen]
                seen.update(names.needed)

    def _open(self, library: str) -> HashedNames | None:
        if library not in self._opened:
            path = self._find(library)
            self._opened[library] = hashed_names(path) if path else None
        return self._opened[library]


def system_version(cpu: str, libraries: Sequence[str], name: str) -> str | None:
    """The newest version in which these libraries of this system have a name; None where they have it not."""
    for library in libraries:
        for folder in SYSTEM_FOLDERS:
            path = Path(folder.format(cpu=cpu)) / library
            if path.is_file() and (version := _default_version(path, name)):
                return version
    return None


def _default_version(path: Path, name: str) -> str | None:
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        definitions, numbers = elf.get_section_by_name(".gnu.version_d"), elf.get_section_by_name(".gnu.version")
        if definitions is None:
            return None
        names = {
            definition["vd_ndx"]: next(auxiliaries).name for definition, auxiliaries in definitions.iter_versions()
        }
        for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            if symbol.name == name and symbol["st_shndx"] != "SHN_UNDEF":
                number = numbers.get_symbol(index)["ndx"]
                if isinstance(number, int) and number in names:  # the default one: others have the highest bit set
                    return str(names[number])
    return None


def python_defines(name: str) -> bool:
    """Whether this Python exports a name."""
    return hasattr(ctypes.pythonapi, name)
