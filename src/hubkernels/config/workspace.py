"""The workspace form of build.toml: several packages in one file, each spelled out as an edition-5 table.

A package's missing key comes from ``[workspace]`` whole, never merged: ``general`` and the framework's table fill key
by key, a kernel section fills from ``[workspace.backend.<backend>]``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.edition import FRAMEWORKS, PACKAGE_KEYS
from hubkernels.config.positions import KeyPath
from hubkernels.config.reader import Reader
from hubkernels.errors import did_you_mean
from hubkernels.model.backend import BACKENDS

EXTENSIONS = ("isa", "parity")
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
            table = table.setdefault(str(key), {})
        table[str(path[-1])] = value
        self.origins[path] = origin


def is_workspace(table: RawTable) -> bool:
    """A file with ``[workspace]`` or ``[package.x]`` is in the workspace form."""
    return "workspace" in table or "package" in table


def read_workspace(table: RawTable, problems: Problems) -> tuple[dict[str, Expansion], tuple[str, ...]]:
    """Return the expansion of every package, by name, and the members' folders."""
    top = Reader(table, (), problems, ("workspace", "package"))
    workspace = top.below("workspace", ("backend", "members", "schema", *_INHERITED))
    if workspace is None:
        problems.add((), "missing table [workspace]", hint="begin with [workspace] and schema = 1")
        workspace = Reader({"schema": SCHEMA}, ("workspace",), problems, ("schema",))
    if workspace.required_count("schema") != SCHEMA:
        workspace.complain(f"schema must be {SCHEMA}", "schema", hint="a newer hubkernels may read it")
    workspace.below("backend", BACKENDS)
    packages = table.get("package", {})
    readers = top.below("package", packages if isinstance(packages, dict) else ())
    names = readers.table if readers else {}
    return {
        name: _expand(readers, name, workspace.table) for name in names if readers and _is_table(readers, name)
    }, workspace.texts("members")


def _is_table(readers: Reader, name: str) -> bool:
    found = isinstance(readers.table[name], dict)
    if not found:
        readers.complain(f"package.{name} must be a table", name)
    return found


def _expand(packages: Reader, name: str, workspace: RawTable) -> Expansion:
    package: RawTable = packages.table[name]
    home: KeyPath = ("package", name)
    expanded = Expansion(origins={(): home})
    _check_keys(packages, name)
    for key in ("parity", "kernel"):
        if key in package:
            expanded.put((key,), package[key], (*home, key))
    for table in _inherited_tables(package, workspace):
        expanded.put((table,), {}, (*home, table) if table in package else ("workspace", table))
        _fill(expanded, (table,), package.get(table, {}), home, workspace.get(table, {}), ("workspace",))
    if "general" in expanded.table:
        expanded.put(("general", "name"), name, home)
    if isinstance(package.get("kernel"), dict):
        expanded.table["kernel"] = {}
        for section in package["kernel"]:
            _fill_section(expanded, section, package["kernel"][section], home, workspace)
    return expanded


def _check_keys(packages: Reader, name: str) -> None:
    package = packages.table[name]
    for key in package:
        if key not in (*PACKAGE_KEYS, "parity"):
            packages.complain(f"unknown key {key}", name, key, hint=did_you_mean(key, (*PACKAGE_KEYS, "parity")))
    general = package.get("general")
    if isinstance(general, dict) and "name" in general:
        packages.complain("the name of a workspace package is its key", name, "general", "name")


def _inherited_tables(package: RawTable, workspace: RawTable) -> list[str]:
    """general always; the framework that the package names, else the workspace's."""
    own = [name for name in FRAMEWORKS if name in package]
    return [name for name in _INHERITED if name in (own or workspace) or name == "general"]


def _fill(  # noqa: PLR0913, PLR0917 - two tables, each with its place, and where the result goes
    expanded: Expansion, path: KeyPath, own: object, home: KeyPath, common: object, common_home: KeyPath
) -> None:
    if not isinstance(own, dict) or not isinstance(common, dict):
        expanded.put(path, own, (*home, *path))  # the edition's reader says what is wrong with it
        return
    for key, value in own.items():
        expanded.put((*path, key), value, (*home, *path, key))
    for key, value in common.items():
        if key not in own:
            expanded.put((*path, key), value, (*common_home, *path, key))


def _fill_section(expanded: Expansion, name: str, own: object, home: KeyPath, workspace: RawTable) -> None:
    path: KeyPath = ("kernel", name)
    expanded.put(path, own, (*home, *path))
    if not isinstance(own, dict):
        return
    expanded.table["kernel"][name] = dict(own)
    backend = own.get("backend")
    defaults = workspace.get("backend", {})
    common = defaults.get(backend, {}) if isinstance(defaults, dict) and isinstance(backend, str) else {}
    if isinstance(common, dict):
        for key, value in common.items():
            if key not in own:
                expanded.put((*path, key), value, ("workspace", "backend", str(backend), key))
