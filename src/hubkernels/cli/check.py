"""`kernel-builder check`: config, abi, builds, load, parity, reproducible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hubkernels.cli.console import columns, say, say_json, warnings
from hubkernels.cli.console import report as report_line
from hubkernels.cli.options import HERE, Jobs, Json, Packages, ProjectFolder, Since, Variants, open_project
from hubkernels.errors import CheckFailedError, InputError, Problem, combined, nearest

if TYPE_CHECKING:
    from hubkernels.check.violation import Violation
    from hubkernels.model.project import Package

app = typer.Typer(help="Check finished artifacts.", no_args_is_help=True, rich_markup_mode=None)


@app.command("config")
def config(project: ProjectFolder = HERE, json: Json = False) -> None:
    """Check the build.toml files of a project, and that the files which they name exist."""
    from hubkernels.check.config import check_config  # noqa: PLC0415 - `--help` does without

    report = check_config(project)
    if json:
        say_json(report.to_json())
    else:
        warnings(report.warnings)
    if report.errors:
        raise InputError(*report.errors)
    if not json:
        columns([("ok", name) for name in report.packages])


@app.command("builds")
def builds(packages: Packages = None, project: ProjectFolder = HERE, since: Since = None, json: Json = False) -> None:
    """Check names, files and metadata of every artifact against what the client will demand."""
    from hubkernels.check.builds import check_builds, find_variants  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_project(project, packages, since)
    folders = [builder.places.build / package.name for package in chosen]
    violations = [violation for folder in folders for violation in check_builds(folder)]
    if json:
        say_json([{"variant": v.variant, "place": v.place, "what": v.what} for v in violations])
    elif not violations:
        columns([("ok", folder.name, variant.name) for folder in folders for variant in find_variants(folder)])
    if violations:
        raise CheckFailedError(*(str(violation) for violation in violations))


@app.command("abi")
def abi(packages: Packages = None, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Check that the libraries of every artifact load on all systems that its variant promises."""
    from hubkernels.check.abi import check_abi, variants_by_tag  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.builds import find_variants  # noqa: PLC0415
    from hubkernels.config.abi_policy import load_abi_policy  # noqa: PLC0415

    builder, chosen = open_project(project, packages)
    known, policy, torch = variants_by_tag(builder.rows), load_abi_policy(), builder.machine.torch
    reports = [
        (package.name, check_abi(folder, known, policy, torch))
        for package in chosen
        for folder in find_variants(builder.places.build / package.name)
    ]
    for name, report in reports:
        for note in report.notes:
            report_line(f"{name}  {report.variant}: {note}")
    violations = [violation for _, report in reports for violation in report.violations]
    if json:
        say_json([{"variant": v.variant, "place": v.place, "what": v.what} for v in violations])
    elif not violations:
        columns([("ok", name, report.variant, f"{policy.name}, tables of {policy.date}") for name, report in reports])
    if violations:
        raise CheckFailedError(*(str(violation) for violation in violations))


@app.command("load")
def load(
    packages: Packages = None, variant: Variants = None, project: ProjectFolder = HERE, json: Json = False
) -> None:
    """Load each artifact that this machine can run: a fresh process, the stock client."""
    from hubkernels.check.load import check_load  # noqa: PLC0415 - `--help` does without

    loaded = [(package, check_load(folder)) for package, folder in _runnable(project, packages, variant)]
    if json:
        say_json(
            [
                {"package": package.name, "variant": found.variant, "id": found.op_id, "ops": list(found.ops)}
                for package, found in loaded
            ]
        )
        return
    columns(
        [
            ("ok", package.name, found.variant, f"{found.op_id}: {', '.join(found.ops)}  {found.seconds:.1f} s")
            for package, found in loaded
        ]
    )


@app.command("parity")
def parity(
    packages: Packages = None, variant: Variants = None, project: ProjectFolder = HERE, json: Json = False
) -> None:
    """Compare each artifact that this machine can run with its float64 reference, gradients too."""
    from hubkernels.check.parity import check_parity  # noqa: PLC0415 - `--help` does without

    artifacts = _runnable(project, packages, variant)
    cased = [(package, folder) for package, folder in artifacts if packages or package.parity]
    for name in sorted({package.name for package, _ in artifacts} - {package.name for package, _ in cased}):
        report_line(f"{name} names no case file: not compared")
    reports = [(package, folder, check_parity(package, folder)) for package, folder in cased or artifacts]
    if json:
        say_json([report.to_json() for _, _, report in reports])
    for package, folder, report in reports:
        if not json:
            say(f"{package.name}  {folder.name}: {report.passed}/{len(report.rows)} agree with the float64 reference")
    wrong = [Problem(str(row), where=folder.name) for _, folder, report in reports for row in report.violations]
    if wrong:
        raise CheckFailedError(*wrong)


@app.command("reproducible")
def reproducible(
    packages: Packages = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Build each artifact again, from a copy elsewhere and under other circumstances, and compare the bytes."""
    from hubkernels.build.select import choose  # noqa: PLC0415 - `--help` does without
    from hubkernels.check.reproducible import check_reproducible  # noqa: PLC0415

    builder, chosen = open_project(project, packages, jobs)
    wanted = [(package, each) for package in chosen for each in choose(builder.decide(package), package, variant or ())]
    violations: list[Violation] = []
    for package, each in wanted:
        found = check_reproducible(builder, package, each, report_line)
        violations += found
        if not json and not found:
            say(f"ok  {package.name}  {each.tag}")
    if json:
        say_json([{"variant": v.variant, "place": v.place, "what": v.what} for v in violations])
    if violations:
        raise CheckFailedError(*(str(violation) for violation in violations))


def _runnable(
    project: Path, packages: list[str] | None, variants: list[str] | None
) -> tuple[tuple[Package, Path], ...]:
    """The built artifacts that were named, or all that this machine can load."""
    from hubkernels.check.runnable import find_runnable  # noqa: PLC0415

    builder, chosen = open_project(project, packages)
    found: list[tuple[Package, Path]] = []
    lacking: list[InputError] = []
    for package in chosen:
        try:
            runnable = find_runnable(builder, package, variants or ())
        except InputError as error:
            lacking.append(error)
            continue
        found += [(package, folder) for folder in runnable.found]
        for name, why in runnable.passed.items():
            report_line(f"{package.name} {name}: not loaded here: {why}")
    if lacking and (packages or not found):
        raise combined(lacking)
    for nothing in lacking:
        report_line(f"passed over: {nothing}")
    return tuple(found)
