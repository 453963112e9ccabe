"""metadata.json, as the stock client reads it.

The client parses it into typed fields and fails on the first that does not fit. What it does not look at, the form of
the id and the digest, is checked here too: they decide whether two builds get along in one process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubkernels.model.artifact import METADATA
from hubkernels.model.backend import BACKENDS
from hubkernels.model.digest import ALGORITHM, digest_folder
from hubkernels.model.project import PACKAGE_NAME

Found = Iterator[tuple[str, str]]

PYTHON_DEPENDS: Mapping[str, frozenset[str]] = {
    "": frozenset({"einops", "helion", "tvm-ffi"}),
    "cuda": frozenset({"nvidia-cutlass-dsl"}),
    "xpu": frozenset({"onednn"}),
    "neuron": frozenset({"nki"}),
}
"""Packages that the client lets a kernel depend on: for every backend, and for one. Others fail to load."""

_UID = re.compile(r"[a-z0-9]+")
_GIT_URL = re.compile(r"(git\+)?(https?|ssh|git)://[^\s]+|[\w.-]+@[\w.-]+:[^\s]+")
_THREE_PARTS = re.compile(r"\d+\.\d+\.\d+")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def read_metadata(folder: Path) -> dict[str, Any] | str:
    """The metadata of an artifact, or why there is none."""
    try:
        found = json.loads((folder / METADATA).read_bytes())
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return f"is not JSON: {error}"
    return found if isinstance(found, dict) else "is not a JSON object"


def check_metadata(folder: Path, metadata: Mapping[str, Any]) -> Found:
    """Everything that is wrong with the fields, and with the digest of the files beside them."""
    for rule in (_fields, _id, _version_and_license, _python_depends, _kernel_depends, _backend, _links):
        for what in rule(metadata):
            yield METADATA, what
    yield from _digest(folder, metadata)


def _fields(metadata: Mapping[str, Any]) -> Iterator[str]:
    required = {"name": str, "id": str, "version": int, "license": str, "python-depends": list, "backend": dict}
    for key, kind in required.items():
        if key not in metadata:
            yield f"{key} is missing"
        elif type(metadata[key]) is not kind:
            yield f"{key} must be a JSON {_JSON_NAMES[kind]}, found {metadata[key]!r}"


_JSON_NAMES = {str: "string", int: "integer", list: "array", dict: "object"}


def _id(metadata: Mapping[str, Any]) -> Iterator[str]:
    name, found = metadata.get("name"), metadata.get("id")
    backend = _backend_type(metadata)
    if not isinstance(name, str) or not isinstance(found, str):
        return
    if not PACKAGE_NAME.fullmatch(name):
        yield f"name {name!r} is not a kernel name: lower-case letters, digits and dashes"
    stem = f"_{name.replace('-', '_')}_{backend}_"
    if not found.startswith(stem) or not _UID.fullmatch(found.removeprefix(stem)):
        yield f"id {found!r} is not of the form {stem}<lower-case letters and digits>"


def _version_and_license(metadata: Mapping[str, Any]) -> Iterator[str]:
    version = metadata.get("version")
    if isinstance(version, int) and version < 0:
        yield f"version must not be negative, found {version}"
    if metadata.get("license") == "":
        yield "license is empty"


def _python_depends(metadata: Mapping[str, Any]) -> Iterator[str]:
    backend = _backend_type(metadata)
    allowed = PYTHON_DEPENDS[""] | PYTHON_DEPENDS.get(backend, frozenset())
    for name in _list(metadata, "python-depends"):
        if name not in allowed:
            yield f"python-depends names {name!r}, which the client does not know for {backend}: {sorted(allowed)}"


def _kernel_depends(metadata: Mapping[str, Any]) -> Iterator[str]:
    for entry in _list(metadata, "kernel-depends"):
        keys = set(entry) if isinstance(entry, dict) else set()
        if keys not in ({"repo-id", "version"}, {"repo-id", "revision"}):
            yield f"kernel-depends entries have repo-id and exactly one of version and revision, found {entry!r}"


def _backend(metadata: Mapping[str, Any]) -> Iterator[str]:
    backend = metadata.get("backend")
    if not isinstance(backend, dict):
        return
    if _backend_type(metadata) not in BACKENDS:
        yield f"backend.type {backend.get('type')!r} is unknown to the client: {sorted(BACKENDS)}"
    archs = backend.get("archs", [])
    if not isinstance(archs, list) or archs != sorted({str(arch) for arch in archs}):
        yield f"backend.archs must be sorted strings without repeats, found {archs!r}"


def _links(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key in ("upstream", "source"):
        if key in metadata and not _GIT_URL.fullmatch(str(metadata[key])):
            yield f"{key} is not a git URL: {metadata[key]!r}"
    minver = metadata.get("kernels-minver")
    if minver is not None and not _THREE_PARTS.fullmatch(str(minver)):
        yield f"kernels-minver must have three parts, found {minver!r}"
    if "provenance" in metadata:
        yield from _provenance(metadata["provenance"])


def _provenance(provenance: object) -> Iterator[str]:
    builder = provenance.get("kernel-builder") if isinstance(provenance, dict) else None
    if not isinstance(builder, dict) or "version" not in builder:
        yield "provenance.kernel-builder.version is missing"
        return
    if ("commit" in builder) != ("dirty" in builder):
        yield "provenance.kernel-builder has one of commit and dirty; the client wants both or none"
    if "commit" in builder and not _COMMIT.fullmatch(str(builder["commit"])):
        yield f"provenance.kernel-builder.commit must be a full hash, found {builder['commit']!r}"


def _digest(folder: Path, metadata: Mapping[str, Any]) -> Found:
    digest = metadata.get("digest")
    files = digest.get("files") if isinstance(digest, dict) else None
    if not isinstance(digest, dict) or not isinstance(files, dict):
        yield METADATA, "digest is missing: nobody can tell whether the files are those that were built"
        return
    if digest.get("algorithm") != ALGORITHM:
        yield METADATA, f"digest.algorithm must be {ALGORITHM}, found {digest.get('algorithm')!r}"
        return
    actual = digest_folder(folder)
    for name in sorted(files.keys() | actual.keys()):
        if name not in actual:
            yield name, "is in the digest, but not in the folder"
        elif name not in files:
            yield name, "is in the folder, but not in the digest"
        elif files[name] != actual[name]:
            yield name, "differs from its hash in the digest"


def _backend_type(metadata: Mapping[str, Any]) -> str:
    backend = metadata.get("backend")
    return str(backend.get("type", "")) if isinstance(backend, dict) else ""


def _list(metadata: Mapping[str, Any], key: str) -> list[Any]:
    found = metadata.get(key, [])
    return found if isinstance(found, list) else []
