"""In the fresh process: build artifacts again, under circumstances that must not matter. The task `reproducible`."""

from __future__ import annotations

import os
from pathlib import Path

from hubkernels.build.many import find_packages
from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Event
from hubkernels.build.select import choose
from hubkernels.build.settings import Settings
from hubkernels.config import load_project


def rebuild(  # noqa: PLR0913, PLR0917 - one parameter a circumstance
    project: str,
    package: str,
    variants: list[str],
    jobs: int,
    environment: dict[str, str],
    sdks: list[str] | None,
) -> dict[str, str]:
    """Build variants of a package in the folder ``project`` and tell the folder of each.

    sdks: the lock that pins them and the stores that have them; None for what is installed.
    """
    os.umask(0o077)
    found = load_project(Path(project))
    builder = Builder(found, environment, Settings(jobs, system=sdks is None))
    if sdks:
        lock, *stores = map(Path, sdks)
        builder.pin_by(lock, stores)
    (chosen,) = find_packages(found, (package,))
    wanted = choose(builder.decide(chosen), chosen, variants)
    made = {each.tag: str(builder.build(chosen, each, _silent).folder.absolute()) for each in wanted}
    builder.settle()
    return made


def _silent(_: Event) -> None:
    pass
