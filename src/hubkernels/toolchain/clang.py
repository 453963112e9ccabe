"""clang as the compiler of device code, for releases of CUDA whose nvcc no index has: which one, and its words.

It takes ptxas, libdevice, headers and libcudart of just that release. What it makes goes with all that is built for the
release, and is not what nvcc would make.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.host.process import run
from hubkernels.model.sdk import MENDS
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler, compiler_at, own_folders
from hubkernels.toolchain.cuda import CudaToolkit, content_hash, runtime_of
from hubkernels.toolchain.device import Command
from hubkernels.toolchain.sdk.fatbinary import PROGRAM

OLDEST = Version((16,))
"""The first that knows sm_89 and sm_90: every device of CUDA 12.6."""

INSTALL = "on Debian and Ubuntu: apt-get install clang-19"

_NAME = re.compile(r"clang\+\+(?:-([0-9]+))?")
_DEVICE = re.compile(r"^\s*sm_(\w+)\s*$", re.MULTILINE)
_FILES = ("bin/ptxas", "bin/fatbinary", f"bin/{PROGRAM}", "nvvm/libdevice/libdevice.10.bc")
_QUIET = "-Wno-unknown-cuda-version"
"""Every release since 12.4 is newer than what some clang knows whole; the label and docs say what this is."""


def find_clang(environment: Mapping[str, str], hashes: FileHashes) -> Compiler | str:
    """The clang that ``CUDACXX`` names, else the newest on PATH; in words why there is none that will do."""
    command = _named(environment) or _newest(environment)
    if isinstance(command, str):
        return command
    try:
        found = compiler_at(command, environment, hashes)
    except EnvironmentLacksError as error:
        return error.problems[0].what
    if found.family != "clang" or found.version < OLDEST:
        return f"{command[-1]} is {found}"
    return found


def list_devices(clang: Compiler, environment: Mapping[str, str]) -> frozenset[str]:
    """The devices that a clang compiles for, as it says itself: ``90a``. Empty where it does not say."""
    words = (*clang.command, "--print-supported-cpus", "--target=nvptx64-nvidia-cuda", _QUIET)
    said = run(words, timeout_s=30, env=environment, cwd=Path("/"))
    return frozenset(_DEVICE.findall(said.output + said.errors))


def label(clang: Compiler, release: Version) -> str:
    """What device code is made by, for whoever takes it for nvcc's."""
    return f"{clang} with ptxas {release}"


def clang_toolkit(
    clang: Compiler, root: Path, release: Version, hashes: FileHashes, environment: Mapping[str, str]
) -> CudaToolkit:
    """What a clang makes of the folder of a pinned SDK. Raises EnvironmentLacksError that names what it lacks."""
    digests = {root / file: hashes.sha256(str(root / file)) for file in _FILES}
    runtime = runtime_of(root, "", release)
    if lacking := [str(file) for file, digest in digests.items() if digest is None] + (
        [] if runtime else ["libcudart"]
    ):
        what = f"the pinned toolkit of CUDA {release} is not whole: it has no {', '.join(lacking)}"
        raise EnvironmentLacksError(Problem(what, hint=MENDS))
    library = runtime or Path()
    compiler = ByClang(clang, release, root, _system(clang, root, environment))
    fingerprint = content_hash(str(root), digests, clang.fingerprint)
    return CudaToolkit(
        compiler, release, root, (root / "include",), fingerprint, library, hashes.sha256(str(library)) or ""
    )


def _system(clang: Compiler, root: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where it looks for headers with this toolkit: its own wrappers come first, the toolkit last."""
    words = (*clang.command, "-x", "cuda", f"--cuda-path={root}", _QUIET, "--cuda-host-only", "-v", "-E", "/dev/null")
    done = run(words, env=environment, cwd=Path("/"))
    if done.status or not (found := own_folders(done.errors)):
        what = f"{clang} does not compile with the toolkit in {root}: {done.errors.strip()}"
        raise EnvironmentLacksError(Problem(what, hint="CUDACXX names another clang"))
    return found


def _named(environment: Mapping[str, str]) -> Command | str | None:
    try:
        words = shlex.split(environment.get("CUDACXX", ""))
    except ValueError as error:
        return f"CUDACXX cannot be read: {error}"
    if not words or "clang" not in Path(words[-1]).name:  # CMake's variable is of nvcc's, too
        return None
    found = [shutil.which(word, path=environment.get("PATH")) for word in words]
    missing = next((word for word, path in zip(words, found, strict=True) if path is None), None)
    if missing:
        return f"CUDACXX names {missing}, and there is no such program"
    return tuple(os.path.abspath(path) for path in found if path)  # noqa: PTH100 - a link is a compiler of its own


def _newest(environment: Mapping[str, str]) -> Command | str:
    """By the numbers in names; of a plain clang++ by what it says."""
    found: dict[str, str] = {}
    for folder in environment.get("PATH", "").split(os.pathsep):
        for name in _names_in(folder):
            found.setdefault(name, os.path.join(folder, name))  # noqa: PTH118 - as PATH spells it
    majors = {path: _major(name, path, environment) for name, path in found.items()}
    newest = max(majors, key=lambda path: (majors[path], path), default="")
    if not newest:
        return "there is no clang++ on PATH"
    if majors[newest] < OLDEST.parts[0]:
        return f"{newest} is clang {majors[newest]}"
    return (os.path.abspath(newest),)  # noqa: PTH100 - a link is a compiler of its own


def _names_in(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if _NAME.fullmatch(name)]  # noqa: PTH208 - names alone
    except OSError:
        return []


def _major(name: str, path: str, environment: Mapping[str, str]) -> int:
    number = name.removeprefix("clang++").removeprefix("-")
    if not number:
        try:
            number = run((path, "-dumpversion"), timeout_s=30, env=environment).output.partition(".")[0].strip()
        except HubkernelsError:
            return 0
    return int(number) if number.isdigit() else 0


@dataclass(frozen=True)
class ByClang:
    """clang. root: of the toolkit."""

    clang: Compiler
    release: Version
    root: Path
    system: tuple[str, ...]
    name: ClassVar[str] = "clang"
    fixed: ClassVar[tuple[str, ...]] = ("-O3", "-DNDEBUG", "-DENABLE_FP8", _QUIET)
    parallel: ClassVar[bool] = False

    def __str__(self) -> str:
        return label(self.clang, self.release)

    @property
    def program(self) -> str:
        return self.clang.command[-1]

    def begin(self, _: str) -> Command:
        """It compiles the host's code too."""
        return (*self.clang.command, "-x", "cuda", f"--cuda-path={self.root}")

    def end(self, _: str, __: int) -> Command:
        """Its id of a source, of the path, would be in names."""
        return ("-fuse-cuid=none", "-Xcuda-ptxas", "-v")

    def archs(self, archs: Iterable[str]) -> tuple[str, ...]:
        """``12.0+PTX`` is sm_120, and its PTX; without a word it would put the PTX of all into the object."""
        plain = {arch.removesuffix("+PTX").replace(".", ""): None for arch in archs}
        ptx = {arch.removesuffix("+PTX").replace(".", ""): None for arch in archs if arch.endswith("+PTX")}
        devices = (f"--cuda-gpu-arch=sm_{code}" for code in plain)
        return (*devices, "--no-cuda-include-ptx=all", *(f"--cuda-include-ptx=sm_{code}" for code in ptx))

    def for_host(self, words: Sequence[str]) -> tuple[str, ...]:
        """It never makes the objects that the flag left out is about, and does not know it."""
        return tuple(word for word in words if word != "-fno-gnu-unique")

    def from_nvcc(self, flags: Sequence[str]) -> tuple[str, ...]:
        return tuple(word for _, words in translated(flags) for word in words or ())

    def folders(self, named: Sequence[str], _: Sequence[str], toolkit: Sequence[Path]) -> tuple[str, ...]:
        own = {str(folder) for folder in toolkit}
        return (*(folder for folder in named if folder not in own), *self.system)

    def why_unspeakable(self, source: str, _: Iterable[str]) -> str | None:
        """Names of temporary files are made of the source's, and fatbinary parts words at commas."""
        return f"clang cannot hand {source} on to fatbinary: rename it, without commas" if "," in source else None

    def passes(
        self, host: str, flags: Sequence[str], source: str, archs: Sequence[str], _: Callable[[Command], str]
    ) -> tuple[Command, ...]:
        command = self.begin(host)
        shared = [word for word in flags if not word.startswith("--cuda-gpu-arch=")]
        devices = [word for word in self.archs(archs) if word.startswith("--cuda-gpu-arch=")]
        of_host = (*command, *shared, "--cuda-host-only", source)
        return (of_host, *((*command, *shared, device, "--cuda-device-only", source) for device in devices))


def without_counterpart(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags of nvcc's that clang cannot be told."""
    return tuple(word for word, words in translated(flags) if words is None)


def translated(flags: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Flags of nvcc's, each with clang's words for it: none where it needs none, None where it has none."""
    words, once = iter(flags), set[tuple[str, ...]]()
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in _WITH_VALUE:
            yield word, _WITH_VALUE[name](value if equals else next(words, ""))
        elif word.startswith("-") and word.lstrip("-") in _ALIKE:
            alike = _ALIKE[word.lstrip("-")]
            yield word, () if alike in once else alike  # LLVM takes an option once
            once.add(alike)
        elif word in _BEFORE_A_WORD:
            yield word, (word, next(words, ""))
        else:
            yield word, (word,) if word.startswith(_SAME) else None


def _handed(begin: str) -> Callable[[str], tuple[str, ...] | None]:
    """nvcc parts words at commas, unless they are escaped."""

    def hand(value: str) -> tuple[str, ...] | None:
        if not value or any(letter in value for letter in "\\\"'"):
            return None
        return tuple(word for part in value.split(",") for word in (begin, part))

    return hand


def _nothing(_: str) -> tuple[str, ...]:
    return ()


_BEFORE_A_WORD = ("-D", "-U", "-I", "-isystem", "-iquote", "-idirafter", "-include")
_SAME = (*_BEFORE_A_WORD, "-O", "-W", "-w")

_APPROXIMATE_DIV = ("-mllvm", "-nvptx-prec-divf32=1")
_APPROXIMATE_SQRT = ("-mllvm", "-nvptx-prec-sqrtf32=0")
_FLUSH = ("-fcuda-flush-denormals-to-zero",)
_ALIKE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("expt-relaxed-constexpr", "expt-extended-lambda", "extended-lambda"), ()),
    **dict.fromkeys(("allow-unsupported-compiler", "Wno-deprecated-gpu-targets", "res-usage", "resource-usage"), ()),
    **dict.fromkeys(("fmad=true", "ftz=false", "prec-div=true", "rdc=false", "relocatable-device-code=false"), ()),
    "use_fast_math": (
        *_FLUSH,
        "-fcuda-approx-transcendentals",
        *("-mllvm", "-nvptx-prec-divf32=0"),
        *_APPROXIMATE_SQRT,
    ),
    "fmad=false": ("-ffp-contract=off",),
    "ftz=true": _FLUSH,
    "prec-div=false": _APPROXIMATE_DIV,
    "prec-sqrt=false": _APPROXIMATE_SQRT,
}
"""Flags without a value of their own. ``prec-sqrt=true`` is not among them: libdevice's square root, which clang up to
19 calls, is the approximate one."""

_WITH_VALUE: Mapping[str, Callable[[str], tuple[str, ...] | None]] = {
    **dict.fromkeys(("Xptxas", "ptxas-options"), _handed("-Xcuda-ptxas")),
    **dict.fromkeys(("Xcompiler", "compiler-options"), _handed("-Xarch_host")),
    **dict.fromkeys(("Xcudafe", "diag-suppress", "threads", "t"), _nothing),
    "maxrregcount": lambda value: ("-Xcuda-ptxas", f"--maxrregcount={value}"),
    "std": lambda value: (f"-std={value}",),
}
