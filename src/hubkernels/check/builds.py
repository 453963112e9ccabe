"""Finished artifacts, as the stock client will see them: its demands on names, files and metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubkernels.build.artifacts import choose_built
from hubkernels.check.metadata import backend_type, check_metadata, read_metadata
from hubkernels.check.python_source import check_python
from hubkernels.check.violation import Violation, collect
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.model.artifact import RECORDS
from hubkernels.model.backend import BACKENDS
from hubkernels.model.cpu import CPUS
from hubkernels.model.digest import METADATA

_VERSION = "[0-9]{2,}"  # at least a major and a minor digit
_FRAMEWORK = f"(torch{_VERSION}(-cxx11|-cxx98)?|torch-stable-abi{_VERSION}|tvm-ffi{_VERSION})"
_PLAIN = "|".join(backend.tag for backend in BACKENDS.values() if not backend.versioned)
_VERSIONED = "|".join(backend.tag for backend in BACKENDS.values() if backend.versioned)
_BACKEND = f"(?P<backend>{_PLAIN}|(?P<versioned>{_VERSIONED}))(?(versioned)(?P<version>{_VERSION}))"
_SYSTEM = f"({'|'.join(CPUS)})-(linux|darwin|windows)"
COMPILED = re.compile(f"{_FRAMEWORK}-{_BACKEND}-{_SYSTEM}")
"""Names of compiled variants, as the client's grammar has them for the systems that it runs on."""
NOARCH = re.compile(f"torch-(?P<backend>universal|{'|'.join(backend.device for backend in BACKENDS.values())})")
"""Names of variants of Python files alone that a client can choose: it reads any backend here, and knows these."""
_OWN_NAMES = {spelling: backend.name for backend in BACKENDS.values() for spelling in (backend.tag, backend.device)}
_CUDA_DIGITS = 3  # the client takes the last digit as the minor version: cu1210 would be CUDA 121.0


def check_builds(folder: Path) -> tuple[Violation, ...]:
    """Every violation in the artifacts of one package, sorted."""
    variants = choose_built(folder)
    found = [violation for variant in variants.values() for violation in check_artifact(variant)]
    stray = (path.name for path in folder.iterdir() if path.is_dir() and path.name not in variants)
    found += [
        Violation(name, METADATA, "is missing: the client does not see this folder")
        for name in stray
        if not (name.startswith(".") or name.endswith(RECORDS))
    ]
    return tuple(sorted((*found, *_ties(folder.name, list(variants)))))


def check_artifact(folder: Path) -> tuple[Violation, ...]:
    """Every violation of one artifact, sorted. Raises EnvironmentLacksError where a file cannot be read."""
    try:
        return _check_artifact(folder)
    except FileNotFoundError as error:
        what = f"{error.filename} was removed while it was checked; check again when no build is running"
        return (Violation(folder.name, METADATA, what),)
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {error.filename or folder}: {error.strerror}")) from error


def _check_artifact(folder: Path) -> tuple[Violation, ...]:
    metadata = read_metadata(folder)
    if isinstance(metadata, str):
        return (Violation(folder.name, METADATA, metadata),)
    python_name = str(metadata.get("name", "")).replace("-", "_")
    found = (
        *check_metadata(folder, metadata),
        *_name(folder.name, metadata),
        *_files(folder, metadata),
        *check_python(folder, python_name),
    )
    return collect(folder.name, found)


def _name(name: str, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    parsed = COMPILED.fullmatch(name) or NOARCH.fullmatch(name)
    if parsed is None:
        yield "", "is no variant that the client can choose: it passes over it without a word"
        return
    backend = _backend_of(parsed)
    found = backend_type(metadata)
    if backend not in {"universal", found}:
        yield METADATA, f"backend.type is {found!r} in a folder named for {backend}"
    if parsed["backend"] == "cu" and len(parsed["version"]) > _CUDA_DIGITS:
        yield "", f"has cu{parsed['version']}, which is read as CUDA {parsed['version'][:-1]}.{parsed['version'][-1]}"


def _backend_of(parsed: re.Match[str]) -> str:
    return _OWN_NAMES.get(parsed["backend"], parsed["backend"])


def _files(folder: Path, metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not (folder / "__init__.py").is_file():
        yield "__init__.py", "is missing: there is nothing to import"
    library = f"{metadata.get('id')}.abi3.so"
    present = {path.name for path in folder.glob("*.so")}
    expected = {library} if COMPILED.fullmatch(folder.name) else set()
    for name in sorted(expected - present):
        yield name, "is missing: a compiled variant needs the library of its id"
    for name in sorted(present - expected):
        yield name, "is not the library of this id" if expected else "is a library in a variant without compiled code"


def _ties(package: str, names: list[str]) -> Iterator[Violation]:
    """Variants that the client ranks equally: which one it takes is left to the order of a set."""
    noarch = {_backend_of(found) for name in names if (found := NOARCH.fullmatch(name))}
    for name in names:
        found = COMPILED.fullmatch(name)
        if found and name.startswith("tvm-ffi") and _backend_of(found) in noarch:
            yield Violation(package, name, "stands beside a noarch variant of its backend; the client picks by chance")
