"""A package as the edition-5 build.toml that it amounts to, every line with the place it comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubkernels.config.document import Document, Problems, RawTable
from hubkernels.config.edition import NEWEST_EDITION, PACKAGE_KEYS, python_source
from hubkernels.config.load import BUILD_TOML, expand_workspace
from hubkernels.config.positions import KeyPath, format_path
from hubkernels.config.workspace import Expansion, is_workspace
from hubkernels.model.isa import ISAS
from hubkernels.model.project import Package


def edition5_text(package: Package, root: Path) -> str:
    """The edition-5 build.toml of a package of the project in ``root``; its paths start at the package's root.

    What that edition has no word for is spelled out: ``isa`` as its flags, ``parity`` as a comment.
    """
    document, expansion = _find(package, root)
    writer = _Writer(document, expansion, os.path.relpath(document.path, root))
    lines = list(writer.lines())
    usual = python_source(expansion.table, package.name)
    if package.python_source != usual:
        lines.insert(0, f"# Python files: {package.python_source}, where an edition-5 file has {usual}")
    return "\n".join(lines).strip("\n") + "\n"


def _find(package: Package, root: Path) -> tuple[Document, Expansion]:
    """The document that declares a package, and its tables: those of a workspace expanded, others as they are."""
    document = Document.read(root / BUILD_TOML)
    if is_workspace(document.table):
        expansions, _ = expand_workspace(document)
        if package.name in expansions:
            return document, expansions[package.name]
        document = Document.read(package.root / BUILD_TOML)
    return document, Expansion(dict(document.table))


class _Writer:
    """Writes the tables of one package, a line a key. name: how the origins spell the file."""

    def __init__(self, document: Document, expansion: Expansion, name: str) -> None:
        self.document = document
        self.table = expansion.table
        self.origins = Problems(document, expansion.origins)
        self.name = name

    def lines(self) -> Iterator[str]:
        if "parity" in self.table:
            yield f"# parity = {_value(self.table['parity'])}  {self._origin(('parity',))}"
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
            yield f"edition = {NEWEST_EDITION}  # the file says none, which stands for 4: it reads the same"
        yield from self._keys(path, own)
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from self._table((*path, key), value)

    def _keys(self, path: KeyPath, own: RawTable) -> Iterator[str]:
        spelled_out = ("isa", "cxx-flags") if "isa" in own else ()
        if spelled_out:
            flags = [*ISAS[own["isa"]].flags, *own.get("cxx-flags", ())]
            origins = " and ".join(self._origin((*path, key)) for key in spelled_out if key in own)
            yield f"cxx-flags = {_value(flags)}  # isa = {_value(own['isa'])}, {origins}"
        for key, value in own.items():
            if key not in spelled_out:
                yield f"{format_path((key,))} = {_value(value)}  # {self._origin((*path, key))}"

    def _origin(self, path: KeyPath) -> str:
        place = self.origins.origin(path)
        return f"{self.name}:{self.document.line(place)} {format_path(place)}"


def _value(value: Any) -> str:  # noqa: ANN401 - whatever a TOML file holds
    """A value on one line."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON lets DEL stand, TOML does not
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{format_path((key,))} = {_value(item)}' for key, item in value.items())} }}"
    return str(value)
