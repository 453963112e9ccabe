"""SDKs and what pins them: the headers and link stubs of one torch release, or one CUDA toolkit, made of locked wheels.

`toolchain.lock` names no host: whichever index has a file of that name and those bytes may serve it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

from hubkernels.errors import InputError, Problem
from hubkernels.model.version import Version

LOCK = "toolchain.lock"
KINDS = ("cuda", "cuda-math", "torch")
FIRST_NVCC = Version((13, 0))
"""The first release of CUDA whose nvcc is in wheels."""
MENDS = "`kernel-builder toolchain verify` removes what was altered, and `toolchain fetch` brings it again"
"""The way out where an SDK in the store is not as it was made."""
_FORM = 1
_HASH = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9_.+!]+(-[A-Za-z0-9_.+!]+){4,5}\.whl")
_PLATFORM = re.compile(r"[a-z0-9_]+-[a-z]+")
_TEXT = re.compile(r"[^\0\ud800-\udfff]+")
"""What files and links of an archive are called by: JSON can spell a zero byte, too, and half a character."""


@dataclass(frozen=True, order=True)
class SdkName:
    """What a project asks for. version: major and minor of torch or CUDA. platform: where the compiler runs."""

    kind: str
    version: Version
    platform: str

    def __str__(self) -> str:
        return f"{self.kind} {self.version} for {self.platform}"

    @property
    def cuda_folder(self) -> str:
        """Where an SDK of CUDA has its toolkit: as NVIDIA's wheels have it since CUDA 13."""
        return f"nvidia/cu{self.version.parts[0]}"

    @property
    def is_whole(self) -> bool:
        """Whether nearly all of its wheels is taken; of the others' little is."""
        return self.kind == "cuda" and self.version >= FIRST_NVCC


@dataclass(frozen=True)
class Wheel:
    """A wheel that an SDK is made of. path: below the root of its index. record: hash of its list of files' hashes."""

    file: str
    path: str
    sha256: str
    size: int
    record: str

    @property
    def project(self) -> str:
        return self.file.split("-", 1)[0].replace("_", "-")

    @property
    def release(self) -> str:
        return self.file.split("-", 2)[1]


@dataclass(frozen=True)
class LockedSdk:
    """An SDK and all that decides its bytes. tree: hash of its finished folder."""

    name: SdkName
    wheels: tuple[Wheel, ...]
    tree: str


Tree = Mapping[str, str]
"""The files of a folder by path: ``f HASH``, ``x HASH`` for a program, or ``l TARGET`` for a link."""


def tree_hash(tree: Tree) -> str:
    """One name for a whole folder: SHA-256, in hex, of its lines sorted by path."""
    lines = "".join(f"{tree[path]} {path}\n" for path in sorted(tree))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def lock_text(sdks: Iterable[LockedSdk]) -> str:
    """toolchain.lock, in one order."""
    entries = [sdk_to_json(sdk) for sdk in sorted(sdks, key=lambda sdk: sdk.name)]
    return json.dumps({"form": _FORM, "sdks": entries}, indent=2) + "\n"


def sdk_to_json(sdk: LockedSdk) -> dict[str, Any]:
    name = {"kind": sdk.name.kind, "version": str(sdk.name.version), "platform": sdk.name.platform}
    wheels = [dict(vars(wheel)) for wheel in sdk.wheels]
    return {**name, "tree": sdk.tree, "wheels": wheels}


def read_lock(text: bytes, where: str) -> tuple[LockedSdk, ...]:
    """The SDKs of a toolchain.lock. Raises InputError with what is wrong, and where."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"this is no JSON: {error}", where) from error
    if isinstance(found, dict) and isinstance(found.get("form"), int) and found["form"] > _FORM:
        what = f"this lock has the form {found['form']}, and this hubkernels knows {_FORM}"
        raise InputError(Problem(what, where, "a newer hubkernels wrote it: use that one"))
    if not isinstance(found, dict) or found.get("form") != _FORM or not isinstance(found.get("sdks"), list):
        raise _wrong(f'a lock is an object with "form": {_FORM} and a list of "sdks"', where)
    sdks = tuple(read_sdk(entry, f"{where}: sdks[{number}]") for number, entry in enumerate(found["sdks"]))
    twice = {str(sdk.name) for sdk in sdks if sum(other.name == sdk.name for other in sdks) > 1}
    if twice:
        raise _wrong(f"{', '.join(sorted(twice))} is locked twice", where)
    return sdks


def read_sdk(found: object, where: str) -> LockedSdk:
    """One entry of a lock. Raises InputError."""
    if not isinstance(found, dict) or not isinstance(found.get("wheels"), list) or not found["wheels"]:
        raise _wrong("an SDK has a kind, a version, a platform, a tree and wheels", where)
    if found.get("kind") not in KINDS:
        raise _wrong(f"{found.get('kind')!r} is no kind of SDK: there are {', '.join(KINDS)}", f"{where}.kind")
    try:
        version = Version.parse(_text(found, "version", where))
    except ValueError as error:
        raise _wrong(str(error), f"{where}.version") from error
    platform = _text(found, "platform", where, _PLATFORM)
    wheels = tuple(_wheel(entry, f"{where}.wheels[{n}]") for n, entry in enumerate(found["wheels"]))
    if why := _why_not_of(found["kind"], version, wheels[0]):
        raise _wrong(why, f"{where}.version")
    return LockedSdk(SdkName(found["kind"], version, platform), wheels, _text(found, "tree", where, _HASH))


def read_about(found: Mapping[str, object], where: str) -> tuple[LockedSdk, int, Tree]:
    """What an SDK that is kept, or packed, tells of itself, with the form of its recipe. Raises InputError."""
    form, tree = found.get("recipe"), found.get("tree")
    if not isinstance(form, int) or not isinstance(tree, dict) or not all(map(_is_text, (*tree, *tree.values()))):
        raise InputError(Problem("this tells of no SDK", where))
    return read_sdk(found.get("sdk"), where), form, tree


def _why_not_of(kind: str, version: Version, first: Wheel) -> str | None:
    """Why an SDK is not what it is called: its first wheel has its release, but for the math libraries' own."""
    projects = {"torch": "torch", "cuda": "nvidia-cuda-nvcc"}
    if kind not in projects:
        return None
    if not first.project.startswith(projects[kind]):
        return f"{first.file} makes no SDK of {kind}"
    with suppress(ValueError):
        if Version.parse(first.release).minor == version.minor:
            return None
    return f"{first.file} makes no {kind} {version}"


def _wheel(found: object, where: str) -> Wheel:
    if not isinstance(found, dict):
        raise _wrong("a wheel has a file, a path, a size and two hashes", where)
    file = _text(found, "file", where, _FILE)
    path, size = _text(found, "path", where), found.get("size")
    if "://" in path or "@" in path or path.startswith("/") or path.rpartition("/")[2] != file:
        raise _wrong(f"{path!r} is no path of {file} below an index", f"{where}.path")
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise _wrong(f"{size!r} is no size", f"{where}.size")
    return Wheel(file, path, _text(found, "sha256", where, _HASH), size, _text(found, "record", where, _HASH))


def _text(found: Mapping[str, object], key: str, where: str, form: re.Pattern[str] = _TEXT) -> str:
    value = found.get(key)
    if not _is_text(value, form):
        raise _wrong(f"{value!r} cannot stand here", f"{where}.{key}")
    return value


def _is_text(value: object, form: re.Pattern[str] = _TEXT) -> TypeGuard[str]:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _wrong(what: str, where: str) -> InputError:
    return InputError(Problem(what, where, "`kernel-builder toolchain lock --update` writes it anew"))
