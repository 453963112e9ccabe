"""Which packages a change since a commit may affect: what each reads, against what git says has changed.

Files decide, not the build: a package whose list of inputs is not known yet counts as affected by every file that is
no package's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from hubkernels.build.pipeline import Builder
from hubkernels.config.document import Document, Problems
from hubkernels.config.members import BUILD_TOML, find_members
from hubkernels.config.workspace import is_workspace, read_workspace
from hubkernels.host.git import Repository, find_repository
from hubkernels.model.project import Package, Torch, TvmFfi

_WORDS = {"A": "is new", "D": "is gone"}


@dataclass(frozen=True)
class Changes:
    """What differs from a commit. root: the project's folder. paths: absolute, without links, to git's letter."""

    commit: str
    root: str
    paths: Mapping[str, str]

    def below(self, folder: Path) -> list[str]:
        """Changed paths in a folder, or the folder itself where it is one: a submodule, a link."""
        real = os.path.realpath(folder)
        lexical = os.path.abspath(folder)  # noqa: PTH100 - resolve() would follow a link that changed
        return [path for path in self.paths if _is_below(path, real) or path == lexical]

    def say(self, path: str) -> str:
        return f"{os.path.relpath(path, self.root)} {_WORDS.get(self.paths[path], 'changed')}"


@lru_cache(maxsize=1)
def changes_since(builder: Builder, ref: str) -> tuple[Repository, Changes]:
    """Everything that differs from a commit but what builds make: asked of git once a run.

    Raises InputError for a ref that is no commit.
    """
    root = os.path.realpath(builder.project.root)
    repository = find_repository(Path(root), builder.environment)
    commit = repository.commit(ref)
    made = {os.path.join(os.path.realpath(p.root), "build") for p in builder.project.packages}  # noqa: PTH118
    made.add(os.path.join(root, "build"))  # noqa: PTH118
    found = {str(repository.top / path): letter for path, letter in repository.changes(commit).items()}
    kept = {path: letter for path, letter in found.items() if not any(_is_below(path, folder) for folder in made)}
    return repository, Changes(commit, root, kept)


def affected(builder: Builder, packages: Iterable[Package], ref: str) -> dict[str, str]:
    """Names of the packages that a change since a commit may affect, each with the first reason found."""
    repository, changes = changes_since(builder, ref)
    if not changes.paths:
        return {}
    tables = _Tables.read(builder.project.root, repository, changes)
    shared = _outside(builder, changes)
    reasons: dict[str, str] = {}
    for package in packages:
        for rule in (tables.reason, _own_files, _linked_files):
            if why := rule(package, changes):
                break
        else:
            why = _inputs(builder, package, changes, shared)
        if why:
            reasons[package.name] = why
    return reasons


def _own_files(package: Package, changes: Changes) -> str | None:
    """Of a package with a folder of its own, all in it; of one in a workspace's file, what the file names."""
    if not package.home:
        return next((changes.say(path) for path in changes.below(package.root)), None)
    framework = package.framework
    named = framework.sources if isinstance(framework, Torch | TvmFfi) else ()
    files = (*named, *(path for section in package.sections for path in section.sources), *package.parity)
    for path in (package.python_source, *files):
        for changed in changes.below(package.root / path):
            return changes.say(changed)
    return None


def _linked_files(package: Package, changes: Changes) -> str | None:
    """What links in the Python package lead to."""
    folder = package.root / package.python_source
    for path in folder.rglob("*"):
        if path.is_symlink():
            for changed in changes.below(path):
                return f"{changes.say(changed)}, which {os.path.relpath(path, package.root)} leads to"
    return None


def _inputs(builder: Builder, package: Package, changes: Changes, shared: list[str]) -> str | None:
    """Files that the compiler read, by the lists of earlier builds; where there are none, any that is shared."""
    if not isinstance(package.framework, Torch | TvmFfi):
        return None
    reads = builder.reads(package)
    if reads is None:
        beyond = (path for folder in _search_folders(package) for path in changes.below(package.root / folder))
        why = "which it may read: what it reads is not known before a build"
        return next((f"{changes.say(path)}, {why}" for path in (*beyond, *shared)), None)
    for path in changes.paths:
        if path in reads.files:
            return f"{changes.say(path)}, which it reads"
        if any(_is_below(path, absent) for absent in reads.absent):
            return f"{changes.say(path)}, in whose stead it reads another"
    return None


def _search_folders(package: Package) -> Iterator[str]:
    framework = package.framework
    if isinstance(framework, Torch | TvmFfi):
        yield from framework.include
    for section in package.sections:
        yield from section.include


def _outside(builder: Builder, changes: Changes) -> list[str]:
    """Changed files that are in no package's own folder, nor the file that lists the packages."""
    own = [os.path.realpath(package.root) for package in builder.project.packages if not package.home]
    own += [os.path.realpath(member.root) for member in builder.project.unreadable]
    listing = os.path.join(changes.root, BUILD_TOML)  # noqa: PTH118
    return [path for path in changes.paths if path != listing and not any(_is_below(path, folder) for folder in own)]


@dataclass(frozen=True)
class _Tables:
    """How each package of a workspace's file is spelled out, then and now; equal where the file has not changed.

    now is None where the file has not changed, then where there was none.
    """

    now: Mapping[str, Any] | None
    then: Mapping[str, Any] | None
    members: frozenset[str]

    @classmethod
    def read(cls, root: Path, repository: Repository, changes: Changes) -> _Tables:
        path = Path(changes.root, BUILD_TOML)
        if str(path) not in changes.paths or not path.is_file():
            return cls(None, None, frozenset())
        now = _expanded(path, path.read_text(encoding="utf-8"), root)
        text = repository.text_at(changes.commit, path)
        then = _expanded(path, text, root) if text is not None else None
        return cls(now and now[0], then and then[0], then[1] if then else frozenset())

    def reason(self, package: Package, changes: Changes) -> str | None:
        if self.now is None:
            return None
        commit = changes.commit[:12]
        if not package.home:
            is_member = os.path.realpath(package.root) in self.members
            return None if is_member else f"it was no member of {BUILD_TOML} at {commit}"
        if self.then is None or package.name not in self.then:
            return f"it was not in {BUILD_TOML} at {commit}"
        return None if self.then[package.name] == self.now[package.name] else f"its tables in {BUILD_TOML} changed"


def _expanded(path: Path, text: str, root: Path) -> tuple[dict[str, Any], frozenset[str]] | None:
    """The tables of each package of a workspace's file, and its members' folders; None where it is no such file."""
    try:
        table = tomli.loads(text)
    except (tomli.TOMLDecodeError, RecursionError, ValueError):
        return None
    if not is_workspace(table):
        return None
    expansions, patterns = read_workspace(table, Problems(Document(path, text, table)))
    members, _ = find_members(root, patterns)
    folders = frozenset(os.path.realpath(root / member.folder) for member in members)
    return {name: expansion.table for name, expansion in expansions.items()}, folders


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")
