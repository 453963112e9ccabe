"""Why a build is what it is: variants and reasons, toolchain, flags, id, and the state of the artifact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.pipeline import Builder
from hubkernels.build.planner import toolchain_facts
from hubkernels.build.select import choose
from hubkernels.build.sources import compiled_sources, source_groups
from hubkernels.build.state import why_not_current
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, Decisions, NoarchVariant, Rejection, Variant
from hubkernels.toolchain.cpu import Toolchain


@dataclass(frozen=True)
class SectionFlags:
    """Sources that are compiled alike.

    name: ``torch`` or ``kernel.<name>``, and more for what more name; ``nvcc <source>`` for one of nvcc's.
    flags: beside the variant's own.
    """

    name: str
    sources: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A variant that is built here. flags: of every source. state: of the artifact, in words."""

    variant: str
    op_id: str
    folder: Path
    state: str
    flags: tuple[str, ...]
    sections: tuple[SectionFlags, ...]


@dataclass(frozen=True)
class Explanation:
    """Everything that decides what a build of one package makes. toolchain: empty when nothing is compiled.

    undeclared: backends, of variants that nobody asked about, that the package does not declare.
    """

    package: str
    toolchain: dict[str, str]
    targets: tuple[Target, ...]
    rejected: tuple[Rejection, ...]
    left_out: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()


def explain(builder: Builder, package: Package, tags: Iterable[str]) -> Explanation:
    """Explain the variants of these tags, or all of them. Plans each accepted one, and so scans its sources."""
    wanted = frozenset(tags)
    decisions = _only(builder.decide(package), package, wanted)
    compiled = [variant for variant in decisions.accepted if isinstance(variant, Variant)]
    tools = {key: fact for variant in compiled for key, fact in toolchain_facts(builder.tools(variant)).items()}
    targets = tuple(_target(builder, package, variant) for variant in decisions.accepted)
    path = {"path": " ".join(builder.tools().compiler.command)} if tools else {}
    others = dict.fromkeys(r.variant.backend for r in decisions.rejected if r.variant.backend not in package.backends)
    undeclared = () if wanted else tuple(backend.name for backend in others)
    return Explanation(package.name, tools | path, targets, decisions.rejected, decisions.left_out, undeclared)


def _only(decisions: Decisions, package: Package, tags: frozenset[str]) -> Decisions:
    """The decisions on these tags, or all of them. A rejected variant can be explained, where a build refuses it."""
    if not tags:
        return decisions
    rejected = tuple(rejection for rejection in decisions.rejected if rejection.variant.tag in tags)
    others = tags - {rejection.variant.tag for rejection in rejected}
    accepted = choose(decisions, package, sorted(others)) if others else ()
    return Decisions(accepted, rejected, decisions.left_out, decisions.made_by)


def _target(builder: Builder, package: Package, variant: AnyVariant) -> Target:
    made = builder.plan(package, variant)
    folder = builder.places.artifact(package.name, variant.tag)
    state = why_not_current(builder, package, variant) or "up to date"
    if isinstance(variant, NoarchVariant):
        return Target(variant.tag, made.op_id, folder, state, (), ())
    sections = tuple(_sections(package, variant, builder.tools(variant)))
    return Target(variant.tag, made.op_id, folder, state, builder.tools(variant).compile_flags(variant), sections)


def _sections(package: Package, variant: Variant, tools: Toolchain) -> Iterator[SectionFlags]:
    family = tools.compiler.family
    found = compiled_sources(package, variant, family, tools.from_nvcc)
    of_device = [source for source in found if source.of_device]
    paths = {source.path for source in of_device}
    for group in source_groups(package, variant, family):
        if others := tuple(path for path in group.sources if path not in paths):
            yield SectionFlags(" and ".join(".".join(key) for key in group.keys), others, group.flags)
    for source in of_device:
        device = tools.device
        flags = (*device.archs(source.archs), *source.flags)
        yield SectionFlags(f"{device.name} {source.path}", (source.path,), flags)
