"""A package as the edition-5 build.toml that it amounts to, every line with the place it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.edition import NEWEST_EDITION, PACKAGE_KEYS, UPSTREAM, python_source
from hubkernels.config.load import find_tables
from hubkernels.config.positions import KeyPath, basic_string, format_path
from hubkernels.model.isa import ISAS
from hubkernels.model.project import Package


def edition5_text(package: Package, root: Path) -> str:
    """The edition-5 build.toml of a package of the project in ``root``; its paths start at the package's root.

    What that edition has no word for is spelled out: ``isa`` as its flags, ``parity`` as a comment.
    """
    table, problems = find_tables(package)
    lines = list(_Writer(table, problems, os.path.relpath(problems.document.path, root)).lines())
    usual = python_source(table, package.name, UPSTREAM)
    if package.python_source != usual:
        lines.insert(0, f"# Python files: {package.python_source}, where an edition-5 file has {usual}")
    return "\n".join(lines).strip("\n") + "\n"


class _Writer:
    """Writes the tables of one package, a line a key. origins: knows their places. name: how these spell the file."""

    def __init__(self, table: RawTable, origins: Problems, name: str) -> None:
        self.table = table
        self.origins = origins
        self.name = name

    def lines(self) -> Iterator[str]:
        if "parity" in self.table:
            yield f"# parity = {toml_value(self.table['parity'])}  {self._origin(('parity',))}"
        for key in PACKAGE_KEYS:
            if key in self.table:
                yield from self._table((key,), self.table[key])

    def _table(self, path: KeyPath, table: RawTable) -> Iterator[str]:
        """A header, the keys below it, then the tables in it."""
        own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
        if own or not table:
            yield ""
            yield f"[{format_path(path)}]  # {self._origin(path)}"
        if path == ("general",) and "edition" not in own:
            yield f"edition = {NEWEST_EDITION}  # the file says none"
        yield from self._keys(path, own)
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from self._table((*path, key), value)

    def _keys(self, path: KeyPath, own: RawTable) -> Iterator[str]:
        spelled_out = ("isa", "cxx-flags") if "isa" in own else ()
        if spelled_out:
            flags = [*ISAS[own["isa"]].flags, *own.get("cxx-flags", ())]
            origins = " and ".join(self._origin((*path, key)) for key in spelled_out if key in own)
            yield f"cxx-flags = {toml_value(flags)}  # isa = {toml_value(own['isa'])}, {origins}"
        for key, value in own.items():
            if key not in spelled_out:
                yield f"{format_path((key,))} = {toml_value(value)}  # {self._origin((*path, key))}"

    def _origin(self, path: KeyPath) -> str:
        place = self.origins.origin(path)
        return f"{self.name}:{self.origins.document.line(place)} {format_path(place)}"


def toml_value(value: Any) -> str:  # noqa: ANN401 - whatever a TOML file holds
    """A value on one line."""
    if isinstance(value, str):
        return basic_string(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{format_path((key,))} = {toml_value(item)}' for key, item in value.items())} }}"
    return str(value)
