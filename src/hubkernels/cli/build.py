"""`kernel-builder build`."""

from __future__ import annotations

import time

from hubkernels.cli.console import report, say, say_json
from hubkernels.cli.options import (
    HERE,
    FailFast,
    Jobs,
    Json,
    Packages,
    ProjectFolder,
    Since,
    Variants,
    built_here,
    open_readable,
)
from hubkernels.cli.sanitize import Sanitize, use_sanitizers
from hubkernels.cli.since import only_affected, unreadable_since


def build(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    since: Since = None,
    fail_fast: FailFast = False,
    json: Json = False,
    sanitize: Sanitize = None,
) -> None:
    """Build artifacts into build/PACKAGE/VARIANT; what has not changed is not built again."""
    from hubkernels.build.many import Failures  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_readable(project, packages, jobs)
    use_sanitizers(builder, sanitize)
    failures = Failures(report, fail_fast=fail_fast)
    failures.add(() if packages else unreadable_since(builder, since))
    if since is not None:  # then none may be left: a change of what cannot be built here is no failure
        chosen = only_affected(builder, chosen, since)
        chosen = chosen if packages else built_here(builder, chosen)
    results: list[dict[str, object]] = []
    started = time.monotonic()
    made = builder.build_all(chosen, variant or (), report, leave_out=not packages, failures=failures)
    try:
        for artifact in made:
            state = "built" if artifact.fresh else "up to date"
            if not json:
                seconds = time.monotonic() - started
                say(f"{state:10}  {artifact.package}  {artifact.variant}  {artifact.folder}  {seconds:.1f} s")
            results.append(
                {
                    "package": artifact.package,
                    "variant": artifact.variant,
                    "id": artifact.op_id,
                    "folder": str(artifact.folder),
                    "built": artifact.fresh,
                }
            )
            started = time.monotonic()
    finally:
        if json:
            say_json(results)
