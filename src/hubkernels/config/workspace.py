"""The workspace form of build.toml: several packages in one file, each spelled out as an edition-5 table.

A package's missing key comes from ``[workspace]`` whole, never merged: ``general`` and the framework's table fill key
by key, a kernel section fills from ``[workspace.backend.<backend>]``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.edition import FRAMEWORKS, WORKSPACE, check_defaults
from hubkernels.config.members import KEYS, Pattern
from hubkernels.config.positions import KeyPath
from hubkernels.config.reader import Defaults, Reader

SCHEMA = 1
_INHERITED = ("general", *FRAMEWORKS)


@dataclass
class Expansion:
    """The edition-5 tables of one workspace package, and where in the file each came from."""

    table: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, KeyPath] = field(default_factory=dict)

    def put(self, path: KeyPath, value: object, origin: KeyPath) -> None:
        table = self.table
        for key in path[:-1]:
            table = table[str(key)]
        table[str(path[-1])] = value
        self.origins[path] = origin


@dataclass(frozen=True)
class Written:
    """A value as the file has it, and its key path there."""

    value: object
    path: KeyPath

    def entries(self) -> Mapping[str, Written]:
        table = self.value if isinstance(self.value, dict) else {}
        return {key: Written(value, (*self.path, key)) for key, value in table.items()}


NOTHING = Written(None, ())


def is_workspace(table: RawTable) -> bool:
    """A file with ``[workspace]`` or ``[package.x]`` is in the workspace form."""
    return "workspace" in table or "package" in table


def read_workspace(table: RawTable, problems: Problems) -> tuple[dict[str, Expansion], list[Pattern]]:
    """Return the expansion of every package, by name, and the entries that name members or exclude some."""
    top = Reader(table, (), problems, ("workspace", "package"))
    workspace = _read_defaults(top)
    packages = top.named("package")
    expansions = {
        name: _expand(package, name, workspace.table)
        for name in packages.table
        if (package := packages.below(name, WORKSPACE.package_keys))
    }
    patterns = [(key, index, text) for key in KEYS for index, text in workspace.numbered_texts(key)]
    return expansions, patterns


def _read_defaults(top: Reader) -> Reader:
    """Read what packages inherit, and check it whether one does or not."""
    if "workspace" not in top.table:
        top.complain("missing table [workspace]", hint="begin with [workspace] and schema = 1")
    workspace = top.below("workspace", ("backend", *KEYS, "schema", *_INHERITED))
    if workspace is None:
        return Defaults({}, ("workspace",), top.problems, ())
    if workspace.required_count("schema") not in {None, SCHEMA}:
        workspace.complain(f"schema must be {SCHEMA}", "schema", hint="a newer hubkernels may read it")
    _refuse_name(workspace)
    check_defaults(Defaults(workspace.table, workspace.path, workspace.problems, workspace.table))
    return workspace


def _refuse_name(reader: Reader) -> None:
    if "name" in reader.named("general").table:
        reader.complain("the name of a workspace package is its key", "general", "name")


def _expand(package: Reader, name: str, workspace: RawTable) -> Expansion:
    _refuse_name(package)
    own, common = Written(package.table, package.path).entries(), Written(workspace, ("workspace",)).entries()
    expanded = Expansion(origins={(): package.path})
    for key in ("parity", "kernel"):
        if key in own:
            _fill(expanded, (key,), own[key])
    for key in _inherited_tables(own, common):
        inherited = common.get(key, Written({}, (*package.path, key)))
        _fill(expanded, (key,), own.get(key, Written({}, inherited.path)), inherited)
    if isinstance(expanded.table["general"], dict):
        expanded.put(("general", "name"), name, package.path)
    _fill_sections(expanded, own.get("kernel", NOTHING), common.get("backend", NOTHING))
    return expanded


def _inherited_tables(package: Container[str], workspace: Container[str]) -> list[str]:
    """general always; the framework that the package names, else the workspace's."""
    own = [name for name in FRAMEWORKS if name in package]
    return [name for name in _INHERITED if name in (own or workspace) or name == "general"]


def _fill_sections(expanded: Expansion, kernel: Written, defaults: Written) -> None:
    by_backend = defaults.entries()
    for name, section in kernel.entries().items():
        backend = section.entries().get("backend", NOTHING).value
        common = by_backend.get(backend, NOTHING) if isinstance(backend, str) else NOTHING
        _fill(expanded, ("kernel", name), section, common)


def _fill(expanded: Expansion, path: KeyPath, own: Written, common: Written = NOTHING) -> None:
    """Put a value; into a table, also the keys that it lacks and the common table has."""
    if not isinstance(own.value, dict):
        expanded.put(path, own.value, own.path)  # the edition's reader says what is wrong with it
        return
    expanded.put(path, {}, own.path)
    entries, inherited = own.entries(), common.entries()
    for key in (*entries, *(key for key in inherited if key not in entries)):
        entry = entries.get(key) or inherited[key]
        expanded.put((*path, key), entry.value, entry.path)
