"""`kernel-builder list-variants`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Since, Toolchain, open_readable, settings
from hubkernels.cli.since import only_affected, unreadable_since

if TYPE_CHECKING:
    from hubkernels.model.variant import Decisions

Arch = Annotated[bool, typer.Option("--arch", help="Only variants for the platform of this machine.")]


def list_variants(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    project: ProjectFolder = HERE,
    since: Since = None,
    arch: Arch = False,
    toolchain: Toolchain = None,
    json: Json = False,
) -> None:
    """Print every variant: those built here, and why each other one is not."""
    from hubkernels.build.many import refuse_unreadable  # noqa: PLC0415 - `--help` does without

    builder, target = open_readable(project, packages, settings(toolchain=toolchain))
    chosen = only_affected(builder, target.packages, since)
    decisions = {package.name: builder.decide(package) for package in chosen}
    if arch:
        decisions = {name: decided.on(builder.machine.platform) for name, decided in decisions.items()}
    say_json({name: _as_json(decided) for name, decided in decisions.items()}) if json else _print(decisions)
    if not target.named:
        refuse_unreadable(unreadable_since(builder, since))


def _as_json(decided: Decisions) -> dict[str, Any]:
    return {
        "accepted": [variant.tag for variant in decided.accepted],
        "rejected": {r.variant.tag: list(r.reasons) for r in decided.rejected},
        "left-out": list(decided.left_out),
        "made-by": dict(decided.made_by),
    }


def _print(decisions: Mapping[str, Decisions]) -> None:
    for name, decided in decisions.items():
        say(f"{name}:")
        made_by = {tag: f"device code by {label}" for tag, label in decided.made_by.items()}
        rows = [("  build", variant.tag, made_by.get(variant.tag, "")) for variant in decided.accepted]
        rows += [("  -", r.variant.tag, "; ".join(r.reasons)) for r in decided.rejected]
        columns(rows)
        for line in decided.left_out:
            say(f"  note: {line}")
