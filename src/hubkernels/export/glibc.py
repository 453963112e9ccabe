"""What a compiled artifact asks of the system's libraries, as a platform tag that pip keeps.

A tag is a promise: pip installs the wheel wherever it holds, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.host.files import read_errors
from hubkernels.model.variant import Platform
from hubkernels.model.version import Version

MANYLINUX = "manylinux_2_28"
NEWEST: Mapping[str, Version] = {
    "GLIBC": Version((2, 28)),
    "GLIBCXX": Version((3, 4, 24)),
    "CXXABI": Version((1, 3, 11)),
}
"""The newest symbols that every system of the tag has."""

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def platform_tag(library: Path, platform: Platform) -> str:
    """The tag of a library. Raises CheckFailedError with every symbol that the tag's oldest systems lack."""
    if platform.os != "linux":
        raise InputError(Problem(f"no wheel tag for {platform}", hint="wheels are written for linux and for noarch"))
    if problems := tuple(_too_new(library, platform)):
        hint = "`kernel-builder check abi` names what brings them in"
        what = "\n".join((f"{library.name} does not run on every system of {MANYLINUX}", *problems))
        raise CheckFailedError(Problem(what, str(library.parent), hint))
    return f"{MANYLINUX}_{platform.cpu}"


def _too_new(library: Path, platform: Platform) -> Iterator[str]:
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - for compiled artifacts only
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    with read_errors(library), library.open("rb") as file:
        try:
            elf = ELFFile(file)
            found = elf["e_machine"], sorted(_versions(elf))
        except ELFError as error:
            yield f"  it is no library: {error}"
            return
    if found[0] != _MACHINES.get(platform.cpu):
        yield f"  it is for {found[0]}, not for {platform.cpu}"
    for prefix, version in found[1]:
        if prefix in NEWEST and version > NEWEST[prefix]:
            yield f"  it needs {prefix}_{version}; the tag allows {NEWEST[prefix]}"


def _versions(elf: object) -> Iterator[tuple[str, Version]]:
    section = elf.get_section_by_name(".gnu.version_r")  # type: ignore[attr-defined]
    for _, needed in section.iter_versions() if section else ():
        for one in needed:
            prefix, _, digits = one.name.rpartition("_")
            if digits.replace(".", "").isdigit():
                yield prefix, Version.parse(digits)
