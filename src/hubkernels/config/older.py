"""Which edition of build.toml a file is written in: edition 5 says its number, older ones are told by their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hubkernels.config.document import RawTable

FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
_SINCE_3 = frozenset({"version", "license", "upstream", "source"})
_TORCH_SINCE_4 = frozenset({"stable-abi", "cxx-flags"})
_DEMANDED_BY_4 = ("version", "license")


def old_edition(table: RawTable) -> int | None:
    """1, 2 or 3 for a file of an edition that is migrated before it is read, else None."""
    general = _table(table, "general")
    if not general or "edition" in general:
        return None
    if "backends" in general:
        since_4 = "torch-noarch" in table or "source" in general or _TORCH_SINCE_4 & _table(table, "torch").keys()
        return 3 if missing_in_3(table) and not since_4 else None
    if _SINCE_3 & general.keys():
        return None  # its backends are missing
    sections = [section for section in _table(table, "kernel").values() if isinstance(section, Mapping)]
    return 1 if "universal" in _table(table, "torch") or any("backend" not in s for s in sections) else 2


def missing_in_3(table: RawTable) -> tuple[str, ...]:
    """What a file with general.backends lacks that edition 4 demands, as its author would spell it."""
    keys = tuple(f"general.{key}" for key in _DEMANDED_BY_4 if key not in _table(table, "general"))
    return keys if any(name in table for name in FRAMEWORKS) else (*keys, "torch-noarch")


def _table(table: RawTable, key: str) -> Mapping[str, Any]:
    found = table.get(key)
    return found if isinstance(found, Mapping) else {}
