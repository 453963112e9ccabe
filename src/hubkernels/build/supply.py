"""What there is to build with: SDKs that toolchain.lock pins, and for what it lacks, what is installed here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.host.machine import Machine, TorchSdk, torch_at
from hubkernels.model.backend import CUDA
from hubkernels.model.sdk import FIRST_NVCC, LockedSdk, SdkName
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.cuda import runtime_of
from hubkernels.toolchain.nvcc import Nvcc, why_no_nvcc
from hubkernels.toolchain.sdk.pinned import Pinned, damaged
from hubkernels.toolchain.sdk.wanted import sdk_names


@dataclass(frozen=True)
class Programs:
    """What is looked for on the machine, once it is asked for.

    installed: its nvcc. at: the nvcc of a path. codes: what an nvcc compiles for, as it says itself. compiler: that of
    the host, None where there is none. clang: the one for device code, or why there is none. devices: what it compiles
    for. none_installed: why the machine has no nvcc, where it has none.
    """

    installed: Callable[[], Nvcc | None] = lambda: None
    at: Callable[[str], Nvcc | None] = lambda _: None
    codes: Callable[[Nvcc], Collection[str]] = lambda _: ()
    compiler: Callable[[], Compiler | None] = lambda: None
    clang: Callable[[], Compiler | str] = lambda: "there is no clang++ on PATH"
    devices: Callable[[Compiler], Collection[str]] = lambda _: ()
    none_installed: str = why_no_nvcc({})


class Supply:
    """Headers and compilers by variant. why_none: why no device is compiled for at all, whatever is at hand."""

    def __init__(
        self,
        machine: Machine,
        pinned: Pinned | None = None,
        programs: Programs | None = None,
        why_none: str | None = None,
    ) -> None:
        self.machine = machine
        self.pinned = pinned or Pinned()
        self.why_none = why_none
        self._programs = programs or Programs()
        self._nvccs: dict[str, Nvcc | None] = {}
        self._codes: dict[str, Collection[str]] = {}
        self._clang: Compiler | str | None = None

    def waits(self, kind: str, version: Version) -> bool:
        """Whether an SDK is pinned and not fetched yet: what it can do is not known."""
        return self.pinned.waits(self._name(kind, version))

    def pins(self, kind: str, version: Version) -> bool:
        return self.pinned.get(self._name(kind, version)) is not None

    def torch(self, variant: Variant) -> TorchSdk | None:
        """The headers for a variant: pinned ones, else those of the installed torch, which may not fit."""
        root = self.root("torch", variant.torch)
        return _pinned_torch(root) if root else self.machine.torch

    def nvcc(self, release: Version) -> Nvcc | None:
        """The nvcc for a release: the pinned one, else the machine's, which may be of another release."""
        root = self.toolkit(release) if release >= FIRST_NVCC else None
        path = str(root / "bin/nvcc") if root else ""
        if path not in self._nvccs:
            self._nvccs[path] = self._programs.at(path) if path else self._programs.installed()
        return self._nvccs[path]

    @property
    def none_installed(self) -> str:
        """Why the machine has no nvcc, where it has none."""
        return self._programs.none_installed

    def runtime(self, variant: Variant) -> Path | None:
        """The folder of the libcudart that a variant of CUDA names, where its toolkit is at hand."""
        release = variant.backend_version
        if variant.backend != CUDA or release is None or (self.takes_pinned(release) and self.waits("cuda", release)):
            return None
        top = self.toolkit(release) if self.takes_pinned(release) else self._top(release)
        found = runtime_of(top, variant.platform.cpu, release) if top else None
        return found.parent if found else None

    def _top(self, release: Version) -> Path | None:
        """The folder of the machine's own toolkit, where it is of a release."""
        nvcc = self.nvcc(release)
        return Path(nvcc.own["TOP"]) if nvcc and nvcc.release.minor == release and "TOP" in nvcc.own else None

    def toolkit(self, release: Version) -> Path | None:
        """The folder of a pinned toolkit."""
        name = self._name("cuda", release)
        root = self.pinned.root(name)
        return root / name.cuda_folder if root else None

    def by_clang(self, release: Version) -> bool:
        """Whether clang is to compile for a release: a toolkit without nvcc is pinned, and the machine's is another."""
        if release >= FIRST_NVCC or not self.pins("cuda", release):
            return False
        own = self.nvcc(release)
        return own is None or own.release.minor != release

    def clang(self) -> Compiler | str:
        """The clang for device code, or why there is none."""
        if self._clang is None:
            self._clang = self._programs.clang()
        return self._clang

    def codes(self, program: Nvcc | Compiler) -> Collection[str]:
        """What a compiler of device code compiles for: ``90a``. An nvcc tells them without the letters."""
        path = program.path if isinstance(program, Nvcc) else program.command[-1]
        if path not in self._codes:
            self._codes[path] = self._ask_codes(program)
        return self._codes[path]

    def _ask_codes(self, program: Nvcc | Compiler) -> Collection[str]:
        if isinstance(program, Compiler):
            return self._programs.devices(program)
        return frozenset(f"{code}{letter}" for code in self._programs.codes(program) for letter in ("", "a", "f"))

    def compiler(self) -> Compiler | None:
        return self._programs.compiler()

    def math(self, release: Version) -> Path | None:
        """The folder of headers of the math libraries, where those are pinned."""
        name = self._name("cuda-math", release)
        root = self.pinned.root(name) if self.takes_pinned(release) else None
        return root / name.cuda_folder / "include" if root else None

    def takes_pinned(self, release: Version) -> bool:
        """Whether the toolkit for a release is a pinned one."""
        return self.by_clang(release) if release < FIRST_NVCC else self.pins("cuda", release)

    def newest_torch(self) -> TorchSdk | None:
        """The installed torch, else the newest that is pinned, fetched if need be: for what no variant is asked of."""
        pinned = [name for name in self.pinned.names() if name.kind == "torch"]
        if self.machine.torch or not pinned:
            return self.machine.torch
        return _pinned_torch(self.pinned.fetch(pinned[-1]))

    def fetch(self, variants: Iterable[Variant]) -> bool:
        """Bring what is pinned for variants; tells whether anything had to be."""
        lacking = self.lacking(variants)
        for name in lacking:
            self.pinned.fetch(name)
        return bool(lacking)

    def lacking(self, variants: Iterable[Variant]) -> dict[SdkName, LockedSdk]:
        """What is pinned for variants, is taken, and is not in the store."""
        names = dict.fromkeys(name for variant in variants for name in self._names(variant) if self.pinned.waits(name))
        return {name: sdk for name in names if (sdk := self.pinned.get(name))}

    def trees(self, variant: Variant) -> dict[str, str]:
        """The pinned SDKs of a variant, by their hashes."""
        found = ((name, self.pinned.get(name)) for name in self._names(variant))
        return {f"{name.kind} {name.version}": sdk.tree for name, sdk in found if sdk}

    def refuse_altered(self, variant: Variant, read: Mapping[str, str]) -> None:
        """Raises InputError where one of these files, given with its SHA-256, is not as the lock pins it."""
        for name in self._names(variant):
            self.pinned.refuse_altered(name, read)

    def _names(self, variant: Variant) -> Iterator[SdkName]:
        """The SDKs that a variant takes, pinned or not."""
        release = variant.backend_version
        own = variant.backend == CUDA and release is not None and not self.takes_pinned(release)
        return (name for name in sdk_names(variant) if name.kind == "torch" or not own)

    def _name(self, kind: str, version: Version) -> SdkName:
        return SdkName(kind, version.minor, str(self.machine.platform))

    def root(self, kind: str, version: Version) -> Path | None:
        """The folder of an SDK that is pinned and fetched."""
        return self.pinned.root(self._name(kind, version))


def _pinned_torch(root: Path) -> TorchSdk:
    """The headers of a fetched SDK. Another torch in their stead would make other bytes than the lock says."""
    torch = torch_at(root / "torch")
    if torch is None:
        raise damaged(root / "torch/version.py", "is not there as the SDK has it")
    return torch
