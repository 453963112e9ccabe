"""Finished artifacts against the ABI policy: will their libraries load on every system that the variant promises?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.abi.installed import Installed
from hubkernels.abi.library import read_library
from hubkernels.abi.rules import Finding, Subject, find, unchecked
from hubkernels.check.violation import Violation, collect
from hubkernels.config.abi_policy import AbiPolicy
from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.machine import TorchSdk, serves
from hubkernels.model.cpu import CPUS
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant


@dataclass(frozen=True)
class AbiReport:
    """libraries: how many were read. notes: what was not looked at, and why."""

    variant: str
    libraries: int
    violations: tuple[Violation, ...]
    notes: tuple[str, ...] = ()


def check_abi(
    folder: Path, known: Mapping[str, AnyVariant], policy: AbiPolicy, at_hand: Callable[[Variant], Installed | None]
) -> AbiReport:
    """Check every library of one artifact.

    known: what the names of the package's artifacts mean. at_hand: where the symbols of a variant are looked up.
    """
    libraries = sorted(path for path in folder.rglob("*.so*") if path.is_file())
    variant = known.get(folder.name)
    if variant is None:
        what = "is no variant of build.toml now: what its libraries may need is not known"
        return AbiReport(folder.name, 0, (Violation(folder.name, "", what, "delete it, or check others by --variant"),))
    if isinstance(variant, NoarchVariant):
        what = "is a library in a variant of Python alone"
        strange = ((path.relative_to(folder).as_posix(), what) for path in libraries)
        return AbiReport(folder.name, len(libraries), collect(folder.name, strange))
    if variant.platform.os != "linux" or variant.platform.cpu not in CPUS:
        return AbiReport(folder.name, 0, (), (f"not checked: {variant.platform} has no ABI policy here",))
    found: list[tuple[str, str, str]] = []
    notes: list[str] = []
    for path in libraries:
        wrong, open_questions = _check(path, variant, policy, at_hand(variant))
        place = path.relative_to(folder).as_posix()
        found += [(place, finding.what, finding.hint) for finding in wrong]
        notes += [f"{place}: {note}" for note in open_questions]
    return AbiReport(folder.name, len(libraries), collect(folder.name, found), tuple(notes))


def names_in(torch: TorchSdk | None, variant: Variant) -> Installed | None:
    """The libraries of a torch, where it fits a variant."""
    return Installed(torch.lib) if torch and serves(torch, variant) else None


def _check(
    path: Path, variant: Variant, policy: AbiPolicy, torch: Installed | None
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    try:
        library = read_library(path)
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {path}: {error.strerror}")) from error
    if isinstance(library, str):
        return (Finding(library),), ()
    subject = Subject(library, variant, policy, torch)
    missing = unchecked(subject)
    note = f"symbols of {', '.join(missing)} were not looked up: no library of that name and release is at hand"
    return find(subject), (note,) if missing else ()
