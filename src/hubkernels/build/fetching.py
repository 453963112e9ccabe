"""What a build says before it fetches: how much, for which variants, and how to fetch less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hubkernels.model.backend import CPU
from hubkernels.model.sdk import LockedSdk, SdkName
from hubkernels.model.size import size_text
from hubkernels.model.variant import Variant
from hubkernels.toolchain.sdk.wanted import sdk_names


def to_fetch(variants: Iterable[Variant], lacking: Mapping[SdkName, LockedSdk]) -> str:
    """For who waits. lacking: what is pinned and not in the store."""
    whole = [name for name in lacking if name.is_whole]
    parts = [name for name in lacking if not name.is_whole]
    told = []
    if whole:
        told.append(f"{_size(lacking[name] for name in whole)} ({_listed(whole)})")
    if parts:
        told.append(f"parts of wheels of {_size(lacking[name] for name in parts)} ({_listed(parts)})")
    return f"fetching {' and '.join(told)}{_for(variants, lacking)}"


def to_lock(variants: Iterable[Variant], names: Sequence[SdkName]) -> str:
    """The same where nothing is pinned, and so no size is known."""
    return f"asking the package index for {_listed(names)}, to lock and fetch{_for(variants, names)}"


def _for(variants: Iterable[Variant], names: Iterable[SdkName]) -> str:
    lacking = frozenset(names)
    found = {each.tag: each for each in variants if not lacking.isdisjoint(sdk_names(each))}
    alone = [tag for tag, each in found.items() if each.backend == CPU]
    less = f"; for the CPU alone: --variant {alone[0]}" if alone and len(alone) < len(found) else ""
    return f" for {', '.join(found)}{less}"


def _size(sdks: Iterable[LockedSdk]) -> str:
    return size_text(sum({wheel.sha256: wheel.size for sdk in sdks for wheel in sdk.wheels}.values()))


def _listed(names: Iterable[SdkName]) -> str:
    return ", ".join(f"{name.kind} {name.version}" for name in names)
