"""The host C++ compiler: which one, how old, and the hash of what it consists of."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import FileHashes
from hubkernels.host.process import run
from hubkernels.model.version import Version

CANDIDATES = ("g++", "c++", "clang++")
OLDEST = {"g++": Version((11,)), "clang": Version((14,))}
"""First releases that compile torch's headers as C++20."""

_MACRO = re.compile(r"^#define (\w+) (.*)$", re.MULTILINE)
_PARTS = ("cc1plus", "as", "ld", "collect2")
_INSTALL = "on Debian and Ubuntu: apt-get install g++"


@dataclass(frozen=True)
class Compiler:
    """family: "g++" or "clang". fingerprint: SHA-256 over the programs that turn a source into an object."""

    path: Path
    family: str
    version: Version
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


def find_compiler(environment: Mapping[str, str], hashes: FileHashes) -> Compiler:
    """The compiler that ``CXX`` names, else the first of g++, c++ and clang++ on PATH.

    Raises EnvironmentLacksError when there is none, when it cannot be run, or when it is too old.
    """
    path = _locate(environment)
    macros = _macros(path)
    family, version = _identify(macros)
    if version < OLDEST[family]:
        raise EnvironmentLacksError(
            Problem(
                f"{family} {version} is too old: torch's headers need {family} >= {OLDEST[family]}",
                where=str(path),
                hint=f"install a newer one and name it, for example CXX={path.name}-{OLDEST[family]}",
            )
        )
    return Compiler(path, family, version, _fingerprint(path, family, macros.get("__VERSION__", ""), hashes))


def _locate(environment: Mapping[str, str]) -> Path:
    search = environment.get("PATH")
    chosen = environment.get("CXX")
    if chosen:
        found = shutil.which(chosen, path=search)
        if found is None:
            raise EnvironmentLacksError(
                Problem(f"no such compiler: {chosen}", where="environment: CXX", hint=f"unset CXX, or {_INSTALL}")
            )
        return Path(found)
    for name in CANDIDATES:
        if found := shutil.which(name, path=search):
            return Path(found)
    raise EnvironmentLacksError(
        Problem(f"no C++ compiler on PATH (looked for {', '.join(CANDIDATES)})", hint=_INSTALL)
    )


def _macros(path: Path) -> dict[str, str]:
    """The compiler's predefined macros: what it is and how old, whatever its file is called."""
    done = run((path, "-dM", "-E", "-x", "c++", "/dev/null"))
    macros = dict(_MACRO.findall(done.output))
    if done.status or not ("__GNUC__" in macros or "__clang_major__" in macros):
        raise EnvironmentLacksError(
            Problem(f"{path} is not a working C++ compiler: {done.errors.strip() or 'it prints no macros'}", hint=_INSTALL)
        )
    return macros


def _identify(macros: Mapping[str, str]) -> tuple[str, Version]:
    if "__clang_major__" in macros:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        family, names = "g++", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return family, Version(tuple(int(macros.get(name, "0")) for name in names))


def _fingerprint(path: Path, family: str, version_text: str, hashes: FileHashes) -> str:
    programs = [path.resolve()]
    if family == "g++":  # clang is one program with its libraries; its version text names the build
        named = (run((path, f"-print-prog-name={part}")).output.strip() for part in _PARTS)
        programs += [Path(program) for name in named if (program := shutil.which(name))]
    digest = hashlib.sha256(version_text.encode())
    for program in programs:
        digest.update((hashes.sha256(str(program)) or "").encode())
    return digest.hexdigest()
