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

from hubkernels.model.backend import BACKENDS
from hubkernels.model.client import COMMIT, GIT_URL, PYTHON_DEPENDS
from hubkernels.model.digest import ALGORITHM, METADATA, digest_folder
from hubkernels.model.project import PACKAGE_NAME

Found = Iterator[tuple[str, str]]

_UID = re.compile(r"[a-z0-9]+")
_THREE_PARTS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){2}")
_VERSIONS = 1 << 64

_FIELDS: Mapping[str, type] = {"name": str, "id": str, "license": str, "python-depends": list, "backend": dict}
_JSON_NAMES: Mapping[type, str] = {str: "string", list: "array", dict: "object"}


def read_metadata(folder: Path) -> dict[str, Any] | str:
    """The metadata of an artifact, or why there is none. Raises OSError where the file cannot be read."""
    try:
        found = json.loads(
            (folder / METADATA).read_bytes().decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse
        )
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair parses, and is no text
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return found if isinstance(found, dict) else "is not a JSON object"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in found if names.count(name) > 1)} stands there twice")
    return found


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def check_metadata(folder: Path, metadata: Mapping[str, Any]) -> Found:
    """Everything that is wrong with the fields, and with the digest of the files beside them."""
    for rule in (_fields, _id, _version_and_license, _python_depends, _kernel_depends, _backend, _links, _provenance):
        for what in rule(metadata):
            yield METADATA, what
    yield from _digest(folder, metadata)


def _fields(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key in (*_FIELDS, "version"):
        if key not in metadata:
            yield f"{key} is missing"
    for key, kind in {**_FIELDS, "kernel-depends": list}.items():
        if key in metadata and not isinstance(metadata[key], kind):
            yield f"{key} must be a JSON {_JSON_NAMES[kind]}, found {metadata[key]!r}"


def _id(metadata: Mapping[str, Any]) -> Iterator[str]:
    name, found = metadata.get("name"), metadata.get("id")
    backend = backend_type(metadata)
    if not isinstance(name, str) or not isinstance(found, str):
        return
    if not PACKAGE_NAME.fullmatch(name):
        yield f"name {name!r} is not a kernel name: lower-case letters, digits and dashes"
    stem = f"_{name.replace('-', '_')}_{backend}_"
    if not found.startswith(stem) or not _UID.fullmatch(found.removeprefix(stem)):
        yield f"id {found!r} is not of the form {stem}<lower-case letters and digits>"


def _version_and_license(metadata: Mapping[str, Any]) -> Iterator[str]:
    if "version" in metadata and not _is_version(metadata["version"]):
        yield f"version must be a whole number from 0 on, found {metadata['version']!r}"
    if metadata.get("license") == "":
        yield "license is empty"


def _is_version(value: object) -> bool:
    return type(value) is int and 0 <= value < _VERSIONS


def _python_depends(metadata: Mapping[str, Any]) -> Iterator[str]:
    backend = backend_type(metadata)
    allowed = sorted({**PYTHON_DEPENDS[""], **PYTHON_DEPENDS.get(backend, {})})
    for name in _list(metadata, "python-depends"):
        if name not in allowed:
            yield f"python-depends names {name!r}, which the client does not know for {backend}: {allowed}"


def _kernel_depends(metadata: Mapping[str, Any]) -> Iterator[str]:
    for entry in _list(metadata, "kernel-depends"):
        keys = set(entry) if isinstance(entry, dict) else set()
        if keys not in ({"repo-id", "version"}, {"repo-id", "revision"}):
            yield f"kernel-depends entries have repo-id and exactly one of version and revision, found {entry!r}"
            continue
        if "version" in entry and not _is_version(entry["version"]):
            yield f"kernel-depends version must be a whole number from 0 on, found {entry['version']!r}"
        for key in sorted(keys - {"version"}):
            if not isinstance(entry[key], str):
                yield f"kernel-depends {key} must be a JSON string, found {entry[key]!r}"


def _backend(metadata: Mapping[str, Any]) -> Iterator[str]:
    backend = metadata.get("backend")
    if not isinstance(backend, dict):
        return
    if backend_type(metadata) not in BACKENDS:
        yield f"backend.type {backend.get('type')!r} is unknown to the client: {sorted(BACKENDS)}"
    archs = backend.get("archs", [])
    if not isinstance(archs, list) or archs != sorted({str(arch) for arch in archs}):
        yield f"backend.archs must be sorted strings without repeats, found {archs!r}"


def _links(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key in ("upstream", "source"):
        if key in metadata and not GIT_URL.fullmatch(str(metadata[key])):
            yield f"{key} is not a git URL of a host with a name: {metadata[key]!r}"
    minver = metadata.get("kernels-minver", "0.0.0")
    if not isinstance(minver, str) or not _THREE_PARTS.fullmatch(minver):
        yield f"kernels-minver must have three parts, found {minver!r}"


def _provenance(metadata: Mapping[str, Any]) -> Iterator[str]:
    if "provenance" not in metadata:
        return
    provenance = metadata["provenance"]
    builder = provenance.get("kernel-builder") if isinstance(provenance, dict) else None
    if not isinstance(builder, dict) or not isinstance(builder.get("version"), str):
        yield f"provenance.kernel-builder.version must be a JSON string, found provenance {provenance!r}"
        return
    if builder.keys() & {"commit", "sha", "dirty"}:
        yield from _git_state("provenance.kernel-builder", builder)
    if "kernel" in provenance:
        yield from _git_state("provenance.kernel", provenance["kernel"])


def _git_state(where: str, state: object) -> Iterator[str]:
    """The commit that a builder or a kernel was at: the client wants commit and dirty, or neither."""
    if not isinstance(state, dict):
        yield f"{where} must be a JSON object, found {state!r}"
        return
    if "sha" in state:
        yield f"{where}.sha is the old name of commit"
    commit, dirty = state.get("commit"), state.get("dirty")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        yield f"{where}.commit must be a full hash, found {commit!r}"
    if not isinstance(dirty, bool):
        yield f"{where}.dirty must be true or false, found {dirty!r}"


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


def backend_type(metadata: Mapping[str, Any]) -> str:
    """The backend that the metadata names; empty where it names none."""
    backend = metadata.get("backend")
    return str(backend.get("type", "")) if isinstance(backend, dict) else ""


def _list(metadata: Mapping[str, Any], key: str) -> list[Any]:
    found = metadata.get(key, [])
    return found if isinstance(found, list) else []
