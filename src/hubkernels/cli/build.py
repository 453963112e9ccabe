"""`kernel-builder build`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import report, say, say_json
from hubkernels.cli.options import (
    HERE,
    Cores,
    Debug,
    FailFast,
    Jobs,
    Json,
    MaxJobs,
    Memory,
    Packages,
    ProjectFolder,
    Since,
    Toolchain,
    Variants,
    Verbose,
    built_here,
    open_readable,
    settings,
)
from hubkernels.cli.sanitize import Sanitize, chosen_sanitizers, tell_how_to_run
from hubkernels.cli.since import only_affected, unreadable_since

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hubkernels.build.pipeline import Builder
    from hubkernels.model.artifact import Artifact
    from hubkernels.model.project import Package

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors alone.")]


def build(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    since: Since = None,
    fail_fast: FailFast = False,
    memory: Memory = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    debug: Debug = False,
    json: Json = False,
    sanitize: Sanitize = None,
    toolchain: Toolchain = None,
    max_jobs: MaxJobs = None,
    cores: Cores = None,
) -> None:
    """Build artifacts into build/PACKAGE/VARIANT; what has not changed is not built again."""
    from hubkernels.build.many import Failures  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.report import texts_alone  # noqa: PLC0415

    if max_jobs:
        report("--max-jobs: variants are built one after another; --jobs is the number of commands at a time")
    sanitizers = chosen_sanitizers(sanitize)
    how = settings(jobs or cores, memory, verbose=verbose, debug=debug, sanitizers=sanitizers, toolchain=toolchain)
    builder, target = open_readable(project, packages, how)
    if sanitizers:
        tell_how_to_run(builder)
    hear = texts_alone(report) if quiet else report
    failures = Failures(hear, fail_fast=fail_fast)
    failures.add(() if target.named else unreadable_since(builder, since))
    chosen = only_affected(builder, target.packages, since)
    if since is not None and not target.named:  # then none may be left: a change of what cannot be built is no failure
        chosen = built_here(builder, chosen)
    results: list[dict[str, object]] = []
    started = time.monotonic()
    done = False
    try:
        for artifact in builder.build_all(chosen, variant or (), hear, leave_out=not target.named, failures=failures):
            if not (json or quiet):
                say(_line(artifact, time.monotonic() - started))
            results.append(_as_json(artifact))
            started = time.monotonic()
        done = True
        if not quiet:
            _tell_unbuilt(builder, chosen)
    finally:
        if not sanitizers:
            _tell_editors(builder)
        if json and (results or done):
            say_json(results)


def _line(artifact: Artifact, seconds: float) -> str:
    state = "built" if artifact.fresh else "up to date"
    return f"{state:10}  {artifact.package}  {artifact.variant}  {artifact.folder}  {seconds:.1f} s"


def _tell_unbuilt(builder: Builder, packages: Iterable[Package]) -> None:
    """Backends that a package declares and that no variant was built for."""
    for package in packages:
        here = {variant.backend for variant in builder.decide(package).accepted}
        missing = [backend.name for backend in package.backends if backend not in here]
        if here and missing:
            report(f"{package.name}: not built here: {', '.join(missing)}; `kernel-builder list-variants` tells why")


def _as_json(artifact: Artifact) -> dict[str, object]:
    return {
        "package": artifact.package,
        "variant": artifact.variant,
        "id": artifact.op_id,
        "folder": str(artifact.folder),
        "built": artifact.fresh,
    }


def _tell_editors(builder: Builder) -> None:
    """How sources are compiled, for editors: what does not compile yet is edited too."""
    from hubkernels.build.compile_commands import entries, write_compile_commands  # noqa: PLC0415

    roots = {package.name: package.root for package in builder.project.packages}
    found = [entry for (name, _), plan in builder.planned.items() for entry in entries(plan, roots[name])]
    if found:
        write_compile_commands(builder.places.build, found)
