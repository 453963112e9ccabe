"""What a kernel is chosen for: this machine and the torch in it, found as the client finds them."""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import sysconfig
from dataclasses import dataclass
from typing import Any

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.model.cpu import cpu_name

Release = tuple[int, int]

TAGS = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu", "cann": "cann"}
"""How the names of variants spell backends that have releases; all others go by their names."""


@dataclass(frozen=True)
class Device:
    """A backend, with its release where variants name one."""

    name: str
    release: Release | None = None

    @property
    def tag(self) -> str:
        return TAGS.get(self.name, self.name) + (f"{self.release[0]}{self.release[1]}" if self.release else "")


CPU = Device("cpu")


@dataclass(frozen=True)
class System:
    """cxx11: of torch's C++ ABI; None where there is only one. abi3: whether compiled variants can be imported."""

    device: Device
    cpu: str
    os: str
    torch: Release | None
    cxx11: bool | None = None
    tvm_ffi: Release | None = None
    macos: tuple[int, ...] | None = None
    abi3: bool = True


class WrongBackendError(InputError, ValueError):
    """A backend was asked for that this torch does not have."""


def this_system(backend: str | None = None) -> System:
    """Raises EnvironmentLacksError without torch, WrongBackendError for a backend that it does not have."""
    torch = _torch()
    own, os = _device(torch), platform.system().lower()
    return System(
        device=_selected(backend, own),
        cpu=cpu_name(platform.machine()),
        os=os,
        torch=_release(torch.__version__),
        cxx11=bool(torch.compiled_with_cxx11_abi()) if os == "linux" else None,
        tvm_ffi=_tvm_ffi(),
        macos=_macos() if os == "darwin" else None,
        abi3=sys.version_info >= (3, 15) or not sysconfig.get_config_var("Py_GIL_DISABLED"),
    )


def own_device() -> Device:
    """The backend of torch itself, whatever was asked for."""
    return _device(_torch())


def _torch() -> Any:  # noqa: ANN401 - torch is no dependency of ours
    try:
        import torch  # noqa: PLC0415 - a second or two, and only who loads a kernel needs it
    except ImportError as error:
        what = "kernels are loaded into torch, which is not installed"
        raise EnvironmentLacksError(Problem(what, hint="pip install 'torch>=2.10'")) from error
    return torch


def _selected(asked: str | None, own: Device) -> Device:
    usable = {CPU.name: CPU, own.name: own}
    if asked is None:
        return own
    if asked not in usable:
        what = f"backend {asked!r} is none of this torch"
        raise WrongBackendError(Problem(what, hint=f"it has: {', '.join(sorted(usable))}"))
    return usable[asked]


def _device(torch: Any) -> Device:  # noqa: ANN401, PLR0911 - one line a backend, in the client's order
    if hasattr(torch.backends, "tpu"):
        return Device("tpu")
    if hasattr(torch, "neuron"):
        return Device("neuron")
    if torch.version.cuda is not None:
        return Device("cuda", _release(torch.version.cuda))
    if torch.version.hip is not None:
        return Device("rocm", _release(torch.version.hip))
    if torch.backends.mps.is_available():
        return Device("metal")
    xpu = getattr(torch.version, "xpu", None)
    if xpu is not None:
        return Device("xpu", (int(xpu[0:4]), int(xpu[5:6])))
    other = getattr(torch._C, "_get_privateuse1_backend_name", None)  # noqa: SLF001 - as the client: torch has no other word for it
    if other is not None and other() == "npu":
        found = _cann()
        return Device("cann", (int(found[0]), int(found[2])))
    return CPU


def _cann() -> str:
    from importlib import import_module  # noqa: PLC0415 - of that backend alone

    return str(import_module("torch_npu.utils.collect_env").get_cann_version())


def _tvm_ffi() -> Release | None:
    if importlib.util.find_spec("tvm_ffi") is None:
        return None
    from importlib import import_module  # noqa: PLC0415 - only where it is installed

    return _release(import_module("tvm_ffi").__version__)


def _macos() -> tuple[int, ...] | None:
    parts = re.findall(r"[0-9]+", platform.mac_ver()[0])
    return tuple(map(int, parts)) or None


def _release(text: str) -> Release:
    parts = [int(part) for part in re.findall(r"[0-9]+", text)[:2]]
    return (parts[0], parts[1] if len(parts) > 1 else 0)
