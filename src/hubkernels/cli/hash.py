"""`kernel-builder hash`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import columns, say_json
from hubkernels.cli.options import HERE, Json, Packages, ProjectFolder
from hubkernels.cli.target import Target, find_target, folder_of, is_project
from hubkernels.errors import CheckFailedError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.build.rehash import Hashed
    from hubkernels.model.project import Unreadable

Compare = Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 where a digest is not right.")]


def hash_artifacts(
    packages: Packages = None, project: ProjectFolder = HERE, check: Compare = False, json: Json = False
) -> None:
    """Write the hashes of each built artifact's files into its metadata.json."""
    from hubkernels.build.many import refuse_unreadable  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.rehash import look, write  # noqa: PLC0415

    folders, unreadable = _artifacts(project, packages or ())
    found = [look(folder) for folder in folders]
    if not check:
        for hashed in found:
            if not hashed.current:
                write(hashed)
    if json:
        say_json([{"folder": str(h.folder), "current": h.current, "differing": list(h.differing)} for h in found])
    else:
        columns([(_state(hashed, check=check), str(hashed.folder), f"{len(hashed.files)} files") for hashed in found])
    wrong = [_problem(hashed) for hashed in found if check and not hashed.current]
    refuse_unreadable(unreadable)
    if wrong:
        raise CheckFailedError(*wrong)


def _state(hashed: Hashed, *, check: bool) -> str:
    if hashed.current:
        return "ok"
    return "differs" if check else "written"


def _problem(hashed: Hashed) -> Problem:
    what = f"the digest does not fit: {', '.join(hashed.differing) or 'it is of another form'}"
    return Problem(what, str(hashed.folder / "metadata.json"), "`kernel-builder hash` writes it, `build` makes it anew")


def _artifacts(project: Path, words: Sequence[str]) -> tuple[tuple[Path, ...], tuple[Unreadable, ...]]:
    """The artifacts of a project, or of a folder without build.toml that holds some, itself or in its build/.

    With them the members of the project that cannot be read, unless packages are named.
    """
    from hubkernels.build.artifacts import BUILD_FIRST, built  # noqa: PLC0415 - `--help` does without

    unreadable: tuple[Unreadable, ...] = ()
    if folder := _bare_folder(project, words):
        found = tuple((built(folder / "build") or built(folder)).values())
    else:
        target = find_target(project, words)
        found = tuple(_built(target))
        unreadable = () if target.named else target.project.unreadable
    if not found:
        raise InputError(Problem("nothing is built", str(folder or project), BUILD_FIRST))
    return found, unreadable


def _bare_folder(project: Path, words: Sequence[str]) -> Path | None:
    """The one word where it is a folder without build.toml, and no name of a package."""
    if len(words) != 1 or not Path(words[0]).is_dir() or is_project(folder_of(project, words)):
        return None
    return None if project != HERE and is_project(project) else Path(words[0])


def _built(target: Target) -> Iterator[Path]:
    from hubkernels.build.artifacts import built  # noqa: PLC0415 - `--help` does without
    from hubkernels.build.places import Places  # noqa: PLC0415

    places = Places(target.project.root)
    for package in target.packages:
        yield from built(places.package(package.name)).values()
    if not target.named:
        yield from built(places.build).values()  # where upstream's builder puts those of its one package
