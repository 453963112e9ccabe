"""The artifacts of a package that are built, each with the variant that its folder's name means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hubkernels.build.select import candidates
from hubkernels.check.builds import find_variants
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import InputError, Problem, did_you_mean
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant


def built_variants(package: Package, folder: Path, tags: Sequence[str]) -> Mapping[Path, AnyVariant]:
    """The artifacts in ``folder``, or those with these tags.

    Raises InputError for a tag that is not built, and for a folder that is no variant of build.toml now.
    """
    built = {path.name: path for path in find_variants(folder)}
    if missing := [tag for tag in tags if tag not in built]:
        hint = did_you_mean(missing[0], built)
        raise InputError(*(Problem(f"{package.name} has no built variant {tag}", hint=hint) for tag in missing))
    known = {variant.tag: variant for variant in candidates(package, load_variant_table())}
    chosen = {tag: path for tag, path in built.items() if not tags or tag in tags}
    if strays := [path for tag, path in chosen.items() if tag not in known]:
        hint = "delete it, or choose others with --variant"
        raise InputError(*(Problem(f"{path} is no variant of build.toml now", hint=hint) for path in strays))
    return {path: known[tag] for tag, path in chosen.items()}
