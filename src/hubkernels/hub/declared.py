"""Which kernels a project depends on, as it declares them; and as the command line names them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli

from hubkernels.config import load_project
from hubkernels.config.members import BUILD_TOML
from hubkernels.errors import InputError, Problem
from hubkernels.host.files import read_errors, read_regular
from hubkernels.model.client import COMMIT, REPO_ID, REPO_RULE
from hubkernels.model.lock import words
from hubkernels.model.project import KernelDependency, Package

PYPROJECT = "pyproject.toml"
_KEYS = ("tool", "kernels", "dependencies")
_VERSION = re.compile(r"v?([0-9]{1,9})")


def declared(folder: Path) -> tuple[KernelDependency, ...]:
    """Where the client looks, pyproject.toml; else the kernel-depends of build.toml. Raises InputError for neither."""
    found = _of_pyproject(folder / PYPROJECT)
    if found is None and (folder / BUILD_TOML).exists():
        found = tuple(dict.fromkeys(kernel for each in load_project(folder).packages for kernel in _of_package(each)))
    if found:
        return found
    what = f"no kernel to lock: neither [{'.'.join(_KEYS)}] of {PYPROJECT} nor kernel-depends of {BUILD_TOML} has one"
    raise InputError(Problem(what, str(folder), "name them: kernel-builder lock OWNER/NAME@VERSION"))


def _of_package(package: Package) -> Iterator[KernelDependency]:
    own = [kernel for each in package.requirements.values() for kernel in each.kernel_depends]
    for kernel in (*package.kernel_depends, *own):
        if kernel.version is None and not COMMIT.fullmatch(kernel.revision or ""):
            what = f"{package.name} takes {words(kernel)} as kernel-depends: a branch or a tag, which can move"
            hint = f"`kernel-builder lock {words(kernel)} --output FILE` tells its commit; or name a version"
            raise InputError(Problem(what, str(package.root / BUILD_TOML), hint))
        yield kernel


def _of_pyproject(file: Path) -> tuple[KernelDependency, ...] | None:
    """None where it has no such table. The client takes versions alone there."""
    if not file.exists():
        return None
    with read_errors(file):
        text = read_regular(file)
    try:
        table: Any = tomli.loads(text.decode())
    except ValueError as error:
        raise InputError(Problem(f"this is no TOML: {error}", str(file))) from error
    for key in _KEYS:
        table = table.get(key) if isinstance(table, dict) else None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise InputError(Problem("this is no table", f"{file}: {'.'.join(_KEYS)}", '"OWNER/NAME" = 1'))
    return tuple(_versioned(repo_id, version, file) for repo_id, version in table.items())


def _versioned(repo_id: str, version: object, file: Path) -> KernelDependency:
    where = f'{file}: {".".join(_KEYS)}."{repo_id}"'
    if not REPO_ID.fullmatch(repo_id):
        raise InputError(Problem(f"{repo_id} is not a repository of the Hub", where, REPO_RULE))
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise InputError(
            Problem(f"{version!r} is no version", where, "the client takes a whole number here, such as 1")
        )
    return KernelDependency(repo_id, version=version)


def parse_word(word: str) -> KernelDependency:
    """``OWNER/NAME[@VERSION|@REVISION]``; with neither, version and revision are None. Raises InputError."""
    repo_id, _, pin = word.partition("@")
    if not REPO_ID.fullmatch(repo_id) or word.endswith("@"):
        hint = f"OWNER/NAME, OWNER/NAME@1 or OWNER/NAME@COMMIT; {REPO_RULE}"
        raise InputError(Problem(f"{word} is not a repository of the Hub", hint=hint))
    if not pin:
        return KernelDependency(repo_id)
    version = None if COMMIT.fullmatch(pin) else _VERSION.fullmatch(pin)
    return KernelDependency(repo_id, version=int(version[1])) if version else KernelDependency(repo_id, revision=pin)
