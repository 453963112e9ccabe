"""From a folder to its Project, and from a package back to where its keys stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hubkernels.config.document import Document, Problems, RawTable
from hubkernels.config.edition import UPSTREAM, WORKSPACE, read_package
from hubkernels.config.workspace import is_workspace, read_workspace
from hubkernels.errors import HubkernelsError
from hubkernels.model.project import Package, Project

BUILD_TOML = "build.toml"


def load_project(root: Path) -> Project:
    """Read ``root/build.toml`` in either form. Raises InputError with every problem of the file and its members'."""
    document = Document.read(root / BUILD_TOML)
    problems = Problems(document)
    if is_workspace(document.table):
        packages = _load_workspace(problems, root)
    else:
        packages = (read_package(document.table, problems, root, UPSTREAM),)
    problems.raise_if_any()
    return Project(root, packages)


def read_own(root: Path) -> tuple[Package, ...]:
    """The packages of one file, as far as they can be read, whatever is wrong with it; none of its members."""
    document = Document.read(root / BUILD_TOML)
    problems = Problems(document)
    if not is_workspace(document.table):
        return (read_package(document.table, problems, root, UPSTREAM),)
    expansions, _ = read_workspace(document.table, problems)
    return tuple(
        read_package(expansion.table, problems.within(expansion.origins), root, WORKSPACE)
        for expansion in expansions.values()
    )


def find_tables(package: Package) -> tuple[RawTable, Problems]:
    """The edition-5 tables of a package that was read, and a list that names its keys as the user wrote them."""
    document = Document.read(package.root / BUILD_TOML)
    problems = Problems(document)
    if not package.home:
        return document.table, problems
    expansions, _ = read_workspace(document.table, Problems(document))
    expansion = expansions[str(package.home[-1])]
    return expansion.table, problems.within(expansion.origins)


def _load_workspace(problems: Problems, root: Path) -> tuple[Package, ...]:
    expansions, members = read_workspace(problems.document.table, problems)
    packages = [
        read_package(expansion.table, problems.within(expansion.origins), root, WORKSPACE)
        for expansion in expansions.values()
    ]
    for index, folder in members:
        member = _load_member(problems, index, root / folder)
        if member is not None:
            if member.name and member.name in {package.name for package in packages}:
                problems.add(("workspace", "members", index), f"two packages are called {member.name}")
            packages.append(member)
    return tuple(packages)


def _load_member(problems: Problems, index: int, folder: Path) -> Package | None:
    try:
        document = Document.read(folder / BUILD_TOML, if_missing="write one, or drop the member")
    except HubkernelsError as error:
        place = problems.document.where(("workspace", "members", index))
        problems.found += [replace(problem, where=problem.where or place) for problem in error.problems]
        return None
    return read_package(document.table, Problems(document, found=problems.found), folder, UPSTREAM)
