"""Which SDKs a project's variants are made with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from hubkernels.model.sdk import FIRST_NVCC, SdkName
from hubkernels.model.variant import AnyVariant, NoarchVariant, Platform, Variant


@dataclass(frozen=True)
class Wanted:
    """SDKs in one order, and why some backends have none."""

    names: tuple[SdkName, ...]
    platform: str
    left_out: tuple[str, ...]


def wanted_sdks(variants: Iterable[AnyVariant], platform: Platform) -> Wanted:
    """The SDKs of the variants for a platform. Python files alone need none."""
    compiled = [each for each in variants if not isinstance(each, NoarchVariant) and each.platform == platform]
    names = {name for variant in compiled for name in sdk_names(variant)}
    strange = {each.backend.name for each in compiled if each.backend.name not in {"cpu", "cuda"}}
    left_out = tuple(f"{backend}: no SDK of it is made here" for backend in sorted(strange))
    return Wanted(tuple(sorted(names)), str(platform), left_out)


def without_clang(wanted: Wanted, there: Collection[SdkName]) -> Wanted:
    """Without toolkits that clang compiles with, but for those that are locked: its code is not nvcc's.

    So who wants it names the variant, and no code that nobody asked for is made wherever a clang is.
    """
    of_clang = (name for name in wanted.names if name.kind != "torch" and name.version < FIRST_NVCC)
    unasked = [name for name in of_clang if name not in there]
    releases = ", ".join(dict.fromkeys(str(name.version) for name in unasked))
    told = f"cuda {releases}: no index has its nvcc; `toolchain lock --variant TAG` pins what clang compiles with"
    names = tuple(name for name in wanted.names if name not in unasked)
    return replace(wanted, names=names, left_out=(*wanted.left_out, *((told,) if unasked else ())))


def sdk_names(variant: Variant) -> Iterator[SdkName]:
    """Those of one variant: torch's own headers ask for those of the math libraries, the stable ABI's do not."""
    yield SdkName("torch", variant.torch.minor, str(variant.platform))
    if variant.backend.name == "cuda" and variant.backend_version:
        yield SdkName("cuda", variant.backend_version.minor, str(variant.platform))
        if not variant.stable_abi:
            yield SdkName("cuda-math", variant.backend_version.minor, str(variant.platform))
