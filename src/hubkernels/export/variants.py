"""The artifacts of a package that are built, each with the variant that its folder's name means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hubkernels.build.artifacts import choose_built, strays, variants_by_tag
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import InputError, Problem
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, NoarchVariant


def built_variants(package: Package, folder: Path, tags: Sequence[str]) -> Mapping[Path, AnyVariant]:
    """The artifacts in ``folder``, or those with these tags.

    Raises InputError for a tag that is not built, and for a folder that is no variant of build.toml now.
    """
    chosen, rows = choose_built(folder, tags), load_variant_table()
    hint = "delete it, or choose others with --variant"
    if problems := [
        Problem(f"{path} is no variant of build.toml now", hint=hint) for path in strays(chosen, package, rows)
    ]:
        raise InputError(*problems)
    known = variants_by_tag(package, rows)
    return {path: known[tag] for tag, path in chosen.items()}


def refuse_rivals(package: Package, variants: Iterable[AnyVariant]) -> None:
    """Raises InputError for several variants of Python alone: their wheels fit every machine, and pip takes any."""
    rivals = [variant.tag for variant in variants if isinstance(variant, NoarchVariant)]
    if len(rivals) > 1:
        what = f"{package.name} is built for {', '.join(rivals)}, and pip cannot tell their wheels apart"
        raise InputError(Problem(what, hint=f"name the one to write: --variant {rivals[0]}"))
