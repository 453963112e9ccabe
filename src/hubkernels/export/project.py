"""One package as a project of its own, in upstream's form: only what it is made of, and nothing outside it."""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Report
from hubkernels.build.scan import HEADERS
from hubkernels.build.sources import Key, shipped_python
from hubkernels.config import load_project
from hubkernels.config.document import RawTable
from hubkernels.config.edition import NEWEST_EDITION
from hubkernels.config.explain import toml_value
from hubkernels.config.load import find_tables
from hubkernels.config.members import BUILD_TOML
from hubkernels.config.positions import KeyPath
from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.export.files import licences, named_sources, search_of
from hubkernels.export.includes import Move, Tree, write_source
from hubkernels.export.layout import field_paths
from hubkernels.export.toml import edition5, write_toml
from hubkernels.host.files import disk_errors, read_errors, replace_folder
from hubkernels.model.digest import is_bytecode
from hubkernels.model.project import Package, Project, TorchNoarch
from hubkernels.model.variant import Variant

_MARK = "# Written by `kernel-builder export`: "
"""How the build.toml of an export begins; the rest of the line is the package's name."""

_FIELD_FILES = ("CARD.md", "benchmarks/benchmark*.py", "tests/*.py")
"""What upstream's form has beside the sources, in the folder of its build.toml."""


@dataclass(frozen=True)
class Exported:
    """folder: the new project. files: its files, sorted. checked: variants whose includes were compared."""

    folder: Path
    files: tuple[str, ...]
    checked: tuple[str, ...]


def export_project(package: Package, builder: Builder, folder: Path, report: Report, *, force: bool) -> Exported:
    """Write one package as a project in ``folder``, which appears whole or not at all.

    Raises InputError when something is in the way, or a source reads what is outside the project; CheckFailedError
    when the copy would read other headers than the package does.
    """
    folder = folder.absolute()
    _refuse_own_sources(folder, builder.project)
    _refuse_in_the_way(folder, package, force=force)
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.")
    with scratch as name:
        staged = Path(name) / "project"
        variants = [v for v in builder.decide(package).accepted if isinstance(v, Variant)]
        if not variants and not isinstance(package.framework, TorchNoarch):
            report(f"{package.name}: no variant can be built here, so no compiler has looked at the copy")
        read = {variant: headers_read(package, variant, builder) for variant in variants}
        paths, contents = collect(package, frozenset().union(*read.values()))
        contents = {**contents, **licences(package, builder.project.root, report)}
        _refuse_strangers(folder, contents)
        _write(contents, staged)
        for variant, known in read.items():
            _compare(staged, variant, builder, {paths[path] for path in known})
        replace_folder(staged, folder, Path(name))
    return Exported(folder, tuple(sorted(contents)), tuple(variant.tag for variant in variants))


def headers_read(package: Package, variant: Variant, builder: Builder) -> frozenset[str]:
    """Files of the project that the compiler reads for one variant, sources too."""
    named = {posixpath.normpath(name) for source in builder.scan(package, variant) for name, _ in source.inputs}
    named -= {HEADERS}
    own = (name for name in named if not posixpath.isabs(name))  # the system keeps its own
    return frozenset(name for name in own if name.startswith("../") or (package.root / name).is_file())


def collect(package: Package, read: Collection[str]) -> tuple[Mapping[str, str], Mapping[str, Path | bytes]]:
    """Where each file of the package goes, and what the new project consists of: files to copy, and contents.

    read: files that the compiler is known to read.
    """
    table, _ = find_tables(package)
    tree = Tree(package.root, search_of(package))
    for path in read:
        tree.refuse_outside(path, "a source")
    named = named_sources(package)
    sources = tree.reach({*(path for paths in named.values() for path in paths), *read})
    python = [source for _, source in shipped_python(package)]
    paths = field_paths((*sources, *python), package)
    contents: dict[str, Path | bytes] = {paths[path]: package.root / path for path in python}
    if package.home:
        move = Move(tree, paths)
        rewritten = {path: move.rewrite(path) for path in sources}
        needed = frozenset().union(*(folders for _, folders in rewritten.values()))
        contents |= {paths[path]: write_source(text) for path, (text, _) in rewritten.items()}
        contents[BUILD_TOML] = _build_toml(package, edition5(table, _src(package, named, tree, paths), needed))
    else:
        _refuse_older_edition(package, table)
        contents |= {path: package.root / path for path in sources}
        contents |= {path: package.root / path for path in _beside(package)}
        with read_errors(package.root / BUILD_TOML):
            contents[BUILD_TOML] = _marked(package, (package.root / BUILD_TOML).read_bytes())
    contents |= {path: package.root / path for path in package.parity}
    return paths, contents


def _src(
    package: Package, named: Mapping[Key, Sequence[str]], tree: Tree, paths: Mapping[str, str]
) -> dict[KeyPath, list[str]]:
    """What each table names: its sources, then the headers that they reach.

    Upstream's Nix build sees no other file. Headers that only a compiler finds go to the first table.
    """
    found = {key: list(tree.reach(sources)) for key, sources in named.items()}
    python = f"{package.python_source}/"
    left = [path for path in set(paths).difference(*found.values()) if not path.startswith(python)]
    if left:
        found[next(iter(found))] += left
    own = {key: [posixpath.normpath(path) for path in sources] for key, sources in named.items()}
    return {
        key: [paths[path] for path in (*own[key], *sorted(set(reached) - set(own[key])))]
        for key, reached in found.items()
    }


def _build_toml(package: Package, table: RawTable) -> bytes:
    text = write_toml(table)
    if package.parity:
        note = "# For `kernel-builder check parity` and `bench`, in a workspace: edition 5 has no key for cases."
        text = f"{note}\n# parity = {toml_value(list(package.parity))}\n\n{text}"
    return _marked(package, text.encode())


def _marked(package: Package, text: bytes) -> bytes:
    """The text of a build.toml that begins with the mark of an export of the package."""
    line = _mark(package)
    return text if text.startswith(line) else line + text


def _mark(package: Package) -> bytes:
    return f"{_MARK}{package.name}\n".encode()


def _refuse_older_edition(package: Package, table: RawTable) -> None:
    if table["general"].get("edition") != NEWEST_EDITION:
        what = f"{package.name} has an older edition than {NEWEST_EDITION}, which exports have"
        raise InputError(Problem(what, str(package.root / BUILD_TOML), "run `kernel-builder update-build` first"))


def _beside(package: Package) -> Iterator[str]:
    for pattern in _FIELD_FILES:
        yield from (path.relative_to(package.root).as_posix() for path in sorted(package.root.glob(pattern)))


def _write(contents: Mapping[str, Path | bytes], folder: Path) -> None:
    for name, content in contents.items():
        target = folder / name
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                target.write_bytes(content)
                continue
            with read_errors(content):
                shutil.copyfile(content, target)


def _compare(folder: Path, variant: Variant, builder: Builder, expected: Collection[str]) -> None:
    """Raise CheckFailedError unless a compiler reads just the copies of what it read before."""
    (package,) = load_project(folder).packages
    read = headers_read(package, variant, builder)
    if strange := sorted(read ^ set(expected)):
        listed = (f"  {'+' if path in read else '-'} {path}" for path in strange)
        what = f"the export of {package.name} would read other files (+) or not read some (-)"
        raise CheckFailedError(Problem("\n".join((what, *listed)), hint="two headers with one name are in the way"))


def _refuse_own_sources(folder: Path, project: Project) -> None:
    """Raise InputError for a folder that is one of the project's, or has one in it: to replace it would delete them."""
    target = os.path.realpath(folder)  # Path.resolve raises for a loop, before Python 3.13
    packages = (*(package.root for package in project.packages), *(member.root for member in project.unreadable))
    for root in dict.fromkeys(os.path.realpath(path) for path in (project.root, *packages)):
        if Path(root).is_relative_to(target):
            what = f"{folder} has the sources in it: {root}"
            raise InputError(Problem(what, hint="export to a folder of its own"))


def _refuse_strangers(folder: Path, contents: Collection[str]) -> None:
    """Only what the export writes is replaced in an earlier one. Raises InputError that lists the rest."""
    folders = {parent for path in contents for parent in PurePosixPath(path).parents}
    if found := sorted(_strangers(folder, frozenset(map(PurePosixPath, contents)), folders)):
        what = "\n".join((f"{folder} has what this export does not write:", *(f"  - {path}" for path in found)))
        hint = "what is replaced is deleted: move that away, or export to another folder"
        raise InputError(Problem(what, hint=hint))


def _strangers(folder: Path, written: Collection[PurePosixPath], folders: Collection[PurePosixPath]) -> Iterator[str]:
    """What else than the files ``written`` is in a folder, the topmost standing for all below it. Bytecode is none."""
    for path, names, files in os.walk(folder):
        here = PurePosixPath(os.path.relpath(path, folder))
        below = [here / name for name in names if here / name in folders and not Path(path, name).is_symlink()]
        yield from (f"{here / name}/" for name in names if here / name not in below and name != "__pycache__")
        yield from (str(here / name) for name in files if here / name not in written and not is_bytecode(Path(name)))
        names[:] = [name.name for name in below]


def _refuse_in_the_way(folder: Path, package: Package, *, force: bool) -> None:
    """Only an earlier export is replaced, and only when that is wished."""
    if not folder.is_symlink() and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return
    if not force:
        raise InputError(Problem(f"{folder} is there already", hint="choose another folder, or --force to replace it"))
    text = (folder / BUILD_TOML).read_bytes() if (folder / BUILD_TOML).is_file() else b""
    if folder.is_symlink() or (folder / ".git").exists() or not text.startswith(_mark(package)):
        what = f"{folder} is no earlier export of {package.name}: it is not replaced"
        raise InputError(Problem(what, hint="export to a new folder, then copy what you need"))
