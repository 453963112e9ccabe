"""From a folder to its Project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hubkernels.config.document import Document, Problems
from hubkernels.config.edition import read_package
from hubkernels.config.workspace import EXTENSIONS, Expansion, is_workspace, read_workspace
from hubkernels.errors import InputError, Problem
from hubkernels.model.project import Package, Project

BUILD_TOML = "build.toml"


def load_project(root: Path) -> Project:
    """Read ``root/build.toml`` in either form. Raises InputError with every problem of the file."""
    document = Document.read(root / BUILD_TOML)
    if not is_workspace(document.table):
        return Project(root, (_load_single(document, root),))
    expansions, members = expand_workspace(document)
    problems = Problems(document)
    packages: list[Package] = []
    for expansion in expansions.values():
        mine = Problems(document, expansion.origins)
        package = read_package(expansion.table, mine, root, extensions=EXTENSIONS)
        packages.append(replace(package, python_source=_workspace_python_source(package)))
        problems.found += mine.found
    problems.raise_if_any()
    packages += [_load_member(document, root, index, folder) for index, folder in enumerate(members)]
    _refuse_twins(document, packages)
    return Project(root, tuple(packages))


def expand_workspace(document: Document) -> tuple[dict[str, Expansion], tuple[str, ...]]:
    """The edition-5 tables of each package of a workspace file, and the folders of its members."""
    problems = Problems(document)
    expansions, members = read_workspace(document.table, problems)
    problems.raise_if_any()
    return expansions, members


def _load_single(document: Document, root: Path) -> Package:
    problems = Problems(document)
    package = read_package(document.table, problems, root)
    problems.raise_if_any()
    return package


def _load_member(document: Document, root: Path, index: int, folder: str) -> Package:
    path = root / folder / BUILD_TOML
    if not path.is_file():
        where = document.where(("workspace", "members", index))
        raise InputError(
            Problem(f"member {folder} has no build.toml", where, hint=f"create {path}, or drop the member")
        )
    return _load_single(Document.read(path), root / folder)


def _workspace_python_source(package: Package) -> str:
    """A workspace keeps bindings of several packages side by side, so the shipped Python is one level deeper."""
    folder, python_name = package.python_source.split("/")
    return f"{folder}/{python_name}/{python_name}"


def _refuse_twins(document: Document, packages: list[Package]) -> None:
    seen: set[str] = set()
    for package in packages:
        if package.name in seen:
            raise InputError(Problem(f"two packages are called {package.name}", str(document.path)))
        seen.add(package.name)
