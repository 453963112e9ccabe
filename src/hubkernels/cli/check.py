"""`kernel-builder check`: any number of checks, one report, the exit code of the worst."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.check.checks import CHECKS
from hubkernels.cli.console import columns, note, report, say_json, say_problems, say_warnings
from hubkernels.cli.options import (
    HERE,
    Debug,
    Jobs,
    Json,
    Memory,
    Packages,
    ProjectFolder,
    Since,
    Variants,
    open_target,
    settings,
    with_variants,
)
from hubkernels.cli.target import folder_of
from hubkernels.errors import InputError, Problem, nearest

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.build.settings import Settings
    from hubkernels.check.verdict import Verdict
    from hubkernels.cli.target import Target
    from hubkernels.model.project import Package

ALIASES = ("config", "abi", "builds")
"""Checks that upstream has as verbs of their own: ``check-builds``."""

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CHECK|KERNEL_DIR|PACKAGE",
        help="Checks, all when none is named; folder of the build.toml, and packages of it.",
    ),
]
Named = Annotated[
    list[str] | None, typer.Option("--package", metavar="NAME", help="Only this package; one may be called as a check.")
]


def check(  # noqa: PLR0913, PLR0917 - one parameter an option
    words: Words = None,
    package: Named = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    memory: Memory = None,
    since: Since = None,
    debug: Debug = False,
    json: Json = False,
) -> int:
    from hubkernels.build.artifacts import built  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.verdict import Subject, insist  # noqa: PLC0415
    from hubkernels.release.measured import judge  # noqa: PLC0415

    chosen = [check for name, check in CHECKS.items() if name in (words or ())]
    others = [word for word in words or () if word not in CHECKS]
    reads_config = not chosen or any(each.name == "config" for each in chosen)
    how = settings(jobs, memory, debug=debug)
    builder, target = _open(project, [*others, *(package or ())], how, since, reads_config=reads_config)

    def known(package: Package) -> set[str]:
        """What can be built, and what was: that may come from another machine."""
        return {*(each.tag for each in builder.decide(package).accepted), *built(builder.places.package(package.name))}

    looked_at = with_variants(target, variant or (), known)
    subjects = [Subject(builder, package, report, tags) for package, tags in looked_at]
    verdicts: list[Verdict] = []
    for each in chosen or CHECKS.values():
        found = [judge(each, subject) for subject in subjects]
        if chosen:
            found = insist(found, named=target.named)
        verdicts += found
        if not json:
            columns([row for verdict in found for row in verdict.rows()])
    if json:
        say_json([verdict.to_json() for verdict in verdicts])
    else:
        say_warnings(dict.fromkeys(warning for verdict in verdicts for warning in verdict.outcome.warnings))
        say_problems(dict.fromkeys(problem for verdict in verdicts for problem in verdict.outcome.problems))
        if skipped := _looked_at_nothing(verdicts):
            note(f"{len(skipped)} of {len(chosen or CHECKS)} checks were skipped: {', '.join(skipped)}")
    return max((verdict.code for verdict in verdicts), default=0)


check.__doc__ = "\n".join(
    (
        "Run checks on what is built, all that apply when none is named. The exit code is that of the worst.",
        "",
        "\b",
        *(f"{each.name:12}  {each.summary}" for each in CHECKS.values()),
    )
)


def _looked_at_nothing(verdicts: Sequence[Verdict]) -> list[str]:
    """The checks that applied to no package: exit code 0 says nothing of what they are for."""
    from hubkernels.check.runnable import NEEDS_TORCH  # noqa: PLC0415 - `--help` does without

    looked = {verdict.check for verdict in verdicts if verdict.state != "skipped"}
    found: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.check not in looked:
            lacks = any(problem.hint == NEEDS_TORCH for problem in verdict.outcome.inapplicable)
            found[verdict.check] = " (needs torch)" if lacks else found.get(verdict.check, "")
    return [f"{name}{why}" for name, why in found.items()]


def alias(name: str) -> Callable[..., int]:
    """One check as a verb of its own, as upstream has it."""

    def run(  # noqa: PLR0913, PLR0917 - one parameter an option
        packages: Packages = None,
        package: Named = None,
        variant: Variants = None,
        project: ProjectFolder = HERE,
        jobs: Jobs = None,
        memory: Memory = None,
        since: Since = None,
        debug: Debug = False,
        json: Json = False,
    ) -> int:
        names = [*(packages or ()), *(package or ())]
        return check([name], names, variant, project, jobs=jobs, memory=memory, since=since, debug=debug, json=json)

    run.__doc__ = f"The same as `check {name}`."
    return run


def _open(
    project: Path, words: Sequence[str], how: Settings, since: str | None, *, reads_config: bool
) -> tuple[Builder, Target]:
    """Open what the words mean. A build.toml with errors is told whole: also what a look at its files finds."""
    from hubkernels.build.many import UnknownPackageError  # noqa: PLC0415 - `--help` does without

    try:
        return open_target(project, words, how, since)
    except UnknownPackageError as error:
        raise InputError(*map(_neither, error.names, error.problems)) from error
    except InputError as error:
        more = _config_errors(folder_of(project, words)) if reads_config else ()
        raise InputError(*dict.fromkeys((*error.problems, *more))) from error


def _neither(word: str, unknown: Problem) -> Problem:
    """What is wrong with a word that no package has for a name, where a check may have been meant."""
    hint = nearest(word, CHECKS)
    return Problem(f"{word} is neither a check nor a package", hint=hint) if hint else unknown


def _config_errors(folder: Path) -> Sequence[Problem]:
    from hubkernels.check.config import check_config  # noqa: PLC0415 - `--help` does without

    try:
        return check_config(folder).errors
    except InputError as error:
        return error.problems
