"""The backends, as a table: what differs between them is in the record, not in the code that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CXX_SUFFIXES = frozenset({".cpp", ".cc", ".cxx"})


@dataclass(frozen=True)
class Backend:
    """One kind of device.

    tag: how a variant tag spells it, before the version digits.
    versioned: whether that spelling carries a version (``cu130``) or not (``cpu``).
    compiles: suffixes of the sources that are compiled; any other file under ``src`` is an input only.
    define: macro by which a binding knows its backend; None where kernels cannot be compiled for it.
    more_defines: macros that torch's headers want for it, and upstream gives.
    device_suffixes: suffixes of the sources that the device's compiler takes.
    device_flags_key: key of a kernel section with the flags of the device's compiler.
    archs_key: key of a kernel section with the devices to compile for.
    more_section_keys: keys of a kernel section that this backend has beside these two and the common ones.
    noarch_name: how the tag of a noarch variant spells it, where that is not its name.
    general_keys: keys of ``[general.<backend>]``, with the edition of build.toml that brought each.
    """

    name: str
    tag: str
    versioned: bool = False
    compiles: frozenset[str] = CXX_SUFFIXES
    define: str | None = None
    more_defines: tuple[str, ...] = ()
    device_suffixes: frozenset[str] = frozenset()
    device_flags_key: str | None = None
    archs_key: str | None = None
    more_section_keys: frozenset[str] = frozenset()
    noarch_name: str | None = None
    general_keys: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def has_sections(self) -> bool:
        """Whether ``[kernel.x]`` may name this backend."""
        return self.define is not None

    @property
    def device(self) -> str:
        """How the tag of a noarch variant spells it."""
        return self.noarch_name or self.name

    @property
    def section_keys(self) -> frozenset[str]:
        """Keys of a kernel section that this backend has beside the common ones."""
        return self.more_section_keys | {key for key in (self.device_flags_key, self.archs_key) if key}


CPU = Backend("cpu", "cpu", define="CPU_KERNEL", more_section_keys=frozenset({"isa"}))
CUDA = Backend(
    "cuda",
    "cu",
    versioned=True,
    compiles=CXX_SUFFIXES | {".cu"},
    define="CUDA_KERNEL",
    more_defines=("USE_CUDA=1",),
    device_suffixes=frozenset({".cu"}),
    device_flags_key="cuda-flags",
    archs_key="cuda-capabilities",
    more_section_keys=frozenset({"cuda-minver"}),
    general_keys={"minver": 4, "maxver": 4, "python-depends": 4, "kernel-depends": 5},
)
ROCM = Backend(
    "rocm",
    "rocm",
    versioned=True,
    compiles=CXX_SUFFIXES | {".cu", ".hip"},
    define="ROCM_KERNEL",
    device_flags_key="hip-flags",
    archs_key="rocm-archs",
)
XPU = Backend(
    "xpu",
    "xpu",
    versioned=True,
    define="XPU_KERNEL",
    device_flags_key="sycl-flags",
    general_keys={"python-depends": 4, "kernel-depends": 5},
)
METAL = Backend("metal", "metal", compiles=CXX_SUFFIXES | {".mm", ".metal"}, define="METAL_KERNEL")
NEURON = Backend("neuron", "neuron", general_keys={"python-depends": 4, "kernel-depends": 5})
TPU = Backend("tpu", "tpu", general_keys={"python-depends": 5})
CANN = Backend("cann", "cann", versioned=True, noarch_name="npu")

BACKENDS: Mapping[str, Backend] = {b.name: b for b in (CPU, CUDA, ROCM, XPU, METAL, NEURON, TPU, CANN)}
