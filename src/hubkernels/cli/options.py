"""Options that several verbs share, and what they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import note, report, say_warnings
from hubkernels.cli.since import only_affected, unreadable_since
from hubkernels.cli.target import Target, find_target
from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.pipeline import Builder
    from hubkernels.build.settings import Settings
    from hubkernels.model.project import Package

HERE = Path()
TOOLCHAIN_VARIABLE = "HUBKERNELS_TOOLCHAIN"
_TOOLCHAINS = ("locked", "system")


def _size(text: str) -> int:
    from hubkernels.model.size import FORMS, parse_size  # noqa: PLC0415 - `--help` does without

    size = parse_size(text)
    if size is None:
        raise typer.BadParameter(f"{text!r} is no size; {FORMS}")
    return size


def _toolchain(text: str) -> str:
    if text not in _TOOLCHAINS:
        raise typer.BadParameter(f"{text!r} is neither locked nor system")
    return text


def _usual_toolchain() -> str:
    """What the environment says, for verbs that have no option."""
    text = os.environ.get(TOOLCHAIN_VARIABLE) or "locked"
    if text not in _TOOLCHAINS:
        what, hint = f"{text!r} is neither locked nor system", "set it to one of these, or not at all"
        raise InputError(Problem(what, TOOLCHAIN_VARIABLE, hint))
    return text


Packages = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KERNEL_DIR|PACKAGE",
        help="Folder of the build.toml, and packages of it; all when none is named.",
    ),
]
ProjectFolder = Annotated[Path, typer.Option("--project", "-C", metavar="FOLDER", help="Folder of the build.toml.")]
Variants = Annotated[
    list[str] | None, typer.Option("--variant", metavar="TAG", help="Only this variant; may be given again.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Commands at a time; one a core by default.")
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory", parser=_size, metavar="SIZE", help="What commands may take together; by default what is free."
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "--print-build-logs", "-L", help="Print each command as it is run.")
]
MaxJobs = Annotated[int | None, typer.Option("--max-jobs", min=1, hidden=True, help="Variants at a time: here one.")]
Cores = Annotated[int | None, typer.Option("--cores", min=1, hidden=True, help="As --jobs.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="REF", help="Only packages that a change since this commit affects."),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first package that fails.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", help="On an error print the traceback and the environment; keep what the run has made."),
]
Toolchain = Annotated[
    str | None,
    typer.Option(
        "--toolchain",
        metavar="locked|system",
        parser=_toolchain,
        envvar=TOOLCHAIN_VARIABLE,
        help="Build with what toolchain.lock pins, or with what is installed here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings(  # noqa: PLR0913 - one parameter an option
    jobs: int | None = None,
    memory: int | None = None,
    *,
    verbose: bool = False,
    debug: bool = False,
    sanitizers: tuple[str, ...] = (),
    toolchain: str | None = None,
) -> Settings:
    """How to run commands, as the machine allows where the user did not say.

    A number of jobs that the user gave is kept, unless they gave a memory budget too. toolchain: as the environment
    has it where the verb has no option.
    """
    from hubkernels.build.settings import Settings  # noqa: PLC0415 - `--help` does without
    from hubkernels.host.cpu import usable_cores  # noqa: PLC0415
    from hubkernels.host.memory import free_memory  # noqa: PLC0415

    budget = memory if memory is not None or jobs is not None else free_memory()
    system = (toolchain or _usual_toolchain()) == "system"
    around = (jobs or usable_cores(), budget)
    return Settings(*around, verbose=verbose, keep_scratch=debug, sanitizers=sanitizers, system=system)


_opened: list[Builder] = []


def open_readable(folder: Path, words: Sequence[str] | None, how: Settings | None = None) -> tuple[Builder, Target]:
    """The builder of a project on this machine, and what the words mean.

    For verbs that do what they can before they tell of members that cannot be read.
    """
    from hubkernels.build.pipeline import Builder  # noqa: PLC0415 - `--help` does without

    target = find_target(folder, words or ())
    say_warnings(dict.fromkeys(warning for package in target.packages for warning in package.warnings))
    builder = Builder(target.project, os.environ, how or settings(), note)
    _opened.append(builder)
    return builder, target


def settle() -> None:
    """At the end of a verb, whatever it did: what its builders read is remembered, and the cache trimmed."""
    while _opened:
        _opened.pop().settle()


def open_target(
    folder: Path, words: Sequence[str] | None, how: Settings | None = None, since: str | None = None
) -> tuple[Builder, Target]:
    """As `open_readable`, and of the packages those that a change affects since the commit ``since``."""
    from hubkernels.build.many import refuse_unreadable  # noqa: PLC0415 - `--help` does without

    builder, target = open_readable(folder, words, how)
    if not target.named:
        refuse_unreadable(unreadable_since(builder, since))
    return builder, target._replace(packages=only_affected(builder, target.packages, since))


def open_project(folder: Path, packages: Sequence[str] | None) -> tuple[Builder, tuple[Package, ...]]:
    """The builder of a project on this machine, and the packages that were named."""
    builder, target = open_target(folder, packages)
    return builder, target.packages


def built_here(builder: Builder, packages: Sequence[Package]) -> tuple[Package, ...]:
    """Those with a variant that can be built here; tells of the others."""
    found = []
    for package in packages:
        if builder.decide(package).accepted:
            found.append(package)
        else:
            report(f"{package.name}: no variant can be built here; `kernel-builder list-variants` tells why")
    return tuple(found)


def with_variants(
    target: Target, tags: Sequence[str], known: Callable[[Package], Collection[str]]
) -> tuple[tuple[Package, tuple[str, ...]], ...]:
    """Each package with the variants to look at: of several that were not named, those that know one of the tags.

    Tells of the others. Where none knows one they all stay, and say why.
    """
    everything = tuple((package, tuple(tags)) for package in target.packages)
    if target.named or not tags or len(everything) == 1:
        return everything
    own = [(package, tuple(tag for tag in tags if tag in known(package))) for package in target.packages]
    if not any(found for _, found in own):
        return everything
    for package, found in own:
        if not found:
            report(f"{package.name}: no {' or '.join(tags)} here; `kernel-builder list-variants` tells why")
    return tuple((package, found) for package, found in own if found)
