"""Which variant of a kernel is loaded here: the client's rules and the client's order, with a reason for each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hubkernels.runtime.system import TAGS, Device, Release, System

_ABI, _TORCH, _TVM, _NOARCH = "stable-abi", "torch", "tvm-ffi", "noarch"
_UNIVERSAL = "universal"
_PLAIN = frozenset({"cpu", "metal", "neuron", "tpu"})
_OLDEST_MACOS = (26, 0)
_FRAMEWORK = re.compile(
    r"torch-stable-abi(?P<abi>[0-9])(?P<abi_minor>[0-9]+)"
    r"|torch(?P<torch>[0-9])(?P<torch_minor>[0-9]+)(-(?P<cxx>cxx11|cxx98))?"
    r"|tvm-ffi(?P<tvm>[0-9])(?P<tvm_minor>[0-9]+)"
)
_RELEASED = {name: re.compile(rf"{tag}([0-9]+)([0-9])") for name, tag in TAGS.items()}
_ARCH_PARTS = 3


@dataclass(frozen=True)
class Named:
    """A variant, as its folder's name says. kind: of the framework. device: of a noarch variant, its name alone."""

    name: str
    kind: str
    device: Device
    framework: Release = (0, 0)
    cxx11: bool | None = None
    cpu: str = ""
    os: str = ""


@dataclass(frozen=True)
class Decision:
    """reason: what speaks against a variant; None where nothing does."""

    variant: Named
    reason: str | None


def read_variant(name: str) -> Named | None:
    """None for a folder that the client does not take for a variant."""
    if name.startswith("torch-") and not name.startswith("torch-stable-abi"):
        return Named(name, _NOARCH, Device(name.removeprefix("torch-")))
    head = _FRAMEWORK.match(name)
    if head is None or not name[head.end() :].startswith("-"):
        return None
    parts = name[head.end() + 1 :].split("-")
    device = _device(parts[0])
    if device is None or len(parts) != _ARCH_PARTS:
        return None
    kind, cxx = _framework(head), head["cxx"]
    release = (int(head[_GROUPS[kind]]), int(head[f"{_GROUPS[kind]}_minor"]))
    return Named(name, kind, device, release, None if cxx is None else cxx == "cxx11", parts[1], parts[2])


_GROUPS = {_ABI: "abi", _TORCH: "torch", _TVM: "tvm"}


def _framework(head: re.Match[str]) -> str:
    return next(kind for kind, group in _GROUPS.items() if head[group] is not None)


def _device(tag: str) -> Device | None:
    if tag in _PLAIN:
        return Device(tag)
    for name, form in _RELEASED.items():
        match = form.fullmatch(tag)
        if match:
            return Device(name, (int(match[1]), int(match[2])))
    return None


def decide(names: Iterable[str], system: System) -> tuple[Decision, ...]:
    """Every variant, the one to load first; where the client leaves a choice to chance, the first by name."""
    known = (variant for name in sorted(set(names)) if (variant := read_variant(name)))
    decisions = (Decision(variant, reason_against(variant, system)) for variant in known)
    return tuple(sorted(decisions, key=_rank))


def chosen(decisions: tuple[Decision, ...]) -> str | None:
    return decisions[0].variant.name if decisions and decisions[0].reason is None else None


def reason_against(variant: Named, system: System) -> str | None:
    rules = (_noarch,) if variant.kind == _NOARCH else (_importable, _platform, _built_for, _backend)
    return next((why for rule in rules if (why := rule(variant, system))), None)


def _noarch(variant: Named, system: System) -> str | None:
    own = "npu" if system.device.name == "cann" else system.device.name
    fits = variant.device.name in {own, _UNIVERSAL}
    return None if fits else f"for backend {variant.device.name}; chosen is {own}"


def _importable(_: Named, system: System) -> str | None:
    return None if system.abi3 else "compiled for the stable ABI, which Python without the GIL has from 3.15 on"


def _platform(variant: Named, system: System) -> str | None:
    if variant.cpu != system.cpu:
        return f"for CPU {variant.cpu}; this one is {system.cpu}"
    return None if variant.os == system.os else f"for {variant.os}; this is {system.os}"


def _built_for(variant: Named, system: System) -> str | None:
    return _FITS[variant.kind](variant, system)


def _fits_abi(variant: Named, system: System) -> str | None:
    old_enough = system.torch is not None and variant.framework <= system.torch
    return None if old_enough else f"for torch {_text(variant.framework)} and newer; here is {_text(system.torch)}"


def _fits_torch(variant: Named, system: System) -> str | None:
    if variant.framework != system.torch:
        return f"for torch {_text(variant.framework)}; here is {_text(system.torch)}"
    same = variant.cxx11 in {None, system.cxx11}
    return None if same else "for the other C++ ABI of torch"


def _fits_tvm(variant: Named, system: System) -> str | None:
    same = variant.framework == system.tvm_ffi
    return None if same else f"for tvm-ffi {_text(variant.framework)}; here is {_text(system.tvm_ffi)}"


_FITS: dict[str, Callable[[Named, System], str | None]] = {_ABI: _fits_abi, _TORCH: _fits_torch, _TVM: _fits_tvm}


def _backend(variant: Named, system: System) -> str | None:
    own, built = system.device, variant.device
    if own.name == built.name == "cuda" and own.release and built.release:
        runs = own.release[0] == built.release[0] and built.release[1] <= own.release[1]
        return None if runs else f"for CUDA {_text(built.release)}; torch has {_text(own.release)}"
    if own.tag != built.tag:
        return f"for backend {built.tag}; chosen is {own.tag}"
    if built.name == "metal" and (system.macos is None or system.macos < _OLDEST_MACOS):
        return "for metal, which needs macOS 26 or newer"
    return None


def _rank(decision: Decision) -> tuple[int, ...]:
    variant = decision.variant
    refused = int(decision.reason is not None)
    if variant.kind == _NOARCH:
        return (refused, 2, 0, 0, int(variant.device.name == _UNIVERSAL))
    newest = -variant.device.release[1] if variant.device.release else 0
    if variant.kind == _ABI:
        return (refused, 0, -variant.framework[0], -variant.framework[1], newest)
    if variant.kind == _TORCH:
        return (refused, 1, 0, int(variant.cxx11 is not None), newest)
    return (refused, 2, 0, 0, newest)


def _text(release: Release | None) -> str:
    return "none" if release is None else f"{release[0]}.{release[1]}"


def told(decisions: Iterable[Decision]) -> str:
    """A line for each variant."""
    return "\n".join(f"{each.variant.name}: {each.reason or 'fits'}" for each in decisions)
