"""The variant table, `variants.toml`, as values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import tomli

from hubkernels.model.backend import BACKENDS, Backend
from hubkernels.model.variant import Platform
from hubkernels.model.version import Version


@dataclass(frozen=True)
class VariantRow:
    """One backend release, the torch releases made for it and the systems that have both."""

    backend: Backend
    version: Version | None
    torch: tuple[Version, ...]
    platforms: tuple[Platform, ...]


@cache
def load_variant_table() -> tuple[VariantRow, ...]:
    """The table that ships with hubkernels."""
    text = resources.files(__package__).joinpath("variants.toml").read_text(encoding="utf-8")
    return tuple(
        VariantRow(
            BACKENDS[row["backend"]],
            Version.parse(row["version"]) if "version" in row else None,
            tuple(Version.parse(torch) for torch in row["torch"]),
            tuple(Platform(*system.split("-")) for system in row["systems"]),
        )
        for row in tomli.loads(text)["variants"]
    )
