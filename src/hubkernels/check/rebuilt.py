"""In the fresh process: build one artifact again, under circumstances that must not matter. The task `reproducible`."""

from __future__ import annotations

import os
from pathlib import Path

from hubkernels.build.pipeline import Builder, find_packages
from hubkernels.build.report import Progress
from hubkernels.build.select import choose
from hubkernels.config import load_project


def rebuild(project: str, package: str, variant: str, jobs: int, environment: dict[str, str]) -> str:
    """Build a variant of a package in the folder ``project`` and tell the folder of its artifact."""
    os.umask(0o077)
    found = load_project(Path(project))
    builder = Builder(found, environment, jobs)
    (chosen,) = find_packages(found, (package,))
    (wanted,) = choose(builder.decide(chosen), chosen, (variant,))
    return str(builder.build(chosen, wanted, _silent).folder.absolute())


def _silent(_: Progress | str) -> None:
    pass
