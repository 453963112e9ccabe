"""Where the files of a workspace package go in a project of its own: the field's names for the same parts.

`docs/layout.md` has the map.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from hubkernels.model.project import Package

_DISPATCHER = "dispatch"


def field_paths(paths: Collection[str], package: Package) -> Mapping[str, str]:
    """The new path of each file. Where two would share one, every source keeps its own."""
    if not package.home:
        return {path: path for path in paths}  # upstream's form is the field's already
    moved = {path: _field_path(path, package) for path in paths}
    if len(set(moved.values())) < len(moved):
        return {path: _python_path(path, package) or path for path in paths}
    return moved


def _field_path(path: str, package: Package) -> str:
    return _python_path(path, package) or _binding_path(path, package.python_name) or _cpu_path(path) or path


def _python_path(path: str, package: Package) -> str | None:
    folder = f"{package.python_source}/"
    return f"torch-ext/{package.python_name}/{path.removeprefix(folder)}" if path.startswith(folder) else None


def _binding_path(path: str, name: str) -> str | None:
    """The binding has no folder of its own: there is one package."""
    found = re.fullmatch(rf"torch-ext/{name}/(\w+)(\.\w+)", path)
    if found is None:
        return None
    stem, suffix = found.groups()
    return f"{name}_cpu/{name}_cpu_torch{suffix}" if stem == "cpu" else f"torch-ext/torch_{stem}{suffix}"


def _cpu_path(path: str) -> str | None:
    """``cpu/<op>/`` becomes ``<op>_cpu/``: the dispatcher carries its name, and so does a file of one ISA."""
    found = re.fullmatch(r"cpu/(?!include/)(\w+)/(.+)", path)
    if found is None:
        return None
    op, rest = found.groups()
    stem, dot, suffix = rest.rpartition(".")
    if suffix in {"cpp", "cc", "cxx"} and "/" not in rest:
        own = "cpu" if stem == _DISPATCHER else stem
        return f"{op}_cpu/{op}_{own}.{suffix}"
    return f"{op}_cpu/{op}_cpu.hpp" if rest == f"{op}.h" else f"{op}_cpu/{stem}{dot}{suffix}"
