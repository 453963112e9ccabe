"""`kernel-builder verify`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.build import Quiet
from hubkernels.cli.console import report, say, say_json
from hubkernels.cli.options import Jobs, Json, Memory, Variants, settings
from hubkernels.errors import CheckFailedError, Problem

if TYPE_CHECKING:
    from hubkernels.hub.rebuild import Rebuilt

Pin = Annotated[str, typer.Argument(metavar="OWNER/NAME@COMMIT", help="A published kernel, at 40 hex digits.")]
Source = Annotated[
    str | None, typer.Option("--source", metavar="DIR|URL", help="Git repository of the sources; else as published.")
]
Subfolder = Annotated[
    str | None, typer.Option("--subfolder", metavar="FOLDER", help="Where in it the build.toml is; else found.")
]


def verify(  # noqa: PLR0913, PLR0917 - one parameter an option
    kernel: Pin,
    source: Source = None,
    subfolder: Subfolder = None,
    variant: Variants = None,
    jobs: Jobs = None,
    memory: Memory = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Build what was published again, of the sources that its metadata name, and compare it file by file."""
    from hubkernels.build.report import texts_alone  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.find_published import fetch, parse_pin  # noqa: PLC0415
    from hubkernels.hub.rebuild import Wanted, rebuild, require_some  # noqa: PLC0415
    from hubkernels.hub.remote import Remote  # noqa: PLC0415

    repo_id, commit = parse_pin(kernel)
    wanted = Wanted(os.environ, settings(jobs, memory), source, subfolder)
    found = fetch(Remote(repo_id), commit)
    results: list[Rebuilt] = []
    try:
        for each in rebuild(found, variant or (), wanted, texts_alone(report) if quiet else report):
            results.append(each)
            if not json:
                say(_line(each, max(map(len, found))))
    finally:
        if json and results:
            say_json([_as_json(each) for each in results])
    wrong = [_problem(each) for each in results if each.outcome == "differs"]
    if wrong:
        raise CheckFailedError(*wrong)
    require_some(results, kernel)


def _line(each: Rebuilt, width: int) -> str:
    told = each.reason or (f"{each.files} files" if each.files else f"{len(each.differing)} differences")
    return f"{each.variant:{width}}  {each.outcome:14}  {told}"


def _problem(each: Rebuilt) -> Problem:
    return Problem(
        "\n".join(("it differs from its sources", *(f"  - {d}" for d in each.differing))), each.variant, each.could
    )


def _as_json(each: Rebuilt) -> dict[str, object]:
    return {
        "variant": each.variant,
        "outcome": each.outcome,
        "files": each.files,
        "differing": list(each.differing),
        "reason": each.reason,
        "could": each.could,
    }
