"""Which project, and which of its packages, the words of a command line mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hubkernels.errors import InputError, Problem

if TYPE_CHECKING:
    from hubkernels.model.project import Package, Project


class Target(NamedTuple):  # a dataclass costs `--help` four times as much
    """named: whether the packages were named; else they are all of the project."""

    project: Project
    packages: tuple[Package, ...]
    named: bool


def find_target(given: Path, words: Sequence[str]) -> Target:
    """Tell the project's folder among the words from names of packages.

    A word with a slash, ``.`` or ``..`` is a folder. Any other is a package where the project of ``--project`` has one
    of that name, else a folder if it has a build.toml. Raises InputError for a word that is neither, and for two
    folders.
    """
    from hubkernels.build.many import find_packages  # noqa: PLC0415 - `--help` does without
    from hubkernels.config import read_project  # noqa: PLC0415

    folders = _folders(given, words)
    project = None
    if not folders and is_project(given):
        project = read_project(given)
        folders = [word for word in _strangers(project, words) if is_project(Path(word))]
    if folders:
        project = read_project(_lone_folder(given, folders))
    if project is None and not is_project(given):
        _refuse_strays(given, words)
    project = project or read_project(given)
    names = [word for word in words if word not in folders]
    _refuse_folders(project, names)
    return Target(project, find_packages(project, names), named=bool(names))


def folder_of(given: Path, words: Sequence[str]) -> Path:
    """The folder that would be read, as far as the words alone tell."""
    folders = _folders(given, words)
    return Path(folders[0]) if folders else given


def lone_package(target: Target, what: str) -> Package:
    """The one package of the target. what: for which one is needed; the error begins with it."""
    if len(target.packages) > 1:
        names = ", ".join(package.name for package in target.packages)
        raise InputError(Problem(f"{what} is for one package; there are {names}", hint="name one"))
    return target.packages[0]


def _is_path(word: str) -> bool:
    return os.sep in word or word in {os.curdir, os.pardir}


def is_project(folder: Path) -> bool:
    from hubkernels.config import members  # noqa: PLC0415 - `--help` does without

    return members.is_project(folder)


def _folders(given: Path, words: Sequence[str]) -> list[str]:
    """Those of the words that are folders whatever packages there are."""
    folders = [word for word in words if _is_path(word)]
    return folders or ([] if is_project(given) else [word for word in words if is_project(Path(word))])


def _strangers(project: Project, words: Sequence[str]) -> list[str]:
    names = (
        *(package.name for package in project.packages),
        *(name for member in project.unreadable for name in (member.name, member.root.name)),
    )
    known = {name.replace("-", "_") for name in names}
    return [word for word in words if word.replace("-", "_") not in known]


def _lone_folder(given: Path, folders: Sequence[str]) -> Path:
    """The one folder. Raises InputError when there are several, counting that of ``--project``."""
    named = [*([] if given == Path() else [f"--project {given}"]), *dict.fromkeys(folders)]
    if len(named) > 1:
        hint = "name one; a [workspace] with members builds several projects at once"
        raise InputError(Problem(f"{len(named)} projects are named: {', '.join(named)}", hint=hint))
    return Path(folders[0])


def _refuse_strays(given: Path, words: Sequence[str]) -> None:
    """Raises InputError for words where there is no project to have packages of that name."""
    hint = "name the folder of a build.toml, or start one with `init`"
    found = [
        f"the folder {word} has no build.toml" if Path(word).is_dir() else f"{word} is no folder" for word in words
    ]
    if found:
        raise InputError(
            *(Problem(f"{what}, and there is no build.toml in {os.path.realpath(given)}", hint=hint) for what in found)
        )


def _refuse_folders(project: Project, names: Sequence[str]) -> None:
    """Raises InputError for names of no package that are folders: not the name is wrong, but what is in the folder."""
    where = os.path.realpath(project.root / "build.toml")
    problems = [
        Problem(f"{name} is no package of {where}, and the folder {name} {_what_is_there(name)}")
        for name in _strangers(project, names)
        if Path(name).is_dir()
    ]
    if problems:
        raise InputError(*problems)


def _what_is_there(name: str) -> str:
    return "is another project" if is_project(Path(name)) else "has no build.toml"
