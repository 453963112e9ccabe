"""Variants: one build target each, spelled as the client spells it, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hubkernels.errors import InputError, Problem
from hubkernels.model.backend import Backend
from hubkernels.model.version import Version


@dataclass(frozen=True)
class Platform:
    """CPU architecture and operating system, in the client's words."""

    cpu: str
    os: str

    def __str__(self) -> str:
        return f"{self.cpu}-{self.os}"


@dataclass(frozen=True)
class Variant:
    """One build target with compiled code.

    torch: the torch release it is built for; with stable_abi, the oldest one that it runs on.
    backend_version: CUDA, ROCm or oneAPI release; None for backends without one.
    """

    torch: Version
    backend: Backend
    platform: Platform
    backend_version: Version | None = None
    stable_abi: bool = False

    @property
    def tag(self) -> str:
        backend = self.backend.tag + (self.backend_version.digits if self.backend_version else "")
        if self.stable_abi:
            return f"torch-stable-abi{self.torch.digits}-{backend}-{self.platform}"
        # Only Linux ever had two C++ ABIs, so only there the tag says which.
        cxx = "-cxx11" if self.platform.os == "linux" else ""
        return f"torch{self.torch.digits}{cxx}-{backend}-{self.platform}"


@dataclass(frozen=True)
class NoarchVariant:
    """A build target of Python files alone: one a backend, for every torch release and system."""

    backend: Backend

    @property
    def tag(self) -> str:
        return f"torch-{self.backend.device}"


AnyVariant = Variant | NoarchVariant


@dataclass(frozen=True)
class Rejection:
    """A variant that is not built here: what its package says against it, and what this machine lacks."""

    variant: AnyVariant
    of_package: tuple[str, ...]
    of_machine: tuple[str, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*self.of_package, *self.of_machine)


@dataclass(frozen=True)
class Decisions:
    """The variants of one package: those to build, and why each other one is not built here.

    left_out: what the package declares and some variants do without, and what stays; for people. made_by: of accepted
    variants whose device code another compiler makes than the usual one, by tag, which.
    """

    accepted: tuple[AnyVariant, ...]
    rejected: tuple[Rejection, ...]
    left_out: tuple[str, ...] = ()
    made_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        return (*(variant.tag for variant in self.accepted), *(rejection.variant.tag for rejection in self.rejected))

    def on(self, platform: Platform) -> Decisions:
        """Those about variants for one platform."""
        accepted = tuple(variant for variant in self.accepted if _runs_on(variant, platform))
        rejected = tuple(rejection for rejection in self.rejected if _runs_on(rejection.variant, platform))
        return Decisions(accepted, rejected, self.left_out, self.made_by)


def _runs_on(variant: AnyVariant, platform: Platform) -> bool:
    return isinstance(variant, NoarchVariant) or variant.platform == platform


def index_by_tag(variants: Iterable[Variant]) -> dict[str, Variant]:
    """Map tags to variants; two variants that share a tag are refused, since a tag must name one build."""
    found: dict[str, Variant] = {}
    for variant in variants:
        twin = found.setdefault(variant.tag, variant)
        if twin != variant:
            raise InputError(
                Problem(
                    f"two variants share the tag {variant.tag}",
                    where=f"{twin.backend.name} {twin.backend_version} and "
                    f"{variant.backend.name} {variant.backend_version}, torch {twin.torch} and {variant.torch}",
                    hint="keep one of the two rows in variants.toml",
                )
            )
    return found
