"""From a folder to its Project, and from a package back to where its keys stand."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hubkernels.config.document import Document, Problems, RawTable
from hubkernels.config.edition import UPSTREAM, WORKSPACE, read_package
from hubkernels.config.members import BUILD_TOML, Member, find_members, subfolders
from hubkernels.config.workspace import is_workspace, read_workspace
from hubkernels.errors import HubkernelsError, InputError
from hubkernels.model.project import Package, Project, Unreadable


def load_project(root: Path) -> Project:
    """Read ``root/build.toml`` in either form. Raises InputError with every problem of the file and its members'."""
    project = read_project(root)
    if project.unreadable:
        raise InputError(*(problem for member in project.unreadable for problem in member.problems))
    return project


def read_project(root: Path) -> Project:
    """Read ``root/build.toml`` in either form, or the files of the folders below it where it has none.

    Members that cannot be read are kept aside. Raises InputError when the file of ``root`` itself has problems, then
    with those of its members too.
    """
    packages, unreadable, problems = read_files(root)
    if problems.found:
        raise InputError(*problems.found, *(problem for member in unreadable for problem in member.problems))
    return Project(root, packages, unreadable)


def read_files(root: Path) -> tuple[tuple[Package, ...], tuple[Unreadable, ...], Problems]:
    """The packages of a project as far as they can be read, and what is wrong with the file of ``root``."""
    path = root / BUILD_TOML
    if not os.path.lexists(path) and (members := subfolders(root)):
        problems = Problems(Document(path, "", {}))
        return *_read_members(members, problems, root, ()), problems
    document = Document.read(path)
    problems = Problems(document)
    if is_workspace(document.table):
        return *_read_workspace(problems, root), problems
    return (read_package(document.table, problems, root, UPSTREAM),), (), problems


def find_tables(package: Package) -> tuple[RawTable, Problems]:
    """The edition-5 tables of a package that was read, and a list that names its keys as the user wrote them."""
    document = Document.read(package.root / BUILD_TOML)
    problems = Problems(document)
    if not package.home:
        return document.table, problems
    expansions, _ = read_workspace(document.table, Problems(document))
    expansion = expansions[str(package.home[-1])]
    return expansion.table, problems.within(expansion.origins)


def _read_workspace(problems: Problems, root: Path) -> tuple[tuple[Package, ...], tuple[Unreadable, ...]]:
    expansions, patterns = read_workspace(problems.document.table, problems)
    packages = [
        read_package(expansion.table, problems.within(expansion.origins), root, WORKSPACE)
        for expansion in expansions.values()
    ]
    members, unmatched = find_members(root, patterns)
    for none in unmatched:
        problems.add(("workspace", *none.entry[:2]), none.what, none.hint)
    return _read_members(members, problems, root, packages)


def _read_members(
    members: Iterable[Member], problems: Problems, root: Path, others: Iterable[Package]
) -> tuple[tuple[Package, ...], tuple[Unreadable, ...]]:
    """Read the members beside the other packages of a workspace; problems: of the file that lists them."""
    packages = list(others)
    unreadable: list[Unreadable] = []
    for member in members:
        found = _read_member(problems, member, root)
        if isinstance(found, Package) and found.name in {package.name for package in packages}:
            found = _namesake(problems, member, found)
        if isinstance(found, Package):
            packages.append(found)
        elif found is not None:
            unreadable.append(found)
    return tuple(packages), tuple(unreadable)


def _read_member(problems: Problems, member: Member, root: Path) -> Package | Unreadable | None:
    """The package, or what is wrong with its file; None where the list of members is at fault."""
    folder = root / member.folder
    try:
        document = Document.read(folder / BUILD_TOML, if_missing="write one, or drop the member")
    except HubkernelsError as error:
        if member.entry is None or any(problem.where for problem in error.problems):
            return Unreadable(folder.name, folder, error.problems)
        place = problems.document.where(("workspace", *member.entry[:2]))
        problems.found += [replace(problem, where=place) for problem in error.problems]
        return None
    own = Problems(document)
    if is_workspace(document.table):
        hint = f"name it as the project: `kernel-builder build {folder}`"
        own.add((), f"{member.folder} is a workspace and cannot be a member", hint)
        return Unreadable(folder.name, folder, tuple(own.found))
    package = read_package(document.table, own, folder, UPSTREAM)
    return Unreadable(package.name or folder.name, folder, tuple(own.found), package) if own.found else package


def _namesake(problems: Problems, member: Member, package: Package) -> Unreadable | None:
    what = f"two packages are called {package.name}"
    if member.entry is not None:
        problems.add(("workspace", *member.entry[:2]), what)
        return None
    _, own = find_tables(package)
    own.add(("general", "name"), what)
    return Unreadable(package.name, package.root, tuple(own.found), package)
