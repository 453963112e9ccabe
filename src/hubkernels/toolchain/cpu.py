"""The CPU toolchain: one C++ compiler, the headers of torch and Python, and the flags of every object."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hubkernels.host.machine import TorchSdk
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.sanitizer import sanitized_link_flags, sanitizer_flags

LIMITED_API = "0x03090000"
"""abi3 of Python 3.9: one binary for every later Python."""

LIBRARIES = ("torch_cpu", "torch", "c10")
_CXX20_TORCH = Version((2, 12))
"""Upstream compiles C++20 from this torch on and C++17 before."""


@dataclass(frozen=True)
class Toolchain:
    """What the commands of a CPU variant are made of. own_include: headers that hubkernels gives every binding.

    sanitizers: those to build with; the result is for tests and never ships.
    """

    compiler: Compiler
    torch: TorchSdk
    python_include: Path
    own_include: Path = Path(str(resources.files("hubkernels.toolchain"))) / "include"
    sanitizers: tuple[str, ...] = ()

    def compile_flags(self, variant: Variant) -> tuple[str, ...]:
        """Flags of every source of a variant."""
        modern = variant.stable_abi or variant.torch >= _CXX20_TORCH
        optimize = "-O1" if self.sanitizers else "-O3"  # g++ takes minutes for checks in optimized loops
        flags = [f"-std=c++{20 if modern else 17}", optimize, "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
        if self.compiler.family == "g++":
            flags.append("-fno-gnu-unique")  # else static locals of two builds of one kernel are one object
        flags += [f"-D{variant.backend.define}", f"-DPy_LIMITED_API={LIMITED_API}"]
        if variant.stable_abi:
            flags.append(f"-DTORCH_TARGET_VERSION={stable_abi_macro(variant.torch)}")
        if self.sanitizers:
            flags += (*sanitizer_flags(self.compiler, self.sanitizers), "-g1", "-fno-omit-frame-pointer")
        return tuple(flags)

    def search_path(self) -> tuple[str, ...]:
        """Where headers outside the project are found. Warnings in them are not the user's."""
        system = (*self.torch.include, self.python_include)
        return (f"-I{self.own_include}", *(word for folder in system for word in ("-isystem", str(folder))))

    def prefix_maps(self) -> tuple[str, ...]:
        """Keep this machine's folders out of ``__FILE__`` and debug information."""
        return tuple(f"-ffile-prefix-map={folder}={name}" for folder, name in self._places())

    def link_flags(self) -> tuple[str, ...]:
        """Flags of the link, before its objects."""
        if self.sanitizers:
            return sanitized_link_flags(self.compiler, self.sanitizers)
        return (
            "-shared",
            "-Wl,--no-as-needed,--build-id=none,-s,-z,noexecstack,-z,relro,-z,now",
        )

    def link_libraries(self) -> tuple[str, ...]:
        """Libraries of the link, after its objects.

        torch loads its own privately, so a kernel must name each that it uses; the client finds them without an RPATH.
        """
        return (f"-L{self.torch.lib}", *(f"-l{name}" for name in LIBRARIES))

    def sdk_folders(self) -> tuple[Path, ...]:
        """Folders of files that are not the project's."""
        return tuple(folder for folder, _ in self._places())

    def portable(self, text: str) -> str:
        """The text with this machine's folders replaced by names, for everything that is hashed."""
        for folder, name in self._places():
            text = text.replace(str(folder), name)
        return text

    def _places(self) -> tuple[tuple[Path, str], ...]:
        return (
            (self.torch.root, "torch"),
            (self.own_include, "hubkernels"),
            (self.python_include, "python"),
        )


def stable_abi_macro(version: Version) -> str:
    """``TORCH_TARGET_VERSION`` as torch's headers read it: major in the top byte, minor in the next."""
    major, minor = version.minor.parts
    return f"0x{major << 56 | minor << 48:016x}"
