"""The artifacts that are there: which, those that were asked for, and those that build.toml no longer makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from hubkernels.build.select import candidates
from hubkernels.config.variant_table import VariantRow
from hubkernels.errors import InputError, Problem, nearest
from hubkernels.model.digest import METADATA
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant

BUILD_FIRST = "run `kernel-builder build` first"


def built(folder: Path) -> dict[str, Path]:
    """The artifacts directly in a folder, as a rule ``build/<package>``, by name."""
    found = sorted(path.parent for path in folder.glob(f"*/{METADATA}") if not path.parent.name.startswith("."))
    return {path.name: path for path in found}


def choose_built(folder: Path, tags: Iterable[str] = ()) -> dict[str, Path]:
    """The artifacts of a package with these tags, in that order, or all. folder: ``build/<package>``.

    Raises InputError for a tag that is not built, and where nothing is.
    """
    found = built(folder)
    if not found:
        raise InputError(Problem(f"nothing is built in {folder}", hint=BUILD_FIRST))
    wanted = tuple(dict.fromkeys(tags))
    missing = [
        Problem(
            f"{tag} of {folder.name} is not built; built: {', '.join(found)}",
            hint=nearest(tag, found) or "`kernel-builder list-variants` tells which can be",
        )
        for tag in wanted
        if tag not in found
    ]
    if missing:
        raise InputError(*missing)
    return {tag: found[tag] for tag in wanted} if wanted else found


def variants_by_tag(package: Package, rows: Iterable[VariantRow]) -> dict[str, AnyVariant]:
    """What the names of a package's artifacts mean, wherever they are built."""
    return {variant.tag: variant for variant in candidates(package, rows)}


def strays(found: Mapping[str, Path], package: Package, rows: Iterable[VariantRow]) -> tuple[Path, ...]:
    """Artifacts that build.toml no longer makes: the client may prefer one to what is built now."""
    known = variants_by_tag(package, rows)
    return tuple(path for tag, path in found.items() if tag not in known)
