"""`kernel-builder plan`."""

from __future__ import annotations

from hubkernels.cli.console import say_json
from hubkernels.cli.options import HERE, Packages, ProjectFolder, Since, Variants, built_here, open_target


def plan(
    packages: Packages = None, variant: Variants = None, project: ProjectFolder = HERE, since: Since = None
) -> None:
    """Print every command that a build would run, as JSON; run none of them."""
    from hubkernels.build.select import choose  # noqa: PLC0415 - `--help` does without

    builder, target = open_target(project, packages, since=since)
    chosen = target.packages
    if not target.named and len(builder.project.packages) > 1:
        chosen = built_here(builder, chosen)
    plans = [
        builder.plan(package, each).to_json()
        for package in chosen
        for each in choose(builder.decide(package), package, variant or ())
    ]
    say_json(plans)
