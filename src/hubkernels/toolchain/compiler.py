"""The host C++ compiler: which one, how old, and the hash of what it consists of."""

from __future__ import annotations

import hashlib
import re
import shlex
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
    """command: the program, with a launcher such as ccache before it where CXX names one. family: "g++" or "clang".

    fingerprint: SHA-256 over the programs that turn a source into an object.
    """

    command: tuple[str, ...]
    family: str
    version: Version
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


def find_compiler(environment: Mapping[str, str], hashes: FileHashes) -> Compiler:
    """The compiler that ``CXX`` names, else the first of g++, c++ and clang++ on PATH.

    Raises EnvironmentLacksError when there is none, when it cannot be run, or when it is too old.
    """
    command = _locate(environment)
    macros = _macros(command)
    family, version = _identify(macros)
    if version < OLDEST[family]:
        raise EnvironmentLacksError(
            Problem(
                f"{family} {version} is too old: torch's headers need {family} >= {OLDEST[family]}",
                where=command[-1],
                hint=f"install a newer one and name it, for example CXX={Path(command[-1]).name}-{OLDEST[family]}",
            )
        )
    return Compiler(command, family, version, _fingerprint(command, family, macros.get("__VERSION__", ""), hashes))


def _locate(environment: Mapping[str, str]) -> tuple[str, ...]:
    search = environment.get("PATH")
    chosen = shlex.split(environment.get("CXX", ""))
    if chosen:
        found = [shutil.which(word, path=search) for word in chosen]
        missing = [word for word, path in zip(chosen, found, strict=True) if path is None]
        if missing:
            hint = f"CXX is a program, with a launcher before it if you like: CXX='ccache g++'; or {_INSTALL}"
            raise EnvironmentLacksError(Problem(f"no such compiler: {missing[0]}", "environment: CXX", hint))
        return tuple(path for path in found if path)
    for name in CANDIDATES:
        if path := shutil.which(name, path=search):
            return (path,)
    raise EnvironmentLacksError(Problem(f"no C++ compiler on PATH (looked for {', '.join(CANDIDATES)})", hint=_INSTALL))


def _macros(command: tuple[str, ...]) -> dict[str, str]:
    """The compiler's predefined macros: what it is and how old, whatever its file is called."""
    done = run((*command, "-dM", "-E", "-x", "c++", "/dev/null"))
    macros = dict(_MACRO.findall(done.output))
    if done.status or not ("__GNUC__" in macros or "__clang_major__" in macros):
        why = done.errors.strip() or "it prints no macros"
        raise EnvironmentLacksError(Problem(f"{' '.join(command)} is not a working C++ compiler: {why}", hint=_INSTALL))
    return macros


def _identify(macros: Mapping[str, str]) -> tuple[str, Version]:
    if "__clang_major__" in macros:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        family, names = "g++", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return family, Version(tuple(int(macros.get(name, "0")) for name in names))


def _fingerprint(command: tuple[str, ...], family: str, version_text: str, hashes: FileHashes) -> str:
    programs = [str(Path(command[-1]).resolve())]  # a launcher does not take part in the object
    if family == "g++":  # clang is one program with its libraries; its version text names the build
        named = (run((command[-1], f"-print-prog-name={part}")).output.strip() for part in _PARTS)
        programs += [found for name in named if (found := shutil.which(name))]
    digest = hashlib.sha256(version_text.encode())
    for program in programs:
        digest.update((hashes.sha256(program) or "").encode())
    return digest.hexdigest()
