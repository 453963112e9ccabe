"""`kernel-builder clean`."""

from __future__ import annotations

import os

from hubkernels.cli.console import columns, report, say, size_text
from hubkernels.cli.options import HERE, Packages, ProjectFolder
from hubkernels.cli.target import find_target


def clean(packages: Packages = None, project: ProjectFolder = HERE) -> None:
    """Remove build/PACKAGE and, unless packages are named, build/.hubkernels. Nothing outside build/ is touched."""
    from hubkernels.build.clean import clean  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.pipeline import Places  # noqa: PLC0415

    target = find_target(project, packages or ())
    names = [package.name for package in target.packages]
    removed = clean(Places(target.project.root), names, report, work=not target.named)
    if not removed:
        say("nothing to remove")
        return
    columns([("removed", os.path.relpath(item.path), size_text(item.size)) for item in removed])
    say(f"freed {size_text(sum(item.size for item in removed))}")
