"""`kernel-builder list-variants`."""

from __future__ import annotations

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, open_project


def list_variants(packages: Packages = None, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Print every variant: those built here, and why each other one is not."""
    builder, chosen = open_project(project, packages)
    decisions = {package.name: builder.decide(package) for package in chosen}
    if json:
        say_json(
            {
                name: {
                    "accepted": [variant.tag for variant in decided.accepted],
                    "rejected": {r.variant.tag: list(r.reasons) for r in decided.rejected},
                    "left-out": list(decided.left_out),
                }
                for name, decided in decisions.items()
            }
        )
        return
    for name, decided in decisions.items():
        say(f"{name}:")
        rows = [("  build", variant.tag, "") for variant in decided.accepted]
        rows += [("  -", r.variant.tag, "; ".join(r.reasons)) for r in decided.rejected]
        columns(rows)
        for line in decided.left_out:
            say(f"  note: {line}")
