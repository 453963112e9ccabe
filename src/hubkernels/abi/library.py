"""Read a shared library: what its file says that it needs and how it wants to be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE

from hubkernels.model.cpu import CPUS

_CPUS = {name: cpu.name for cpu in CPUS.values() for name, number in ENUM_E_MACHINE.items() if number == cpu.elf}
_DAMAGE = (ELFError, ConstructError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError)
"""What the reader of ELF raises for files that are none, or are cut off or overwritten."""

_RUNS, _WRITES = 1, 2  # PF_X, PF_W
_NEEDS_RELOCATED_TEXT = 0x4  # DF_TEXTREL
_IN_FIRST_ROOM = 0x10  # DF_STATIC_TLS
_ISA_NEEDED = "GNU_PROPERTY_X86_ISA_1_NEEDED"
_LEVELS = {0b10: "x86-64-v2", 0b100: "x86-64-v3", 0b1000: "x86-64-v4"}
_UNIQUE = "STB_LOOS"  # STB_GNU_UNIQUE, which has the first number of those for operating systems


@dataclass(frozen=True, order=True)
class Symbol:
    """An undefined symbol. version and library are empty where the file does not tell from where it is to come."""

    name: str
    version: str = ""
    library: str = ""
    weak: bool = False


@dataclass(frozen=True)
class Library:
    """What a library needs and asks of the loader.

    versions: (library, version) pairs that must be there. unique: symbols that are one in the whole process.
    search_paths: RPATH and RUNPATH, as they are written. cpu_levels: beyond the first, without which it is not loaded.
    static_tls: whether its thread-local variables are where the loader keeps those of the program.
    """

    cpu: str
    needed: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    versions: tuple[tuple[str, str], ...]
    unique: tuple[str, ...]
    search_paths: tuple[str, ...]
    executable_stack: bool
    writable_code: bool
    relocated_text: bool
    packed_relocations: bool
    static_tls: bool
    cpu_levels: tuple[str, ...]


def read_library(path: Path) -> Library | str:
    """What a file says as a library; or in words why it is none. Raises OSError where it cannot be read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return "is no ELF file"
        try:
            elf: Any = ELFFile(file)
            end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
            if elf["e_shoff"] == 0 or end > size or any(_end(segment) > size for segment in elf.iter_segments()):
                return "is an ELF file that is cut off"
            if elf["e_type"] != "ET_DYN" or elf.get_section_by_name(".dynsym") is None:
                return "is an ELF file, but no shared library"
            return _read(elf)
        except _DAMAGE as error:
            return f"is a damaged ELF file: {error}"


def undefined_names(path: Path) -> frozenset[str]:
    """What an object file leaves to others to define. Empty for a file that is no object."""
    try:
        with path.open("rb") as file:
            table: Any = ELFFile(file).get_section_by_name(".symtab")
            return frozenset(symbol.name for symbol in table.iter_symbols() if _is_undefined(symbol))
    except (OSError, *_DAMAGE):
        return frozenset()


def _end(segment: Any) -> int:  # noqa: ANN401 - elftools has no types
    return int(segment["p_offset"] + segment["p_filesz"])


def _read(elf: Any) -> Library:  # noqa: ANN401
    tags = list(elf.get_section_by_name(".dynamic").iter_tags())
    named = {tag.entry.d_tag for tag in tags}
    flags = next((tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"), 0)
    segments = list(elf.iter_segments())
    stacks = [segment for segment in segments if segment["p_type"] == "PT_GNU_STACK"]
    both = _RUNS | _WRITES
    return Library(
        cpu=_CPUS.get(elf["e_machine"], str(elf["e_machine"])),
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        undefined=tuple(_undefined(elf)),
        versions=tuple(sorted({pair for pair in _versions(elf).values() if pair[0]})),
        unique=tuple(sorted(_unique(elf))),
        search_paths=tuple(_search_paths(tags)),
        executable_stack=not stacks or any(segment["p_flags"] & _RUNS for segment in stacks),
        writable_code=any(s["p_type"] == "PT_LOAD" and s["p_flags"] & both == both for s in segments),
        relocated_text="DT_TEXTREL" in named or bool(flags & _NEEDS_RELOCATED_TEXT),
        packed_relocations="DT_RELR" in named,
        static_tls=bool(flags & _IN_FIRST_ROOM),
        cpu_levels=tuple(_cpu_levels(segments)),
    )


def _cpu_levels(segments: list[Any]) -> Iterator[str]:
    notes = (note for segment in segments if segment["p_type"] == "PT_NOTE" for note in segment.iter_notes())
    ours = (note for note in notes if (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_PROPERTY_TYPE_0"))
    properties = [entry for note in ours for entry in note["n_desc"]]
    needed = [entry.pr_data for entry in properties if entry.pr_type == _ISA_NEEDED]
    for bit, level in _LEVELS.items():
        if any(bits & bit for bits in needed):
            yield level


def _search_paths(tags: list[Any]) -> Iterator[str]:
    for tag in tags:
        if tag.entry.d_tag == "DT_RPATH":
            yield tag.rpath
        elif tag.entry.d_tag == "DT_RUNPATH":
            yield tag.runpath


def _versions(elf: Any) -> dict[int, tuple[str, str]]:  # noqa: ANN401
    """The library and version behind each number of the table of versions."""
    needs = elf.get_section_by_name(".gnu.version_r")
    if needs is None:
        return {}
    return {
        auxiliary["vna_other"]: (need.name, auxiliary.name)
        for need, auxiliaries in needs.iter_versions()
        for auxiliary in auxiliaries
    }


def _undefined(elf: Any) -> Iterator[Symbol]:  # noqa: ANN401
    versions, numbers = _versions(elf), elf.get_section_by_name(".gnu.version")
    for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
        if _is_undefined(symbol):
            number = numbers.get_symbol(index)["ndx"] if numbers else 0
            library, version = versions.get(number, ("", ""))
            yield Symbol(symbol.name, version, library, weak=symbol["st_info"]["bind"] == "STB_WEAK")


def _is_undefined(symbol: Any) -> bool:  # noqa: ANN401
    return bool(symbol.name) and symbol["st_shndx"] == "SHN_UNDEF"


def _unique(elf: Any) -> Iterator[str]:  # noqa: ANN401
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol["st_info"]["bind"] == _UNIQUE:
            yield symbol.name
