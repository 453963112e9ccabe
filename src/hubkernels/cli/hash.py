"""`kernel-builder hash`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import columns, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder
from hubkernels.cli.target import find_target
from hubkernels.config.members import is_project
from hubkernels.errors import CheckFailedError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.rehash import Hashed

Compare = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 where a digest is not right.")]


def hash_artifacts(
    packages: Packages = None, project: ProjectFolder = HERE, check: Compare = False, json: Json = False
) -> None:
    """Write the hashes of each built artifact's files into its metadata.json."""
    from hubkernels.build.rehash import look, write  # noqa: PLC0415 - `--help` does without

    found = [look(folder) for folder in _artifacts(project, packages or ())]
    if not check:
        for hashed in found:
            if not hashed.current:
                write(hashed)
    if json:
        say_json([{"folder": str(h.folder), "current": h.current, "differing": list(h.differing)} for h in found])
    else:
        columns([(_state(hashed, check=check), str(hashed.folder), f"{len(hashed.files)} files") for hashed in found])
    wrong = [_problem(hashed) for hashed in found if check and not hashed.current]
    if wrong:
        raise CheckFailedError(*wrong)


def _state(hashed: Hashed, *, check: bool) -> str:
    if hashed.current:
        return "ok"
    return "differs" if check else "written"


def _problem(hashed: Hashed) -> Problem:
    what = f"the digest does not fit: {', '.join(hashed.differing) or 'it is of another form'}"
    return Problem(what, str(hashed.folder / "metadata.json"), "`kernel-builder hash` writes it, `build` makes it anew")


def _artifacts(project: Path, words: Sequence[str]) -> tuple[Path, ...]:
    """The artifacts of a project, or of a folder without build.toml that holds some, itself or in its build/."""
    from hubkernels.build.artifacts import BUILD_FIRST  # noqa: PLC0415 - `--help` does without

    found = tuple(_found(project, words))
    if not found:
        raise InputError(Problem("nothing is built", where=str(project), hint=BUILD_FIRST))
    return found


def _found(project: Path, words: Sequence[str]) -> Iterator[Path]:
    from hubkernels.build.artifacts import built  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.places import Places  # noqa: PLC0415

    if len(words) == 1 and Path(words[0]).is_dir() and not is_project(Path(words[0])) and not is_project(project):
        folder = Path(words[0])
        yield from (built(folder / "build") or built(folder)).values()
        return
    target = find_target(project, words)
    places = Places(target.project.root)
    for package in target.packages:
        yield from built(places.package(package.name)).values()
    if not target.named:
        yield from built(places.build).values()  # where upstream's builder puts those of its one package
