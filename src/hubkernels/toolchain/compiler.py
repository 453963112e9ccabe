"""The host C++ compiler: which one, how old, and the hash of what it consists of."""

from __future__ import annotations

import hashlib
import json
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
from hubkernels.toolchain.driver import Driver, ask_driver, script_text

CANDIDATES = ("g++", "c++", "clang++")
OLDEST = {"g++": Version((11,)), "clang": Version((14,))}
"""First releases that compile torch's headers as C++20."""

_MACRO = re.compile(r"^#define (\w+) (.*)$", re.MULTILINE)
_SYSTEM_FOLDERS = re.compile(r"^#include <\.\.\.>.*?$(.*?)^End of search list", re.MULTILINE | re.DOTALL)

RUNTIME = ("crtbeginS.o", "crtendS.o", "libgcc.a", "libstdc++.a")
"""Files of the compiler that are linked into a library."""

_SEARCH_VARIABLES = frozenset(
    {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"}
    | {"DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "LD_RUN_PATH", "GNUTARGET", "LDEMULATION", "GCC_COMPARE_DEBUG"}
    | {"NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN"}
    # nvcc's profile adds to these, and so lets in what a Makefile exports under such a name.
    | {"INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS", "NVLINK_FLAGS"}
    | {"NVVM_FLAGS", "OCG_FLAGS", "NV_NVVM_VERSION"}  # no profile has them, and nvcc reads them
)
_FLAG_VARIABLES = ("CCC_", "NIX_CFLAGS", "NIX_CXX", "NIX_LDFLAGS", "NIX_HARDENING")
"""Beginnings of names: those of Nix have the platform at their end."""

_INSTALL = "on Debian and Ubuntu: apt-get install g++"
_CXX_HINT = "CXX is a program, with a launcher before it if you like: CXX='ccache g++'"
_PACKAGES = {
    "libgcc.a": f"{_INSTALL}; on Fedora and its kin: dnf install gcc-c++",
    "libstdc++.a": "on Debian and Ubuntu: apt-get install libstdc++-12-dev, or of your release; "
    "on Fedora and its kin: dnf install libstdc++-static",
}
_PROGRAMS = {"g++": "g++", "clang": "clang++"}


@dataclass(frozen=True)
class Compiler:
    """command: the program, with a launcher such as ccache before it where CXX names one. family: "g++" or "clang".

    fingerprint: SHA-256 over the programs that turn a source into an object, and over what is linked to it.
    runtime: the files that are linked to it, by the names of RUNTIME.
    system: where it looks for headers of its own accord, as it spells the folders, in its order.
    """

    command: tuple[str, ...]
    family: str
    version: Version
    fingerprint: str
    runtime: Mapping[str, Path]
    system: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


def compiler_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that compilers run in: this one, but for what would change objects behind build.toml's back.

    Messages are English, since some are read; ``__DATE__`` is the same on every day.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if name not in _SEARCH_VARIABLES and not name.startswith(_FLAG_VARIABLES)
    }
    return {**kept, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "315532800"}


def find_compiler(environment: Mapping[str, str], hashes: FileHashes) -> Compiler:
    """The compiler that ``CXX`` names, else the first of g++, c++ and clang++ on PATH.

    Raises EnvironmentLacksError when there is none, when it cannot be run, or when it is too old.
    """
    return compiler_at(_locate(environment), environment, hashes)


def compiler_at(command: tuple[str, ...], environment: Mapping[str, str], hashes: FileHashes) -> Compiler:
    """The compiler of a command. Raises EnvironmentLacksError when it cannot be run, or when it is too old."""
    text, system = _ask(command, environment)
    macros = dict(_MACRO.findall(text))
    family, version = _identify(macros)
    if version < OLDEST[family]:
        raise EnvironmentLacksError(
            Problem(
                f"{family} {version} is too old: torch's headers need {family} >= {OLDEST[family]}",
                where=command[-1],
                hint=f"install a newer one and name it, for example CXX={_PROGRAMS[family]}-{OLDEST[family]}",
            )
        )
    driver = ask_driver(command, environment)
    runtime = _runtime(driver, command)
    script = script_text(command[-1], hashes.sha256)  # it may choose by its arguments
    digest = hashlib.sha256(json.dumps([sorted(text.splitlines()), driver.words(), script]).encode())
    for file in (*driver.files(), *map(str, runtime.values())):
        digest.update((hashes.sha256(file) or "").encode())
    return Compiler(command, family, version, digest.hexdigest(), runtime, system)


def _locate(environment: Mapping[str, str]) -> tuple[str, ...]:
    search = environment.get("PATH")
    if chosen := _words(environment.get("CXX", "")):
        found = {word: shutil.which(word, path=search) for word in chosen}
        for word, path in found.items():
            if path is None:
                raise EnvironmentLacksError(Problem(f"no such compiler: {word}", "environment: CXX", _CXX_HINT))
        return tuple(str(Path(path).absolute()) for path in found.values() if path)
    for name in CANDIDATES:
        if path := shutil.which(name, path=search):
            return (str(Path(path).absolute()),)
    raise EnvironmentLacksError(Problem(f"no C++ compiler on PATH (looked for {', '.join(CANDIDATES)})", hint=_INSTALL))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {text!r}: {error}", "environment: CXX", _CXX_HINT)) from error


def _ask(command: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The compiler's predefined macros, which tell what it is whatever its file is called, and its own folders."""
    done = run((*command, "-v", "-dM", "-E", "-x", "c++", "/dev/null"), env=environment, cwd=Path("/"))
    if done.status or not ("__GNUC__ " in done.output or "__clang_major__ " in done.output):
        why = (done.errors.strip().splitlines() or ["it prints no macros"])[-1]
        raise EnvironmentLacksError(Problem(f"{' '.join(command)} is not a working C++ compiler: {why}", hint=_INSTALL))
    return done.output, own_folders(done.errors)


def own_folders(said: str) -> tuple[str, ...]:
    """Where a compiler looks for headers of its own accord, in what it says with ``-v``; empty where it does not."""
    found = _SYSTEM_FOLDERS.search(said)
    return tuple(found[1].rstrip().split("\n ")[1:]) if found else ()


def _identify(macros: Mapping[str, str]) -> tuple[str, Version]:
    if "__clang_major__" in macros:
        family, names = "clang", ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    else:
        family, names = "g++", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    return family, Version(tuple(int(macros.get(name, "0")) for name in names))


def _runtime(driver: Driver, command: tuple[str, ...]) -> dict[str, Path]:
    """GCC's own files; clang uses those of an installed GCC."""
    found = {name: driver.library(name) for name in RUNTIME}
    if missing := [name for name, path in found.items() if path is None]:
        raise EnvironmentLacksError(
            Problem(
                f"the compiler cannot link a library for other machines: no {', '.join(missing)}",
                where=command[-1],
                hint="; ".join(_PACKAGES[name] for name in ("libgcc.a", "libstdc++.a") if name in missing) or _INSTALL,
            )
        )
    return {name: path for name, path in found.items() if path}
