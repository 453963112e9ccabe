"""`kernel-builder list-variants`."""

from __future__ import annotations

from typing import Annotated

import typer

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, open_project

Arch = Annotated[bool, typer.Option("--arch", help="Only variants for the platform of this machine.")]


def list_variants(
    packages: Packages = None, project: ProjectFolder = HERE, arch: Arch = False, json: Json = False
) -> None:
    """Print every variant: those built here, and why each other one is not."""
    builder, chosen = open_project(project, packages)
    decisions = {package.name: builder.decide(package) for package in chosen}
    if arch:
        decisions = {name: decided.on(builder.machine.platform) for name, decided in decisions.items()}
    if json:
        say_json(
            {
                name: {
                    "accepted": [variant.tag for variant in decided.accepted],
                    "rejected": {r.variant.tag: list(r.reasons) for r in decided.rejected},
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
