"""The toolchain of a variant: one C++ compiler, the headers of torch and Python, and the flags of every object.

For CUDA it has a toolkit beside them, whose own words are in `cuda`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.abi.stub import shared_object
from hubkernels.host.files import disk_errors
from hubkernels.host.machine import TorchSdk
from hubkernels.model.artifact import LIMITED_API
from hubkernels.model.plan import Step
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.cuda import CudaToolkit
from hubkernels.toolchain.device import DeviceCompiler
from hubkernels.toolchain.link import COMPAT_FLAGS, STATIC, LinkStubs
from hubkernels.toolchain.sanitizer import sanitizer_flags

if TYPE_CHECKING:
    from hubkernels.abi.installed import Installed

LIBRARIES = ("torch_cpu", "torch", "c10")
_TORCH_STUBS = tuple(f"lib{name}.so" for name in LIBRARIES)
LOCAL_LINK = ("-shared", "-Wl,--no-as-needed,--build-id=none,-z,noexecstack")
"""Flags of a link for this machine alone: the compiler adds the machine's libraries, and symbols keep their names."""

_BEFORE_A_PATH = ("-I", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-L")
"""Flags that a path may follow without a space."""

_CXX20_TORCH = Version((2, 12))
"""Upstream compiles C++20 from this torch on and C++17 before."""


@dataclass(frozen=True)
class Toolchain:
    """What the commands of a variant are made of.

    own_include: headers that hubkernels gives every binding. Upstream writes them into the project's torch-ext, so a
    source elsewhere may name ``../torch-ext/registration.h``; a folder of that name is found by this spelling too.
    sanitizers: those to build with; the result is for tests and never ships.
    cuda: the toolkit, for a variant of CUDA. threads: architectures that one source may be compiled for at a time.
    names: the folder of torch's real libraries, to look symbols up; link stubs have none. None where none is at hand.
    sdks: what of it is pinned, and the hashes of these trees.
    """

    compiler: Compiler
    torch: TorchSdk
    python_include: Path
    stubs: LinkStubs
    own_include: Path = Path(str(resources.files("hubkernels.toolchain"))) / "include/torch-ext"
    sanitizers: tuple[str, ...] = ()
    cuda: CudaToolkit | None = None
    threads: int = 1
    names: Path | None = None
    sdks: tuple[tuple[str, str], ...] = ()

    def compile_flags(self, variant: Variant) -> tuple[str, ...]:
        """Flags of every source of a variant that the C++ compiler compiles."""
        optimize = "-O1" if self.sanitizers else "-O3"  # g++ takes minutes for checks in optimized loops
        flags = [
            _standard(variant),
            optimize,
            "-DNDEBUG",
            *self._code_flags,
            *_defines(variant),
            *torch_macros(variant),
        ]
        if self.sanitizers:
            flags += (*sanitizer_flags(self.compiler, self.sanitizers), "-g1", "-fno-omit-frame-pointer")
        return tuple(flags)

    def device_flags(self, variant: Variant, *, torch: bool) -> tuple[str, ...]:
        """Flags of every source that the device's compiler takes.

        torch: whether torch's headers, and so its macros, take part. Without them the object is one for every torch.
        """
        macros = torch_macros(variant) if torch else ()
        device = self.device
        return (
            _standard(variant),
            *device.fixed,
            *device.for_host(self._code_flags),
            *_defines(variant),
            *macros,
        )

    @property
    def device(self) -> DeviceCompiler:
        """The compiler of a variant for CUDA. Raises TypeError in another one's toolchain."""
        if self.cuda is None:
            raise TypeError("this toolchain compiles for no device")
        return self.cuda.compiler

    def from_nvcc(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Flags that a build.toml has for nvcc, in the words of the compiler that is there."""
        return self.device.from_nvcc(flags) if self.cuda else tuple(flags)

    @property
    def _code_flags(self) -> tuple[str, ...]:
        # Without the last, static locals of two builds of one kernel are one object.
        unique = ("-fno-gnu-unique",) if self.compiler.family == "g++" else ()
        return ("-fPIC", "-fvisibility=hidden", *unique)

    def search_path(self) -> tuple[str, ...]:
        """Where headers outside the project are found. Warnings in them are not the user's."""
        return self._searched((*self.cuda.include, *self._math) if self.cuda else ())

    def device_search_path(self) -> tuple[str, ...]:
        """The same for the device's compiler, which knows its toolkit's."""
        return self._searched(self._math)

    @property
    def _math(self) -> tuple[Path, ...]:
        return (self.cuda.math,) if self.cuda and self.cuda.math else ()

    @property
    def _device_system(self) -> tuple[str, ...]:
        """The folders of the device's compiler, but for its toolkit's."""
        if self.cuda is None:
            return ()
        own = {str(folder) for folder in self.cuda.include}
        return tuple(folder for folder in self.device.system if folder not in own)

    def _searched(self, more: tuple[Path, ...]) -> tuple[str, ...]:
        system = (self.stubs.include, *self.torch.include, self.python_include, *more)
        return (f"-I{self.own_include}", *(word for folder in system for word in ("-isystem", str(folder))))

    def prefix_maps(self) -> tuple[str, ...]:
        """Keep this machine's folders out of ``__FILE__`` and debug information."""
        return tuple(f"-ffile-prefix-map={folder}={name}" for folder, name in self._places)

    def write_stubs(self, folder: Path) -> None:
        """Make what is linked against, in a folder that is not there yet.

        An empty library of the right name stands for each of torch's: a link against the real ones takes the kind of
        each symbol from them, and no CPU build of torch has those for CUDA. So the same objects make the same library
        on every machine, whether its torch is an installed one or an SDK.
        """
        self.stubs.write(folder)
        for name in (*_TORCH_STUBS, *self._cuda_stubs):
            with disk_errors(folder):
                (folder / name).write_bytes(shared_object(self.stubs.cpu, name, ()))

    @property
    def _cuda_stubs(self) -> tuple[str, ...]:
        return self.cuda.torch if self.cuda else ()

    def libraries(self) -> Installed:
        """The libraries that artifacts name, beside the system's, as far as they are at hand."""
        from hubkernels.abi.installed import Installed  # noqa: PLC0415 - slow, and needed once something was linked

        folders = (self.names, self.cuda.runtime.parent if self.cuda else None)
        return Installed(*filter(None, folders), headers=self.torch.include[0])

    def compat_command(self) -> tuple[str, ...]:
        """The command for the object that brings newer functions of glibc to every library, but for its output."""
        flags = (*COMPAT_FLAGS, *self.prefix_maps())
        return (*self.compiler.command, *flags, "-c", str(self.stubs.source))

    def link_flags(self) -> tuple[str, ...]:
        """Flags of the link, before its objects."""
        if self.sanitizers:
            return (*LOCAL_LINK, *sanitizer_flags(self.compiler, self.sanitizers))
        return (
            "-shared",
            "-nostdlib",  # the libraries of this machine are too new: link_libraries names all there are
            "-Wl,--no-as-needed,--build-id=none,-s,-z,noexecstack,-z,relro,-z,now",
            "-Wl,--gc-sections,--exclude-libs,ALL",
            str(self.compiler.runtime["crtbeginS.o"]),
        )

    def link_libraries(self) -> tuple[str, ...]:
        """Libraries of the link, after its objects.

        libstdc++ is both: symbols that every supported system has are shared with torch, newer ones are static. Both
        come before torch, which exports a few of them by accident. torch loads its own libraries privately, so a kernel
        must name each that it uses; the client finds them without an RPATH.
        """
        if self.sanitizers:
            return (f"-L{self.torch.lib}", *(f"-l{name}" for name in LIBRARIES))
        stubs, runtime = Step.STUBS, self.compiler.runtime
        return (
            f"{stubs}/libstdc++.so.6",
            str(runtime["libstdc++.a"]),
            f"{stubs}/libgcc_s.so.1",
            str(runtime["libgcc.a"]),
            f"{stubs}/libc.so.6",
            "-Wl,--as-needed",
            *(f"{stubs}/{name}" for name in self.stubs.optional),
            "-Wl,--no-as-needed",
            *(f"{stubs}/{name}" for name in (*_TORCH_STUBS, *self._cuda_stubs)),
            *((str(self.cuda.runtime),) if self.cuda else ()),
            str(runtime["crtendS.o"]),
        )

    def link_key(self) -> tuple[str, ...]:
        """What decides a link beside the compiler and the objects, equal on every machine."""
        words = (*STATIC, *COMPAT_FLAGS, *self.link_flags(), *self.link_libraries())
        cuda = (self.cuda.runtime_hash,) if self.cuda else ()
        return (self.stubs.exports, self.stubs.functions, *cuda, *(self.portable(word) for word in words))

    def sdk_folders(self) -> tuple[Path, ...]:
        """Folders of files that are not the project's."""
        return tuple(folder for folder, _ in self._places)

    def portable(self, text: str) -> str:
        """The text with this machine's folders replaced by names, for everything that is hashed."""
        return self._machine_paths.sub(lambda found: self._names[found[0]], text)

    @cached_property
    def _names(self) -> dict[str, str]:
        runtime = {str(path): f"<gcc>/{name}" for name, path in self.compiler.runtime.items()}
        return runtime | {str(path): f"<{name}>" for path, name in self._places}  # no folder of a project is called so

    @cached_property
    def _machine_paths(self) -> re.Pattern[str]:
        """Whole paths, the longest first: beside ``torch`` there may be a folder ``torchvision``."""
        paths = sorted(self._names, key=len, reverse=True)
        begins = "|".join((r"(?<![\w.+~/-])", *(f"(?<={flag})" for flag in _BEFORE_A_PATH)))
        return re.compile(rf"(?:{begins})(?:{'|'.join(map(re.escape, paths))})(?![\w.+~-])")

    @cached_property
    def _places(self) -> tuple[tuple[Path, str], ...]:
        """Folders that differ between machines, and their names. Those below /usr are the same on all.

        A compiler tells a header by the folder that it looked in, or by where links lead, whichever is shorter.
        """
        system = dict.fromkeys((*self.compiler.system, *self._device_system))
        elsewhere = [folder for folder in system if not folder.startswith("/usr/")]
        cuda = dict.fromkeys((str(self.cuda.root), os.path.realpath(self.cuda.root))) if self.cuda else ()
        return (
            *((Path(spelling), "cuda") for spelling in cuda),
            *((folder, "cuda-math") for folder in self._math),
            (self.torch.root, "torch"),
            (self.own_include, "hubkernels"),
            (self.python_include, "python"),
            (self.stubs.compat, "compat"),
            *(
                (Path(spelling), f"sys{number}")
                for number, folder in enumerate(elsewhere)
                for spelling in dict.fromkeys((folder, os.path.realpath(folder)))
                if not spelling.startswith("/usr/")
            ),
        )


def _standard(variant: Variant) -> str:
    return f"-std=c++{20 if variant.stable_abi or variant.torch >= _CXX20_TORCH else 17}"


def _defines(variant: Variant) -> tuple[str, ...]:
    return (f"-D{variant.backend.define}", *(f"-D{macro}" for macro in variant.backend.more_defines))


def torch_macros(variant: Variant) -> tuple[str, ...]:
    """What the headers of torch and Python are told, as flags."""
    limited = f"-DPy_LIMITED_API={limited_api_macro(LIMITED_API)}"
    return (limited, f"-DTORCH_TARGET_VERSION={stable_abi_macro(variant.torch)}") if variant.stable_abi else (limited,)


def stable_abi_macro(version: Version) -> str:
    """``TORCH_TARGET_VERSION`` as torch's headers read it: major in the top byte, minor in the next."""
    major, minor = version.minor.parts
    return f"0x{major << 56 | minor << 48:016x}"


def limited_api_macro(version: Version) -> str:
    """``Py_LIMITED_API`` as Python's headers read it."""
    major, minor = version.minor.parts
    return f"0x{major << 24 | minor << 16:08x}"
