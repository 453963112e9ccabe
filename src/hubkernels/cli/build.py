"""`kernel-builder build`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import report, report_text, say, say_json
from hubkernels.cli.options import (
    HERE,
    Cores,
    Jobs,
    Json,
    MaxJobs,
    Memory,
    Packages,
    ProjectFolder,
    Variants,
    Verbose,
    open_target,
    settings,
)

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.cli.target import Target
    from hubkernels.model.artifact import Artifact

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors alone.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="On an error print the traceback and the environment; keep what the run has made."),
]


def build(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    memory: Memory = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    debug: Debug = False,
    json: Json = False,
    max_jobs: MaxJobs = None,
    cores: Cores = None,
) -> None:
    """Build artifacts into build/PACKAGE/VARIANT; what has not changed is not built again."""
    if max_jobs:
        report("--max-jobs: variants are built one after another; --jobs is the number of commands at a time")
    builder, target = open_target(project, packages, settings(jobs or cores, memory, verbose=verbose, debug=debug))
    hear = report_text if quiet else report
    results = []
    started = time.monotonic()
    try:
        for artifact in builder.build_all(target.packages, variant or (), hear, leave_out=not target.named):
            if not (json or quiet):
                say(_line(artifact, time.monotonic() - started))
            results.append(_as_json(artifact))
            started = time.monotonic()
    finally:
        _tell_editors(builder, target)
    if json:
        say_json(results)


def _line(artifact: Artifact, seconds: float) -> str:
    state = "built" if artifact.fresh else "up to date"
    return f"{state:10}  {artifact.package}  {artifact.variant}  {artifact.folder}  {seconds:.1f} s"


def _as_json(artifact: Artifact) -> dict[str, object]:
    return {
        "package": artifact.package,
        "variant": artifact.variant,
        "id": artifact.op_id,
        "folder": str(artifact.folder),
        "built": artifact.fresh,
    }


def _tell_editors(builder: Builder, target: Target) -> None:
    """How sources are compiled, for editors: what does not compile yet is edited too."""
    from hubkernels.build.compile_commands import entries, write_compile_commands  # noqa: PLC0415

    roots = {package.name: package.root for package in target.packages}
    found = [entry for name, plan in builder.planned.items() for entry in entries(plan, roots[name])]
    if found:
        write_compile_commands(builder.places.build, found)
