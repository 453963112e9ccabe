"""`kernel-builder build`."""

from __future__ import annotations

import time

from hubkernels.cli.console import report, say, say_json
from hubkernels.cli.options import HERE, Jobs, Json, Packages, ProjectFolder, Variants, open_project
from hubkernels.cli.sanitize import Sanitize, use_sanitizers


def build(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    json: Json = False,
    sanitize: Sanitize = None,
) -> None:
    """Build artifacts into build/PACKAGE/VARIANT; what has not changed is not built again."""
    builder, chosen = open_project(project, packages, jobs)
    use_sanitizers(builder, sanitize)
    results: list[dict[str, object]] = []
    started = time.monotonic()
    for artifact in builder.build_all(chosen, variant or (), report, leave_out=not packages):
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
    if json:
        say_json(results)
