"""`kernel-builder check`: abi, load, builds, parity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hubkernels.cli.console import columns, say, say_json
from hubkernels.cli.console import report as report_line
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder, Variants, open_project
from hubkernels.errors import CheckFailedError, InputError, Problem, nearest

if TYPE_CHECKING:
    from hubkernels.model.project import Package

app = typer.Typer(help="Check finished artifacts.", no_args_is_help=True, rich_markup_mode=None)


@app.command("builds")
def builds(packages: Packages = None, project: ProjectFolder = HERE, json: Json = False) -> None:
    """Check names, files and metadata of every artifact against what the client will demand."""
    from hubkernels.check.builds import check_builds, find_variants  # noqa: PLC0415 - `--help` does without

    builder, chosen = open_project(project, packages)
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


def _runnable(
    project: Path, packages: list[str] | None, variants: list[str] | None
) -> tuple[tuple[Package, Path], ...]:
    """The built artifacts that were named, or all that this machine can load."""
    from hubkernels.check.builds import find_variants  # noqa: PLC0415

    builder, chosen = open_project(project, packages)
    found: list[tuple[Package, Path]] = []
    for package in chosen:
        here = [variant.tag for variant in builder.decide(package).accepted]
        built = {folder.name: folder for folder in find_variants(builder.places.build / package.name)}
        names = _named(package, variants, built) if variants else [name for name in built if name in here]
        if not names:
            what = f"no artifact of {package.name} to check here; built: {', '.join(built)}"
            raise InputError(Problem(what, hint="`kernel-builder build`"))
        found += [(package, built[name]) for name in names]
    return tuple(found)


def _named(package: Package, variants: Sequence[str], built: Collection[str]) -> Sequence[str]:
    """The variants as they were named. Raises InputError for those that are not built."""
    missing = [
        Problem(
            f"{variant} of {package.name} is not built; built: {', '.join(built)}",
            hint=nearest(variant, built) or f"`kernel-builder build --variant {variant}`",
        )
        for variant in variants
        if variant not in built
    ]
    if missing:
        raise InputError(*missing)
    return tuple(dict.fromkeys(variants))
