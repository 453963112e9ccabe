"""What a build says before it fetches."""

from __future__ import annotations

from hubkernels.build.fetching import to_fetch, to_lock
from hubkernels.model.backend import CPU, CUDA
from hubkernels.model.sdk import LockedSdk, SdkName, Wheel
from hubkernels.model.variant import Platform, Variant
from hubkernels.model.version import Version

HERE = Platform("x86_64", "linux")
TORCH = SdkName("torch", Version((2, 10)), str(HERE))
TOOLKIT = SdkName("cuda", Version((13, 0)), str(HERE))
FOR_CPU = Variant(Version((2, 10)), CPU, HERE, stable_abi=True)
FOR_GPU = Variant(Version((2, 10)), CUDA, HERE, Version((13, 0)), stable_abi=True)


def locked(name: SdkName, size: int) -> LockedSdk:
    wheel = Wheel(f"{name.kind}-1-py3-none-any.whl", "x", str(size), size, "0")
    return LockedSdk(name, (wheel,), "0")


def test_how_much_for_which_variants_and_how_to_fetch_less() -> None:
    """Only what each wheel took was told, one after another, and that 115 of 130 MB are CUDA's alone."""
    lacking = {TORCH: locked(TORCH, 915_600_000), TOOLKIT: locked(TOOLKIT, 104_484_191)}
    assert to_fetch([FOR_CPU, FOR_GPU], lacking) == (
        "fetching 104.5 MB (cuda 13.0) and parts of wheels of 915.6 MB (torch 2.10) "
        f"for {FOR_CPU.tag}, {FOR_GPU.tag}; for the CPU alone: --variant {FOR_CPU.tag}"
    )
    del lacking[TORCH]
    assert to_fetch([FOR_CPU, FOR_GPU], lacking) == f"fetching 104.5 MB (cuda 13.0) for {FOR_GPU.tag}"


def test_where_nothing_is_locked_no_size_is_known() -> None:
    assert to_lock([FOR_CPU], [TORCH]) == (
        f"asking the package index for torch 2.10, to lock and fetch for {FOR_CPU.tag}"
    )
