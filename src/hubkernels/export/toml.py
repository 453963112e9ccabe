"""A package's tables as the text of an edition-5 build.toml: what only the workspace form has is spelled out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any

from hubkernels.config.document import RawTable
from hubkernels.config.edition import NEWEST_EDITION, PACKAGE_KEYS
from hubkernels.config.explain import toml_value
from hubkernels.config.positions import KeyPath, format_path
from hubkernels.model.isa import ISAS

_WIDTH = 100
_FIRST = ("name", "version", "edition", "backend", "depends")
"""Keys that begin their table; others follow in the order of the file."""


def edition5(table: RawTable, src: Mapping[KeyPath, Sequence[str]], folders: Collection[str]) -> dict[str, Any]:
    """The tables with other ``src`` lists, only those folders for headers, and ``isa`` as its flags."""
    made = {key: _moved((key,), table[key], src, folders) for key in PACKAGE_KEYS if key in table and key != "kernel"}
    made["general"] = {**made["general"], "edition": NEWEST_EDITION}
    sections = table.get("kernel", {})
    kernel = {name: _moved(("kernel", name), _without_isa(sections[name]), src, folders) for name in sections}
    return {**made, **({"kernel": kernel} if kernel else {})}


def _without_isa(section: RawTable) -> RawTable:
    if "isa" not in section:
        return section
    flags = [*ISAS[section["isa"]].flags, *section.get("cxx-flags", ())]
    return {key: value for key, value in section.items() if key != "isa"} | {"cxx-flags": flags}


def _moved(
    path: KeyPath, table: RawTable, src: Mapping[KeyPath, Sequence[str]], folders: Collection[str]
) -> dict[str, Any]:
    moved = dict(table)
    if path in src:
        moved["src"] = list(src[path])
    if "include" in moved:
        moved["include"] = [folder for folder in moved["include"] if normpath(folder) in folders]
    return {key: value for key, value in moved.items() if key != "include" or value}


def write_toml(table: RawTable) -> str:
    """The tables as text, one key a line, long lists one item a line."""
    return "\n".join(line for name in table for line in _lines((name,), table[name])).strip("\n") + "\n"


def _lines(path: KeyPath, table: RawTable) -> Iterator[str]:
    own = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if own or not table:
        yield ""
        yield f"[{format_path(path)}]"
    for key in sorted(own, key=lambda key: _FIRST.index(key) if key in _FIRST else len(_FIRST)):
        yield from _entry(format_path((key,)), own[key])
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _lines((*path, key), value)


def _entry(key: str, value: object) -> Iterator[str]:
    line = f"{key} = {toml_value(value)}"
    if isinstance(value, list) and len(line) > _WIDTH:
        yield f"{key} = ["
        yield from (f"    {toml_value(item)}," for item in value)
        yield "]"
    else:
        yield line
