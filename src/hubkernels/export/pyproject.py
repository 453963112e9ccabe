"""A package as a CMake and setuptools tree, for editable installs and editors."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.build.pipeline import Builder
from hubkernels.build.plan import OPS_PY, UID_LENGTH
from hubkernels.build.sources import shipped_python
from hubkernels.errors import InputError, Problem
from hubkernels.export.cmake import WITH_CMAKE, cmake_lists, tree_backends, tree_variant
from hubkernels.export.files import named_sources, search_of
from hubkernels.export.includes import Tree
from hubkernels.export.toml import write_toml
from hubkernels.host.files import hash_file
from hubkernels.host.git import git_state
from hubkernels.model.artifact import LIMITED_API, metadata
from hubkernels.model.backend import Backend
from hubkernels.model.client import COMMIT
from hubkernels.model.project import Framework, Package, Torch, TorchNoarch, TvmFfi

TREE = Path(__file__).with_name("tree")
_UNIQUE_ID = re.compile("[a-z0-9]+")


@dataclass(frozen=True)
class Stamp:
    """What marks the builds of one tree. kernel: the git state of the package, for its metadata."""

    unique_id: str
    kernel: Mapping[str, Any] | None


def stamp(
    package: Package, environment: Mapping[str, str], unique_id: str | None, sha: str | None, *, dirty: bool
) -> Stamp:
    """The stamp that was asked for; else the hash of the package's files, and the state of its repository."""
    if unique_id is not None and not _UNIQUE_ID.fullmatch(unique_id):
        raise InputError(Problem(f"{unique_id!r} is not an id", "--unique-id", "lower-case letters and digits"))
    if sha is not None and not COMMIT.fullmatch(sha):
        raise InputError(Problem(f"{sha!r} is not a commit", "--kernel-sha", "40 or 64 hexadecimal digits"))
    if dirty and sha is None:
        raise InputError(Problem("--kernel-dirty says of which commit", hint="give --kernel-sha too"))
    state = {"commit": sha, "dirty": dirty} if sha else git_state(package.root, environment)
    return Stamp(unique_id or _content_id(package), state)


def _content_id(package: Package) -> str:
    tree = Tree(package.root, search_of(package))
    named = {path for paths in named_sources(package).values() for path in paths}
    files = sorted({*tree.reach(named), *(path for _, path in shipped_python(package))})
    lines = "".join(f"{path} {hash_file(package.root / path)}\n" for path in files)
    return base64.b32encode(hashlib.sha256(lines.encode()).digest()).decode().lower()[:UID_LENGTH]


_WITHOUT_ONE: Mapping[type[Framework], str] = {
    TorchNoarch: "it compiles nothing: `kernel-builder build`, then `testshell`, or `export --wheel` for pip",
    TvmFfi: "there is one for [torch]",
}
"""The way out where no part of a package is compiled by CMake."""


def render_tree(package: Package, builder: Builder, target: Path, mark: Stamp) -> dict[str, str]:
    """Every file of the tree for a package in upstream's form: its path below ``target``, and its text."""
    framework = package.framework
    if not isinstance(framework, Torch) or package.home:
        what = f"{package.name} has no CMake tree"
        hint = "`kernel-builder export` writes upstream's form first" if package.home else _WITHOUT_ONE[type(framework)]
        raise InputError(Problem(what, where=str(package.root / "build.toml"), hint=hint))
    if not tree_backends(package):
        names = ", ".join(backend.name for backend in WITH_CMAKE)
        raise InputError(Problem(f"{package.name} has no CMake tree", hint=f"there is one for {names}"))
    kernel = os.path.relpath(os.path.realpath(package.root), os.path.realpath(target))
    words = {"PYTHON_NAME": package.python_name, "UNIQUE_ID": mark.unique_id}
    own = builder.tools().own_include
    headers = {f"cmake/include/{path.relative_to(own)}": path for path in own.rglob("*.h")}
    return {
        "CMakeLists.txt": cmake_lists(package, builder, kernel, mark.unique_id),
        "setup.py": _fill("setup.py.in", words),
        "pyproject.toml": _pyproject(package, kernel),
        "cmake/torch.cmake": _fill("torch.cmake", {}),
        "cmake/kernel.cmake": _fill("kernel.cmake", {}),
        "cmake/torch_facts.py": _fill("torch_facts.py.in", {}),
        "cmake/_ops.py.in": OPS_PY.format(op_id="@OPS_NAME@"),
        **{name: path.read_text(encoding="utf-8") for name, path in sorted(headers.items())},
        **{
            f"cmake/metadata-{backend.name}.json": _metadata(package, backend, builder, mark)
            for backend in tree_backends(package)
        },
    }


def _fill(name: str, words: Mapping[str, str]) -> str:
    text = (TREE / name).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _metadata(package: Package, backend: Backend, builder: Builder, mark: Stamp) -> str:
    op_id = f"_{package.python_name}_{backend.name}_{mark.unique_id}"
    own = {"kernel-builder": {"version": __version__}, **({"kernel": mark.kernel} if mark.kernel else {})}
    text = {**metadata(package, tree_variant(package, backend, builder), op_id), "provenance": own}
    return json.dumps(text, indent=2) + "\n"


def _pyproject(package: Package, kernel: str) -> str:
    """Names, what is needed, and where the Python files are."""
    source = os.path.normpath(os.path.join(kernel, "torch-ext"))  # noqa: PTH118 - a path in a file
    suffixes = [f"**/*.{suffix}" for suffix in package.framework.python_suffixes]
    table = {
        "build-system": {
            "requires": ["cmake>=3.24", "ninja", "setuptools>=77", "torch"],
            "build-backend": "setuptools.build_meta",
        },
        "project": {
            "name": package.name,
            "version": str(package.version),
            "requires-python": f">={LIMITED_API}",
            "dependencies": ["torch"],
        },
        "tool": {
            "setuptools": {
                "package-dir": {"": source},
                "packages": {"find": {"where": [source], "include": [f"{package.python_name}*"]}},
                "package-data": {package.python_name: suffixes},
            }
        },
    }
    return "# Written by `kernel-builder create-pyproject`.\n" + write_toml(table)
