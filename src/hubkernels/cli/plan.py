"""`kernel-builder plan`."""

from __future__ import annotations

from hubkernels.cli.console import say_json
from hubkernels.cli.options import HERE, Packages, ProjectFolder, Variants, open_project


def plan(packages: Packages = None, variant: Variants = None, project: ProjectFolder = HERE) -> None:
    """Print every command that a build would run, as JSON; run none of them."""
    from hubkernels.build.select import choose  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_project(project, packages)
    plans = [
        builder.plan(package, target).to_json()
        for package in chosen
        for target in choose(builder.decide(package), package, variant or ())
    ]
    say_json(plans)
