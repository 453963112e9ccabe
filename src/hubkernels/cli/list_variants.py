"""`kernel-builder list-variants`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, open_readable

if TYPE_CHECKING:
    from hubkernels.model.variant import Decisions


def list_variants(packages: Packages = None, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Print every variant: those built here, and why each other one is not."""
    from hubkernels.build.many import refuse_unreadable  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_readable(project, packages)
    decisions = {package.name: builder.decide(package) for package in chosen}
    say_json({name: _as_json(decided) for name, decided in decisions.items()}) if json else _print(decisions)
    if not packages:
        refuse_unreadable(builder.project.unreadable)


def _as_json(decided: Decisions) -> dict[str, Any]:
    return {
        "accepted": [variant.tag for variant in decided.accepted],
        "rejected": {r.variant.tag: list(r.reasons) for r in decided.rejected},
        "left-out": list(decided.left_out),
    }


def _print(decisions: Mapping[str, Decisions]) -> None:
    for name, decided in decisions.items():
        say(f"{name}:")
        rows = [("  build", variant.tag, "") for variant in decided.accepted]
        rows += [("  -", r.variant.tag, "; ".join(r.reasons)) for r in decided.rejected]
        columns(rows)
        for line in decided.left_out:
            say(f"  note: {line}")
