"""Finished artifacts against the ABI policy: will their libraries load on every system that the variant promises?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hubkernels.abi.installed import Installed
from hubkernels.abi.library import read_library
from hubkernels.abi.rules import Subject, find, unchecked
from hubkernels.check.builds import NOARCH
from hubkernels.check.violation import Violation, collect
from hubkernels.config.abi_policy import AbiPolicy
from hubkernels.config.variant_table import VariantRow
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.machine import TorchSdk
from hubkernels.model.cpu import CPUS
from hubkernels.model.variant import Variant


@dataclass(frozen=True)
class AbiReport:
    """libraries: how many were read. notes: what was not looked at, and why."""

    variant: str
    libraries: int
    violations: tuple[Violation, ...]
    notes: tuple[str, ...] = ()


def variants_by_tag(rows: Iterable[VariantRow]) -> dict[str, Variant]:
    """Every variant that the table makes possible, with and without the stable ABI."""
    found = (
        Variant(torch, row.backend, platform, row.version, stable_abi=stable)
        for row in rows
        for torch, platform, stable in product(row.torch, row.platforms, (False, True))
    )
    return {variant.tag: variant for variant in found}


def check_abi(folder: Path, known: dict[str, Variant], policy: AbiPolicy, torch: TorchSdk | None) -> AbiReport:
    """Check every library of one artifact. torch: the installed one, in which symbols of torch are looked up."""
    libraries = sorted(path for path in folder.rglob("*.so*") if path.is_file())
    variant = known.get(folder.name)
    if variant is None and not (NOARCH.fullmatch(folder.name) and not libraries):
        what = "is no variant of the table: what its libraries may need is not known"
        return AbiReport(folder.name, 0, (Violation(folder.name, folder.name, what),))
    if variant is None:
        return AbiReport(folder.name, 0, ())
    if variant.platform.os != "linux" or variant.platform.cpu not in CPUS:
        return AbiReport(folder.name, 0, (), (f"not checked: {variant.platform} has no ABI policy here",))
    found: list[tuple[str, str]] = []
    notes: list[str] = []
    for path in libraries:
        wrong, open_questions = _check(path, variant, policy, _fitting(variant, torch))
        place = path.relative_to(folder).as_posix()
        found += [(place, what) for what in wrong]
        notes += [f"{place}: {note}" for note in open_questions]
    return AbiReport(folder.name, len(libraries), collect(folder.name, found), tuple(notes))


def _fitting(variant: Variant, torch: TorchSdk | None) -> Installed | None:
    """The torch to look symbols up in: with the stable ABI any that is as new, else the same release alone."""
    if torch is None:
        return None
    fits = (
        torch.version.minor >= variant.torch.minor if variant.stable_abi else torch.version.minor == variant.torch.minor
    )
    return Installed(torch.lib) if fits else None


def _check(
    path: Path, variant: Variant, policy: AbiPolicy, torch: Installed | None
) -> tuple[Iterator[str], tuple[str, ...]]:
    try:
        library = read_library(path)
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {path}: {error.strerror}")) from error
    if isinstance(library, str):
        return iter([library]), ()
    subject = Subject(library, variant, policy, torch)
    missing = unchecked(subject)
    note = f"symbols of {', '.join(missing)} were not looked up: no fitting torch is installed here"
    texts = (f"{finding.what}; {finding.hint}" if finding.hint else finding.what for finding in find(subject))
    return texts, (note,) if missing else ()
