"""Which packages a change since a commit may affect: what each reads, against what git says has changed.

Files decide, not the build: a package whose list of inputs is not known yet counts as affected by every file that is
no package's own, and by those of others that the texts of its sources name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli

from hubkernels.build.mentions import mentioned_files
from hubkernels.build.pipeline import Builder
from hubkernels.config.document import Document, Problems
from hubkernels.config.members import BUILD_TOML, find_members
from hubkernels.config.workspace import is_workspace, read_workspace
from hubkernels.host.files import follow
from hubkernels.host.git import Repository, find_repository
from hubkernels.model.project import Package, Torch, TvmFfi

_WORDS = {"A": "is new", "D": "is gone"}


@dataclass(frozen=True)
class Changes:
    """What differs from a commit. root: the project's folder. paths: absolute, without links, to git's letter."""

    commit: str
    root: str
    paths: Mapping[str, str]
    _followed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def below(self, folder: Path | str) -> list[str]:
        """Changed paths in a folder, and the first that leads to it."""
        real = self._follow(folder)[-1]
        found = [path for path in self.paths if _is_below(path, real)]
        touched = self.touched(folder)
        return found if touched is None or touched in found else [*found, touched]

    def touched(self, path: Path | str) -> str | None:
        """The changed path that a file is; or a link on the way to it; or what git tells of as one: a submodule."""
        for place in self._follow(path):
            at = place
            while at not in self.paths and len(at) > 1:
                at = os.path.dirname(at)  # noqa: PTH120 - thousands a package
            if at in self.paths:
                return at
        return None

    def _follow(self, path: Path | str) -> tuple[str, ...]:
        return follow(os.path.join(os.getcwd(), path), self._followed)  # noqa: PTH109, PTH118 - `..` after a link stays

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
    files = (*(path for table in package.tables.values() for path in table.sources), *package.parity)
    for path in (package.python_source, *files):
        for changed in changes.below(package.root / path):
            return changes.say(changed)
    return None


def _linked_files(package: Package, changes: Changes) -> str | None:
    """What links in the Python package lead to."""
    folder = package.root / package.python_source
    for path in (folder, *sorted(folder.rglob("*"))):
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
        beyond = _unknown(package, changes, shared)
        why = "which it may read: what it reads is not known before a build"
        return next((f"{changes.say(path)}, {why}" for path in beyond), None)
    for file in sorted(reads.files):
        if path := changes.touched(file):
            return f"{changes.say(path)}, which it reads"
    for absent in sorted(reads.absent):
        for path in changes.below(absent):
            return f"{changes.say(path)}, where it looks for a file"
    return None


def _unknown(package: Package, changes: Changes, shared: list[str]) -> Iterator[str]:
    """Changed files that a package may read of which no list holds."""
    for folder in (folder for table in package.tables.values() for folder in table.include):
        yield from changes.below(package.root / folder)
    yield from shared
    if len(shared) < len(changes.paths):
        named = mentioned_files(package)
        found = changes.paths if named is None else map(changes.touched, sorted(named))
        listing = os.path.join(changes.root, BUILD_TOML)  # noqa: PTH118
        yield from (path for path in found if path and path != listing)


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
