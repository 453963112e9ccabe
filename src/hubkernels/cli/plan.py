"""`kernel-builder plan`."""

from __future__ import annotations

from hubkernels.cli.console import say_json
from hubkernels.cli.options import (
    HERE,
    Json,
    Packages,
    ProjectFolder,
    Since,
    Variants,
    built_here,
    open_target,
    with_variants,
)


def plan(
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    since: Since = None,
    _json: Json = False,
) -> None:
    """Print every command that a build would run, as JSON; run none of them."""
    from hubkernels.build.select import choose  # noqa: PLC0415 - `--help` does without

    builder, target = open_target(project, packages, since=since)
    if not target.named and len(builder.project.packages) > 1:
        target = target._replace(packages=built_here(builder, target.packages))
    chosen = with_variants(target, variant or (), lambda package: [v.tag for v in builder.decide(package).accepted])
    plans = [
        builder.plan(package, each).to_json()
        for package, tags in chosen
        for each in choose(builder.decide(package), package, tags)
    ]
    say_json(plans)
