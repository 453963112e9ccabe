"""Whether an artifact is what a build would make now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hubkernels.build.artifacts import built
from hubkernels.build.bundle import is_current
from hubkernels.build.pipeline import Builder
from hubkernels.build.planner import toolchain_facts
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, Problem
from hubkernels.host.files import read_json_object
from hubkernels.model.artifact import note_of
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant, Variant

NOT_BUILT = "not built yet"


def why_not_current(builder: Builder, package: Package, variant: AnyVariant) -> str | None:
    """Why a build would make the artifact of an accepted variant, in words; None where it is up to date.

    Costs what a build without a change costs; of sources that changed, or that no build here has seen, the compiler is
    asked what they read.
    """
    folder = builder.places.artifact(package.name, variant.tag)
    if not folder.is_dir():
        return NOT_BUILT
    made = builder.plan(package, variant)
    if is_current(made, folder):
        return None
    note = read_json_object(note_of(folder))
    tools = toolchain_facts(builder.tools(variant)) if isinstance(variant, Variant) else {}
    own = "it was changed after it was built" if note.get("id") == made.op_id else None
    before = note.get("toolchain")
    changed = _difference(before if isinstance(before, dict) else {}, tools)
    why = changed or own or "a source, a header, a flag or a Python file changed"
    return f"out of date: {why}"


def stale(builder: Builder, package: Package, tags: Collection[str] = ()) -> tuple[Problem, ...]:
    """Warnings of the artifacts, of these tags or all, that a build would make anew.

    Where no compiler is here to tell there are none, nor of what is built elsewhere.
    """
    there = built(builder.places.package(package.name))
    chosen = [v for v in builder.decide(package).accepted if v.tag in there and v.tag in (tags or there)]
    return tuple(warning for variant in chosen if (warning := _stale(builder, package, variant)))


def _stale(builder: Builder, package: Package, variant: AnyVariant) -> Problem | None:
    name = f"{package.name}: {variant.tag}"
    try:
        why = why_not_current(builder, package, variant)
    except EnvironmentLacksError:
        return None
    except HubkernelsError as error:
        first = error.problems[0]
        return Problem(f"{name} cannot be built of its sources as they are now: {first.what}", first.where, first.hint)
    return Problem(f"{name} is {why}", hint="`kernel-builder build`") if why else None


def _difference(before: dict[str, Any], now: dict[str, str]) -> str:
    """What of the toolchain changed since the artifact was built."""
    changed = [
        f"{key} was {before.get(key, 'not noted')}, is {value}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    return "; ".join(changed)
