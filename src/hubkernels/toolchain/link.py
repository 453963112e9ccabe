"""What libraries are linked against: not this machine's glibc and libstdc++, but stubs of the oldest supported ones.

A stub exports the symbols of a table and holds nothing else, so a library that links cannot need a newer symbol, and
the same objects make the same library on every machine. Newer parts of libstdc++ come from the compiler's static
library, hidden; newer functions of glibc that its headers or that library ask for come from ``compat/glibc.cpp``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hubkernels.abi.exports import exports_digest, library_names, load_exports
from hubkernels.abi.stub import shared_object
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import disk_errors, hash_file
from hubkernels.model.cpu import CPUS

ALWAYS = ("libstdc++.so.6", "libgcc_s.so.1", "libc.so.6")
"""Libraries that every artifact names; others are named where a symbol of theirs is used."""

COMPAT_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections")

STATIC = ("__cpu_model", "__cpu_indicator_init")
"""Symbols that come from the compiler's libgcc.a, where they are hidden, though libgcc_s has them too: clang's
``__builtin_cpu_supports`` reads them as what is in its own library."""

_COMPAT = Path(str(resources.files("hubkernels.toolchain"))) / "compat"


@dataclass(frozen=True)
class LinkStubs:
    """The stubs of one CPU, and the source that is linked beside them.

    exports: hash of the table that they are made of. functions: hash of the source.
    """

    cpu: str
    exports: str
    functions: str
    compat: Path = _COMPAT

    @property
    def optional(self) -> tuple[str, ...]:
        """Libraries that an artifact names only where it uses them, in the order of the link."""
        return tuple(name for name in library_names(self.cpu) if name not in ALWAYS)

    @property
    def include(self) -> Path:
        """Headers that come before the compiler's own."""
        return self.compat / "include"

    @property
    def source(self) -> Path:
        return self.compat / "glibc.cpp"

    def write(self, folder: Path) -> None:
        """Make the stubs, in a folder that is not there yet. They take 0.02 s, less than to look after kept ones."""
        with disk_errors(folder):
            folder.mkdir()
            for soname, symbols in load_exports(self.cpu).items():
                stub = tuple(symbol for symbol in symbols if symbol.name not in STATIC)
                (folder / soname).write_bytes(shared_object(self.cpu, soname, stub))


def find_link_stubs(cpu: str, libc: Callable[[str], str | None] = os.confstr) -> LinkStubs:
    """The stubs for a CPU. libc: asks the C library.

    Raises EnvironmentLacksError where nothing can be linked: the headers of another C library do not fit glibc's.
    """
    try:
        version = libc("CS_GNU_LIBC_VERSION")
    except ValueError:  # the question itself is glibc's
        version = None
    if version is None:
        what = "kernels cannot be built here: the C library is not glibc, which artifacts for Linux are linked against"
        raise EnvironmentLacksError(Problem(what, hint="build on a system with glibc: not on Alpine, nor on macOS"))
    if cpu not in CPUS:
        raise EnvironmentLacksError(
            Problem(f"nothing can be linked for {cpu}", hint=f"there are export tables for {' and '.join(CPUS)}")
        )
    return LinkStubs(cpu, exports_digest(cpu), hash_file(_COMPAT / "glibc.cpp"))
