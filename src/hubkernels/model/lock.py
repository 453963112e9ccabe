"""Pins: the commit at which each kernel is loaded that something depends on, and the hashes of its files.

kernels.lock is in the form of client 0.17, byte for byte. That form has no room for hashes: they stand beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubkernels.errors import InputError, Problem
from hubkernels.model.client import COMMIT, REPO_ID, REPO_RULE
from hubkernels.model.project import KernelDependency

LOCK = "kernels.lock"
ANEW = "`kernel-builder lock` writes it anew, with the words that it was written with"
_HASHES = ".hashes.json"
_ALGORITHM = "sha256"
_FORM = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")

Files = Mapping[str, str]
"""SHA-256, in hex, of each file of a repository at one commit, by path."""


@dataclass(frozen=True)
class Pin:
    """A dependency as it is declared, and the commit that it stands for."""

    dependency: KernelDependency
    commit: str

    @property
    def key(self) -> str:
        return f"{self.dependency.repo_id}@{self.commit}"

    @property
    def place(self) -> tuple[str, bool, int, str]:
        """Where it stands in the lock: the client sorts so."""
        wanted = self.dependency
        return (wanted.repo_id, wanted.version is None, wanted.version or 0, wanted.revision or "")


@dataclass(frozen=True)
class Lock:
    """pins: sorted, with what pinned kernels depend on. files: by `Pin.key`; None where no hashes were found."""

    pins: tuple[Pin, ...]
    files: Mapping[str, Files] | None = None


def words(dependency: KernelDependency) -> str:
    """How a message, and the command line, names a dependency."""
    pin = dependency.revision if dependency.version is None else dependency.version
    return f"{dependency.repo_id}@{pin}"


def hashes_beside(lock: str) -> str:
    """The name of the file of hashes beside a lock: kernels.hashes.json."""
    return lock.removesuffix(".lock") + _HASHES


def pins_text(pins: Iterable[Pin]) -> str:
    """kernels.lock."""
    entries = [
        {"dependency": dependency_to_json(pin.dependency), "lock": {"commit": pin.commit}}
        for pin in sorted(pins, key=lambda pin: pin.place)
    ]
    return json.dumps(entries, indent=2)


def dependency_to_json(dependency: KernelDependency) -> dict[str, Any]:
    pin = {"revision": dependency.revision} if dependency.version is None else {"version": dependency.version}
    return {"repo-id": dependency.repo_id, **pin}


def hashes_text(files: Mapping[str, Files]) -> str:
    """kernels.hashes.json."""
    kernels = {key: dict(sorted(files[key].items())) for key in sorted(files)}
    return json.dumps({"form": _FORM, "algorithm": _ALGORITHM, "kernels": kernels}, indent=2, ensure_ascii=False) + "\n"


def read_pins(text: bytes, where: str) -> tuple[Pin, ...]:
    """The pins of a kernels.lock. Raises InputError with what is wrong, and where."""
    found = _json(text, where)
    if not isinstance(found, list):
        raise _wrong("a lock is a list of kernels", where)
    return tuple(_pin(entry, f"{where}: [{number}]") for number, entry in enumerate(found))


def _pin(entry: object, where: str) -> Pin:
    if isinstance(entry, dict) and "repo_id" in entry:
        raise _wrong("this is the form of client 0.16", where)
    if not isinstance(entry, dict) or not isinstance(entry.get("lock"), dict):
        raise _wrong('an entry has a "dependency" and a "lock"', where)
    commit = entry["lock"].get("commit")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise _wrong(f"{commit!r} is no full commit", f"{where}.lock.commit")
    return Pin(read_dependency(entry.get("dependency"), f"{where}.dependency"), commit)


def read_dependency(found: object, where: str) -> KernelDependency:
    """A kernel-depends of metadata.json, or the dependency of a lock. Raises InputError."""
    if not isinstance(found, dict):
        raise _wrong("a dependency has a repo-id, and a version or a revision", where)
    repo_id, version, revision = (found.get(key) for key in ("repo-id", "version", "revision"))
    if not isinstance(repo_id, str) or not REPO_ID.fullmatch(repo_id):
        raise InputError(Problem(f"{repo_id!r} is not a repository of the Hub", where, REPO_RULE))
    if isinstance(version, int) and not isinstance(version, bool) and version >= 0 and revision is None:
        return KernelDependency(repo_id, version=version)
    if version is None and isinstance(revision, str) and revision:
        return KernelDependency(repo_id, revision=revision)
    raise _wrong(f"{repo_id} needs either a version, a whole number, or a revision", where)


def read_hashes(text: bytes, where: str) -> dict[str, Files]:
    """What stands beside a lock, by `Pin.key`. Raises InputError."""
    found = _json(text, where)
    known = isinstance(found, dict) and (found.get("form"), found.get("algorithm")) == (_FORM, _ALGORITHM)
    kernels = found.get("kernels") if known else None
    if not isinstance(kernels, dict) or not all(map(_is_files, kernels.values())):
        raise _wrong("these are no hashes of kernels", where)
    return kernels


def _is_files(found: object) -> bool:
    return isinstance(found, dict) and all(
        isinstance(value, str) and _SHA256.fullmatch(value) and is_inside(path) for path, value in found.items()
    )


def is_inside(path: str) -> bool:
    """Whether a path of a repository stays in it."""
    return bool(path) and "\\" not in path and not {"", ".", ".."} & set(path.split("/"))


def _json(text: bytes, where: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"this is no JSON: {error}", where) from error


def _wrong(what: str, where: str) -> InputError:
    return InputError(Problem(what, where, ANEW))
