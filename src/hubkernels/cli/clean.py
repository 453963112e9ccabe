"""`kernel-builder clean`."""

from __future__ import annotations

import os

from hubkernels.cli.console import columns, report, say, size_text
from hubkernels.cli.options import HERE, Packages, ProjectFolder
from hubkernels.model.project import PACKAGE_NAME


def clean(packages: Packages = None, project: ProjectFolder = HERE) -> None:
    """Remove build/PACKAGE and, unless packages are named, build/.hubkernels. Nothing outside build/ is touched."""
    from hubkernels.build.clean import clean  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.many import find_packages  # noqa: PLC0415
    from hubkernels.build.pipeline import Places  # noqa: PLC0415
    from hubkernels.config import read_project  # noqa: PLC0415

    found = read_project(project)
    names = [package.name for package in find_packages(found, packages or ())]
    if not packages:
        names += [member.name for member in found.unreadable if PACKAGE_NAME.fullmatch(member.name)]
    removed = clean(Places(found.root), names, report, work=not packages)
    if not removed:
        say("nothing to remove")
        return
    columns([("removed", os.path.relpath(item.path), size_text(item.size)) for item in removed])
    say(f"freed {size_text(sum(item.size for item in removed))}")
