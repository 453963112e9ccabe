"""The finished folder of one variant, and the metadata that describes it to the client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.model.digest import ALGORITHM
from hubkernels.model.project import KernelDependency, Package, TorchNoarch
from hubkernels.model.variant import AnyVariant
from hubkernels.model.version import Version

NOTE = ".build.json"
RECORDS = ".records"
LIMITED_API = Version((3, 9))
"""The Python whose stable ABI artifacts keep to, abi3: one binary for every later Python."""


@dataclass(frozen=True)
class Artifact:
    """folder: ``build/<package>/<variant>``. fresh: whether this run made it or found it up to date."""

    package: str
    variant: str
    op_id: str
    folder: Path
    fresh: bool


def note_of(folder: Path) -> Path:
    """The file beside an artifact that tells how it was built."""
    return folder.parent / f"{folder.name}{NOTE}"


def records_of(folder: Path) -> Path:
    """The folder beside an artifact with the records of what was measured of it."""
    return folder.parent / f"{folder.name}{RECORDS}"


def metadata(package: Package, variant: AnyVariant, op_id: str, compiled: Iterable[str] = ()) -> dict[str, Any]:
    """metadata.json without its digest: what is equal for every way of building the same thing.

    compiled: the devices that the library holds code for.
    """
    own = package.requirements.get(variant.backend.name)
    depends = (*package.python_depends, *(own.python_depends if own else ()))
    kernels = (*package.kernel_depends, *(own.kernel_depends if own else ()))
    framework = package.framework
    alone = framework.archs.get(variant.backend.name, ()) if isinstance(framework, TorchNoarch) else ()
    archs = sorted({*alone, *compiled})
    links = {"upstream": package.upstream, "source": package.source}
    return {
        "name": package.name,
        "id": op_id,
        "version": package.version,
        "license": package.license,
        **{key: link for key, link in links.items() if link},
        "python-depends": sorted(set(depends)),
        "kernel-depends": [_kernel_dependency(kernel) for kernel in kernels],
        "backend": {"type": variant.backend.name, **({"archs": archs} if archs else {})},
    }


def with_digest(metadata: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    return {**metadata, "digest": {"algorithm": ALGORITHM, "files": files}}


def _kernel_dependency(kernel: KernelDependency) -> dict[str, Any]:
    pin = {"version": kernel.version} if kernel.version is not None else {"revision": kernel.revision}
    return {"repo-id": kernel.repo_id, **pin}
