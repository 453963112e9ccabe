"""`kernel-builder check-abi`: upstream's verb, with its options. What they ask for is held anyway, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.check import Named, check
from hubkernels.cli.options import HERE, Debug, Jobs, Json, Memory, Packages, ProjectFolder, Since, Variants
from hubkernels.errors import InputError, Problem
from hubkernels.model.artifact import LIMITED_API

if TYPE_CHECKING:
    from hubkernels.model.project import Package
    from hubkernels.model.version import Version

_POLICY = re.compile(r"manylinux_2_([0-9]+)")

Manylinux = Annotated[
    str, typer.Option("--manylinux", "-m", metavar="POLICY", help="Held is manylinux_2_28, and so all later ones.")
]
PythonAbi = Annotated[
    str, typer.Option("--python-abi", "-p", metavar="VERSION", help="Held is 3.9, and so all later ones.")
]
TorchStableAbi = Annotated[
    str | None,
    typer.Option("--torch-stable-abi", metavar="VERSION", help="Held is that of build.toml, and so all later ones."),
]
MacOs = Annotated[str | None, typer.Option("--macos", metavar="VERSION", help="Refused: nothing is read for macOS.")]


def check_abi(  # noqa: PLR0913, PLR0917 - one parameter an option
    packages: Packages = None,
    package: Named = None,
    variant: Variants = None,
    project: ProjectFolder = HERE,
    jobs: Jobs = None,
    memory: Memory = None,
    since: Since = None,
    manylinux: Manylinux = "manylinux_2_28",
    python_abi: PythonAbi = "3.9",
    torch_stable_abi: TorchStableAbi = None,
    macos: MacOs = None,
    debug: Debug = False,
    json: Json = False,
) -> int:
    """The same as `check abi`."""
    names = [*(packages or ()), *(package or ())]
    problems = [*_beyond_policy(manylinux, python_abi), *_beyond_torch(torch_stable_abi, project, names)]
    if macos is not None:
        problems.append(Problem("--macos: no library for macOS is built or read here", hint="leave it out"))
    if problems:
        raise InputError(*problems)
    return check(["abi"], names, variant, project, jobs=jobs, memory=memory, since=since, debug=debug, json=json)


def _beyond_policy(manylinux: str, python_abi: str) -> Iterator[Problem]:
    from hubkernels.config.abi_policy import load_abi_policy  # noqa: PLC0415 - `--help` does without

    held = load_abi_policy().name
    asked = _POLICY.fullmatch(manylinux)
    if asked is None or int(asked[1]) < int(held.rpartition("_")[2]):
        yield Problem(f"--manylinux: libraries are held to {held} and no older system, not to {manylinux}")
    if _version("--python-abi", python_abi) < LIMITED_API:
        yield Problem(f"--python-abi: libraries are held to Python {LIMITED_API} and no older one, not to {python_abi}")


def _beyond_torch(asked: str | None, project: Path, words: list[str]) -> Iterator[Problem]:
    """The packages that are not held to this release of torch, or an older one."""
    if asked is None:
        return
    from hubkernels.cli.target import find_target  # noqa: PLC0415 - only where it is asked for

    version = _version("--torch-stable-abi", asked)
    for package in find_target(project, words).packages:
        if why := _why_not_torch(package, version):
            yield Problem(f"--torch-stable-abi {asked}: {package.name} {why}", hint="torch.stable-abi of build.toml")


def _why_not_torch(package: Package, version: Version) -> str | None:
    from hubkernels.model.project import Torch, TorchNoarch  # noqa: PLC0415

    if isinstance(package.framework, TorchNoarch):
        return None
    stable = package.framework.stable_abi if isinstance(package.framework, Torch) else {}
    lacking = [backend.name for backend in package.backends if backend.name not in stable]
    if lacking:
        return f"has no stable ABI for {', '.join(lacking)}"
    newest = max(stable.values())
    return f"is held to {newest}" if version.minor < newest else None


def _version(option: str, text: str) -> Version:
    from hubkernels.model.version import Version  # noqa: PLC0415

    try:
        return Version.parse(text)
    except ValueError as error:
        raise InputError(Problem(f"{option}: {text} is no version", hint="digits and dots: 3.9")) from error
