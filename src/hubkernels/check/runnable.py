"""Which built artifacts this machine can load, and the reason for each that it cannot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.artifacts import choose_built
from hubkernels.build.pipeline import Builder
from hubkernels.errors import Problem
from hubkernels.host.machine import Machine
from hubkernels.model.backend import CPU
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant

_NO_TORCH = "torch is not installed"
NEEDS_TORCH = "pip install torch"
"""The way out where that alone keeps all artifacts from being loaded."""


@dataclass(frozen=True)
class Runnable:
    """Artifacts of one package to load, and why each other one is passed over, by name."""

    package: str
    found: tuple[Path, ...]
    passed: Mapping[str, str]

    @property
    def passed_over(self) -> tuple[str, ...]:
        return tuple(f"{name}: {reason}" for name, reason in self.passed.items())

    def problem(self) -> Problem:
        """Why nothing is found."""
        why = (f"  - {reason}" for reason in self.passed_over)
        hint = "name one with --variant to try it all the same"
        if all(reason == _NO_TORCH for reason in self.passed.values()):
            hint = NEEDS_TORCH
        return Problem("\n".join((f"no artifact of {self.package} can be loaded here", *why)), hint=hint)


def find_runnable(builder: Builder, package: Package, tags: Sequence[str]) -> Runnable:
    """The artifacts of these tags, or all that this machine can load.

    Raises InputError for tags that are not built, and where nothing is.
    """
    built = choose_built(builder.places.package(package.name), tags)
    if tags:
        return Runnable(package.name, tuple(built.values()), {})
    reasons = _reasons(builder, package, built)
    found = tuple(folder for name, folder in built.items() if name not in reasons)
    return Runnable(package.name, found, reasons)


def why_not_loaded(variant: AnyVariant, machine: Machine) -> str | None:
    """What is for a device is made anywhere, but the client takes that of the installed torch's backend, or cpu."""
    if machine.torch is None:
        return _NO_TORCH
    if variant.backend == CPU or variant.backend.name == machine.torch.backend:
        return None
    return f"needs a torch for {variant.backend.name}; {machine.torch.release} is for {machine.torch.backend}"


def _reasons(builder: Builder, package: Package, built: Iterable[str]) -> dict[str, str]:
    """Why each built artifact that cannot be loaded here cannot, by name."""
    decisions = builder.decide(package)
    accepted = {variant.tag: why_not_loaded(variant, builder.machine) for variant in decisions.accepted}
    rejected = {rejection.variant.tag: "; ".join(rejection.reasons) for rejection in decisions.rejected}
    known = {**accepted, **rejected}
    return {name: why for name in built if (why := known.get(name, "it is no variant of build.toml now"))}
