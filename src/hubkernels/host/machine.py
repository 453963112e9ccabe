"""What this machine is and what is installed on it, found without importing torch."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.model.cpu import cpu_name
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version

OLDEST_TORCH = Version((2, 10))
_BACKEND_LINE = re.compile(r"""^(cuda|hip|xpu)\b[^=\n]*=\s*['"](\d+(?:\.\d+)?)""", re.MULTILINE)
_BACKENDS = {"hip": "rocm"}  # torch.version says it in its own words
_VERSION_LINE = re.compile(r"""^__version__\s*=\s*['"]([^'"]+)['"]""", re.MULTILINE)


@dataclass(frozen=True)
class TorchSdk:
    """Headers and libraries of one torch release.

    root: the folder of the installed package. backend: the device that it was built for; all of them run on cpu too.
    cuda: the CUDA release that it was built with, if it was.
    """

    release: str
    root: Path
    backend: str = "cpu"
    cuda: Version | None = None

    @property
    def version(self) -> Version:
        return Version.parse(re.match(r"[0-9.]*[0-9]", self.release)[0])  # type: ignore[index]

    @property
    def include(self) -> tuple[Path, ...]:
        return (self.root / "include", self.root / "include/torch/csrc/api/include")

    @property
    def lib(self) -> Path:
        return self.root / "lib"


@dataclass(frozen=True)
class Machine:
    """The platform and the torch that variants are chosen for."""

    platform: Platform
    torch: TorchSdk | None


def this_machine() -> Machine:
    return Machine(Platform(cpu_name(platform.machine()), platform.system().lower()), find_torch())


def find_torch() -> TorchSdk | None:
    """The torch of this interpreter, or None; reads its version file instead of importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return None
    return torch_at(Path(spec.origin).parent)


def torch_at(root: Path) -> TorchSdk | None:
    """The torch whose package is in a folder, or None."""
    try:
        text = (root / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = _VERSION_LINE.search(text)
    return TorchSdk(found[1], root, torch_backend(text), torch_cuda(text)) if found else None


def torch_backend(text: str, system: str = sys.platform) -> str:
    """The backend that a torch was built for, from its version file; on macOS all have metal."""
    found = _BACKEND_LINE.search(text)
    usual = "metal" if system == "darwin" else "cpu"
    return _BACKENDS.get(found[1], found[1]) if found else usual


def torch_cuda(text: str) -> Version | None:
    """The CUDA release that a torch was built with, from its version file."""
    found = _BACKEND_LINE.search(text)
    return Version.parse(found[2]) if found and found[1] == "cuda" else None


def serves(torch: TorchSdk, variant: Variant) -> bool:
    """Whether a torch has what a variant is built and looked up with: with the stable ABI any that is as new."""
    newest = torch.version.minor
    return variant.torch <= newest if variant.stable_abi else variant.torch == newest


def require_torch(machine: Machine) -> TorchSdk:
    """The installed torch, when it is one that kernels can be built for."""
    if machine.torch is None:
        raise EnvironmentLacksError(
            Problem(
                "torch is not installed in this environment",
                hint=f"install torch >= {OLDEST_TORCH}; from an index whose default is CUDA that is up to 3 GB",
            )
        )
    if machine.torch.version < OLDEST_TORCH:
        raise EnvironmentLacksError(
            Problem(
                f"torch {machine.torch.release} is too old: kernels are built for torch >= {OLDEST_TORCH}",
                where=str(machine.torch.root),
                hint="pip install -U torch",
            )
        )
    return machine.torch


def python_include() -> Path:
    """The folder of Python.h. Raises EnvironmentLacksError where the headers are not installed."""
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise EnvironmentLacksError(
            Problem(
                "the Python headers are not installed: no Python.h",
                where=str(folder),
                hint="on Debian and Ubuntu: apt-get install python3-dev",
            )
        )
    return folder
