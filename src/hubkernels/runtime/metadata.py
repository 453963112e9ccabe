"""metadata.json of a kernel, as far as loading it goes, and what it asks of the process that loads it."""

from __future__ import annotations

import importlib.util
import json
import keyword
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata as installed
from pathlib import Path
from typing import Any

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, Problem
from hubkernels.host.files import hash_file
from hubkernels.model.client import PYTHON_DEPENDS
from hubkernels.model.digest import ALGORITHM, OUTSIDE, in_hex
from hubkernels.model.project import PACKAGE_NAME
from hubkernels.runtime.proof import Hashes
from hubkernels.runtime.system import own_device

CONTRACT = (0, 17, 2)
"""The client whose contract this room keeps; a kernel that asks for a newer one is the client's to load."""

_LOG = logging.getLogger(__name__)

_ARCH = re.compile(r"([0-9]+)\.([0-9]+)([af]?)(\+PTX)?")
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})")


class BadMetadataError(CheckFailedError, ValueError):
    """metadata.json is not what a kernel has."""


class MissingDependencyError(EnvironmentLacksError, ImportError):
    """A package that the kernel needs is not installed."""


class WrongDeviceError(EnvironmentLacksError, RuntimeError):
    """The kernel does not run here: of another device, or for a newer client."""


@dataclass(frozen=True)
class Metadata:
    """digest: SHA-256 or SHA-512 of files, by path. dirty: what had changes that no commit has."""

    name: str
    id: str
    backend: str
    archs: tuple[str, ...]
    python_depends: tuple[str, ...]
    has_kernel_depends: bool
    minver: tuple[int, ...] | None
    algorithm: str
    digest: Mapping[str, str]
    dirty: tuple[str, ...]

    @property
    def python_name(self) -> str:
        return self.name.replace("-", "_")

    @property
    def is_for_the_client(self) -> bool:
        return self.has_kernel_depends or (self.minver is not None and self.minver > CONTRACT)


def read_metadata(text: bytes, where: str) -> Metadata:
    """Raises BadMetadataError, also for an id that is no name of a module."""
    try:
        found = json.loads(text)
        return _metadata(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        said = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise BadMetadataError(Problem(f"metadata.json: {said}", where)) from error


def _metadata(found: Any) -> Metadata:  # noqa: ANN401 - any JSON
    name, own, backend = str(found["name"]), found["id"], found["backend"]
    if not PACKAGE_NAME.fullmatch(name):
        raise ValueError(f"no name of a kernel: {name!r}")
    if not isinstance(own, str) or not own.isidentifier() or keyword.iskeyword(own):
        raise ValueError(f"the id {own!r} is no name of a module")
    if not isinstance(found["version"], int) or found["version"] < 0:
        raise ValueError(f"no version of a kernel: {found['version']!r}")
    if not isinstance(found["license"], str):
        raise ValueError(f"no licence: {found['license']!r}")  # noqa: TRY004 - of JSON, not of an argument
    digest = found.get("digest") or {"algorithm": "sha256", "files": {}}
    if digest["algorithm"] not in {"sha256", "sha512"}:
        raise ValueError(f"unknown algorithm of the digest: {digest['algorithm']!r}")
    return Metadata(
        name=name,
        id=own,
        backend=str(backend["type"]),
        archs=_texts(backend.get("archs") or []),
        python_depends=_texts(found["python-depends"]),
        has_kernel_depends=bool(found.get("kernel-depends")),
        minver=_minver(found.get("kernels-minver")),
        algorithm=digest["algorithm"],
        digest={str(path): str(value) for path, value in digest["files"].items()},
        dirty=_dirty(found.get("provenance") or {}),
    )


def _texts(found: Any) -> tuple[str, ...]:  # noqa: ANN401
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"no list of names: {found!r}")
    return tuple(found)


def _minver(text: object) -> tuple[int, ...] | None:
    if text is None:
        return None
    match = _VERSION.fullmatch(str(text))
    if match is None:
        raise ValueError(f"kernels-minver is no X.Y.Z: {text!r}")
    return tuple(map(int, match.groups()))


def _dirty(provenance: Mapping[str, Any]) -> tuple[str, ...]:
    parts = {"the kernel's sources": "kernel", "its builder": "kernel-builder"}
    return tuple(words for words, key in parts.items() if (provenance.get(key) or {}).get("dirty") is True)


def check_digest(metadata: Metadata, hashes: Mapping[str, Hashes], where: Path) -> None:
    """Against the digest that the publisher signed, where there is one. Raises CheckFailedError for each file."""
    if not metadata.digest:
        return
    found = {path: each.sha256 for path, each in hashes.items() if path not in OUTSIDE}
    if metadata.algorithm != ALGORITHM:
        found = {path: hash_file(where / path, metadata.algorithm) for path in found}
    promised = {path: in_hex(entry) for path, entry in metadata.digest.items() if path not in OUTSIDE}
    if wrong := [path for path in sorted(promised.keys() | found.keys()) if promised.get(path) != found.get(path)]:
        hint = "it was changed after it was built; build and publish it again"
        raise CheckFailedError(*(Problem(f"{path} is not as metadata.json has it", str(where), hint) for path in wrong))


def check_environment(metadata: Metadata, variant: str) -> None:
    """Python packages, the client's release, and what was built of uncommitted sources. Raises as the client does."""
    _check_packages(metadata)
    _check_minver(metadata, variant)
    if metadata.dirty:
        what = " and ".join(metadata.dirty)
        _LOG.warning("kernel %s, variant %s: %s had changes that no commit has", metadata.name, variant, what)


def _check_packages(metadata: Metadata) -> None:
    if not metadata.python_depends:
        return
    known = {**PYTHON_DEPENDS[""], **PYTHON_DEPENDS.get(own_device().name, {})}
    for name in metadata.python_depends:
        if name not in known:
            what = f"kernel {metadata.name} needs {name!r}, which is no package that kernels may need on this backend"
            raise BadMetadataError(Problem(what))
        package, module = known[name]
        if module and importlib.util.find_spec(module) is None:
            what = f"kernel {metadata.name} needs the package {package}, which is not installed"
            raise MissingDependencyError(Problem(what, hint=f"pip install {package}"))


def _check_minver(metadata: Metadata, variant: str) -> None:
    client = _client()
    if metadata.minver is not None and client is not None and client < metadata.minver:
        wanted = ".".join(map(str, metadata.minver))
        what = f"kernel {metadata.name}, variant {variant}, needs kernels>={wanted}"
        raise WrongDeviceError(Problem(what, hint="pip install -U kernels"))


def _client() -> tuple[int, ...] | None:
    """The release of the client that is installed; None without one, or for a version of no such form."""
    try:
        match = re.match(r"[0-9]+(\.[0-9]+)*", installed.version("kernels"))
    except installed.PackageNotFoundError:
        return None
    return tuple(map(int, match[0].split("."))) if match else None


def check_arch(metadata: Metadata, variant: str) -> None:
    """Raises WrongDeviceError where the build names architectures, and none runs on the current device."""
    own = _current_arch(metadata.backend) if metadata.archs else None
    if own is None or _supports(metadata.archs, own):
        return
    what = f"kernel {metadata.name}, variant {variant}, is built for {', '.join(metadata.archs)}; the device is {own}"
    hint = "a build may run on more than it names (with Triton, say): check_arch=False loads it all the same"
    raise WrongDeviceError(Problem(what, hint=hint))


def _current_arch(backend: str) -> str | None:
    """Of the current device, as builds spell it; None where there is none of this backend."""
    import torch  # noqa: PLC0415 - it is there: the variant was chosen for it

    if backend == "cuda" and torch.version.cuda is not None and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return f"{major}.{minor}"
    if backend == "rocm" and torch.version.hip is not None and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return str(properties.gcnArchName).partition(":")[0]
    return None


def _supports(archs: tuple[str, ...], own: str) -> bool:
    """Of CUDA, spellings that are not known are passed over; where none is known, nothing can be said."""
    device = _ARCH.fullmatch(own)
    if device is None:
        return own in archs
    known = [match for arch in archs if (match := _ARCH.fullmatch(arch))]
    return not known or any(_runs(match, (int(device[1]), int(device[2]))) for match in known)


def _runs(built: re.Match[str], device: tuple[int, int]) -> bool:
    """``9.0a`` on that device alone, ``+PTX`` on all newer ones, others on those of one generation."""
    arch = (int(built[1]), int(built[2]))
    if built[3] == "a":
        return device == arch
    if built[4] and not built[3]:
        return device >= arch
    return device[0] == arch[0] and device[1] >= arch[1]
