"""A CUDA toolkit: the programs that make objects of device code, the flags that they get, and what a link takes of it.

Where a toolkit comes from is no business of this module: `toolkit_of` takes the nvcc that `nvcc.find_nvcc` found on the
machine, and would take that of any other folder with the files of a toolkit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.model.sdk import MENDS
from hubkernels.model.version import Version
from hubkernels.toolchain.device import Command, DeviceCompiler
from hubkernels.toolchain.nvcc import PINNED, Nvcc

NVCC = "nvcc"
"""The compiler of device code that nobody has to be told of."""

PROGRAMS = ("nvcc", "nvcc.profile", "cudafe++", "ptxas", "fatbinary", "nvlink", "crt/link.stub", "crt/prelink.stub")
"""What makes an object, beside the compiler proper and its library; and what nvcc reads to know its own folders."""

STABLE_ABI = ("libtorch_cuda.so",)
"""Libraries of a CUDA build of torch that every artifact for CUDA names: torch's C shim has its streams there."""

FULL_ABI = ("libc10_cuda.so", *STABLE_ABI)
"""Those of artifacts with torch's C++ ABI."""

_USUAL = ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0")
_USUAL_ARCHS: Mapping[Version, tuple[str, ...]] = {
    Version((13, 0)): (*_USUAL, "10.0", "11.0", "12.0", "12.1+PTX"),
    Version((12, 8)): ("7.0", "7.2", *_USUAL, "10.0", "10.1", "12.0+PTX"),
    Version((12, 0)): ("7.0", "7.2", *_USUAL[:-1], "9.0+PTX"),
}
"""What upstream compiles a section for that names no capabilities, by the first release, newest first."""

FIXED_FLAGS = ("-O3", "-DNDEBUG", "-DENABLE_FP8", "--expt-relaxed-constexpr")
"""The last two are upstream's."""

_WITH_LINES = frozenset({"-lineinfo", "--generate-line-info", "-G", "--device-debug"})
_UNSPEAKABLE = re.compile(r"[,\"$`\\]")
_UNQUOTED = re.compile(r"[\w.,:=+/@%~^-]*")


@dataclass(frozen=True)
class CudaToolkit:
    """One toolkit, and the compiler that it is for.

    root: the folder of the toolkit. include: where its headers are, in order. fingerprint: SHA-256 over all that makes
    an object of device code, by content. runtime: libcudart, that artifacts name. runtime_hash: of its content.
    torch: libraries of torch's that artifacts name. math: headers of the math libraries, where those are elsewhere.
    """

    compiler: DeviceCompiler
    release: Version
    root: Path
    include: tuple[Path, ...]
    fingerprint: str
    runtime: Path
    runtime_hash: str
    torch: tuple[str, ...] = STABLE_ABI
    math: Path | None = None

    def __str__(self) -> str:
        return str(self.compiler)


@dataclass(frozen=True)
class ByNvcc:
    """nvcc. program: itself, behind wrappers."""

    program: str
    release: Version
    name: ClassVar[str] = NVCC
    fixed: ClassVar[tuple[str, ...]] = FIXED_FLAGS
    parallel: ClassVar[bool] = True
    system: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"nvcc {self.release}"

    def begin(self, host: str) -> Command:
        return (self.program, "-ccbin", host)

    def end(self, source: str, threads: int) -> Command:
        """Names of temporary files are in the object: they are made from its own.

        The front end hashes the path of the source into names: it is told one that is the same everywhere.
        """
        told = ("-Xcudafe", f"--orig_src_path_name={source_name(source)}")
        return ("-objtemp", *told, "-Xptxas=-v", f"--threads={threads}")

    def archs(self, archs: Iterable[str]) -> tuple[str, ...]:
        return gencode(archs)

    def for_host(self, words: Sequence[str]) -> tuple[str, ...]:
        return for_host(words)

    def from_nvcc(self, flags: Sequence[str]) -> tuple[str, ...]:
        return tuple(flags)

    def folders(self, named: Sequence[str], system: Sequence[str], toolkit: Sequence[Path]) -> tuple[str, ...]:
        """Its own come behind all ``-I``."""
        own = str(toolkit[0])
        return (*named[:1], own, *(folder for folder in (*named[1:], *system) if folder != own))

    def why_unspeakable(self, source: str, folders: Iterable[str]) -> str | None:
        return why_unspeakable((source, *folders))

    def passes(
        self, host: str, flags: Sequence[str], source: str, _: Sequence[str], ask: Callable[[Command], str]
    ) -> tuple[Command, ...]:
        """What it would start, but for ``-E``: it lists headers for the host alone."""
        words = (self.program, "--dryrun", "-ccbin", host, *flags, "-c", source, "-o", "x.o")
        found = preprocessing(ask(words))
        return tuple(tuple(word for word in command if word != "-E") for command in found)


def toolkit_of(nvcc: Nvcc, hashes: FileHashes, cpu: str) -> CudaToolkit:
    """The toolkit behind an nvcc. Raises EnvironmentLacksError that names what it lacks."""
    words = nvcc.own
    here, top = (_plain(words.get(name, "")) for name in ("_HERE_", "TOP"))
    include = tuple(_folders(words.get("INCLUDES", "") + " " + words.get("SYSTEM_INCLUDES", "")))
    proper = (Path(_plain(words.get("CICC_PATH", "")), "cicc"), *_libdevice(words.get("NVVMIR_LIBRARY_DIR", "")))
    files = [*(Path(here, name) for name in PROGRAMS), *proper]
    digests = {file: hashes.sha256(str(file)) for file in files}
    needed = [file for file in files if file.suffix != ".stub" and file.name != "nvlink"]
    runtime = runtime_of(Path(top), cpu, nvcc.release)
    if lacking := [str(file) for file in needed if digests[file] is None] + ([] if runtime else ["libcudart.so"]):
        raise _not_whole(nvcc, lacking)
    fingerprint = content_hash(top, digests)
    library = runtime or Path()
    return CudaToolkit(
        ByNvcc(str(Path(here, "nvcc")), nvcc.release),
        nvcc.release,
        Path(top),
        include,
        fingerprint,
        library,
        hashes.sha256(str(library)) or "",
    )


def _not_whole(nvcc: Nvcc, lacking: Sequence[str]) -> EnvironmentLacksError:
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    what = f"the CUDA toolkit of {nvcc.path} is not whole: it has no {lacking[0]}{more}"
    hint = MENDS if nvcc.why == PINNED else "CUDA_HOME names another; install nvcc, nvvm, crt and cudart"
    return EnvironmentLacksError(Problem(what, hint=hint))


def content_hash(top: str, digests: Mapping[Path, str | None], *more: str) -> str:
    """One hash of files below a folder, by content, and of other things."""
    content = [f"{os.path.relpath(file, top)} {digest}" for file, digest in digests.items()]
    return hashlib.sha256("\n".join((*content, *more)).encode()).hexdigest()


def usual_archs(release: Version) -> tuple[str, ...]:
    """What a section is compiled for that names no capabilities: upstream's list for the release."""
    return next((archs for first, archs in _USUAL_ARCHS.items() if release >= first), ())


def _plain(path: str) -> str:
    """A folder without the detours by which nvcc spells its own; links stay, since they are how it was found."""
    return os.path.normpath(path) if path else ""


def _folders(text: str) -> Iterator[Path]:
    words = iter(shlex.split(text))
    for word in words:
        yield Path(_plain(next(words, "") if word == "-isystem" else word.removeprefix("-I")))


def _libdevice(folder: str) -> Iterator[Path]:
    yield from sorted(Path(_plain(folder)).glob("libdevice*.bc")) or (Path(_plain(folder), "libdevice.10.bc"),)


def runtime_of(top: Path, cpu: str, release: Version) -> Path | None:
    """libcudart of a toolkit; None where it has none."""
    name = f"libcudart.so.{release.parts[0]}"
    targets = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}
    folders = (top / f"targets/{targets.get(cpu, cpu)}/lib", top / "lib64", top / "lib")
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def gencode(archs: Iterable[str]) -> tuple[str, ...]:
    """Flags for capabilities as a build.toml spells them: ``9.0a`` is sm_90a, ``12.0+PTX`` sm_120 and compute_120."""
    flags: dict[str, None] = {}
    for arch in archs:
        digits = arch.removesuffix("+PTX").replace(".", "")
        flags[f"-gencode=arch=compute_{digits},code=sm_{digits}"] = None
        if arch.endswith("+PTX"):
            flags[f"-gencode=arch=compute_{digits},code=compute_{digits}"] = None
    return tuple(flags)


def for_host(words: Sequence[str]) -> tuple[str, ...]:
    """Flags of the host compiler as nvcc hands them on: it parts them at commas, and a shell parts them at spaces."""
    return tuple(f"-Xcompiler={_for_shell(word).replace(',', chr(92) + ',')}" for word in words)


def _for_shell(word: str) -> str:
    return word if _UNQUOTED.fullmatch(word) else '"' + re.sub(r'(["\\$`])', r"\\\1", word) + '"'


def source_name(path: str) -> str:
    """The path that nvcc's front end is told, which it hashes into names: the same for a source in any folder."""
    return f"/source/{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def without_lines(flags: Sequence[str]) -> tuple[str, ...]:
    """Flags but for those that make ptxas write down where each file is, and when it was written."""
    return tuple(flag for flag in flags if flag not in _WITH_LINES)


def why_unspeakable(paths: Iterable[str]) -> str | None:
    """Why nvcc cannot be told one of these paths, in words: it parts values at commas and hands them to a shell."""
    bad = next((path for path in paths if _UNSPEAKABLE.search(path)), None)
    return f"nvcc cannot be told of {bad}: rename it, without commas, quotes, dollars and backslashes" if bad else None


def preprocessing(said: str) -> tuple[tuple[str, ...], ...]:
    """The commands in what ``--dryrun`` says that preprocess the source: for the host, then for each architecture.

    Without what they write to: the text is told.
    """
    lines = (line.removeprefix("#$ ") for line in said.splitlines() if line.startswith("#$ "))
    commands = (shlex.split(line) for line in lines if " -E -x c++ " in line)
    return tuple((*words[:-2],) for words in commands if words[-2] == "-o")
