"""One package as a project of its own, in upstream's form: only what it is made of, and nothing outside it."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Report
from hubkernels.build.scan import HEADERS, search_folders
from hubkernels.build.sources import USUAL_FOLDERS, shipped_python
from hubkernels.config import load_project
from hubkernels.config.document import RawTable
from hubkernels.config.edition import NEWEST_EDITION
from hubkernels.config.explain import toml_value
from hubkernels.config.load import find_tables
from hubkernels.config.members import BUILD_TOML
from hubkernels.config.positions import KeyPath
from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.export.includes import Move, Tree, write_source
from hubkernels.export.layout import field_paths
from hubkernels.export.toml import edition5, write_toml
from hubkernels.host.files import disk_errors, read_errors, replace_folder
from hubkernels.model.project import KernelSection, Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.variant import Variant

LICENCES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")
_FIELD_FILES = ("CARD.md", "benchmarks/benchmark*.py")
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
    _refuse_in_the_way(folder, package, force=force)
    with disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.")
    with scratch as name:
        staged = Path(name) / "project"
        variants = [v for v in builder.decide(package).accepted if isinstance(v, Variant)]
        if not variants and package.sections:
            report(f"{package.name}: no variant can be built here, so no compiler has looked at the copy")
        read = {variant: headers_read(package, variant, builder) for variant in variants}
        paths, contents = collect(package, frozenset().union(*read.values()))
        contents = {**contents, **licences(package, builder.project.root, report)}
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
    sources = tree.reach({*sources_of(package), *read})
    python = [source for _, source in shipped_python(package)]
    paths = field_paths((*sources, *python), package)
    contents: dict[str, Path | bytes] = {paths[path]: package.root / path for path in python}
    if package.home:
        move = Move(tree, paths)
        rewritten = {path: move.rewrite(path) for path in sources}
        needed = frozenset().union(*(folders for _, folders in rewritten.values()))
        contents |= {paths[path]: write_source(text) for path, (text, _) in rewritten.items()}
        contents[BUILD_TOML] = _build_toml(package, edition5(table, _src(package, tree, paths), needed))
    else:
        _refuse_older_edition(package, table)
        contents |= {path: package.root / path for path in sources}
        contents |= {path: package.root / path for path in _beside(package)}
        contents[BUILD_TOML] = package.root / BUILD_TOML
    contents |= {path: package.root / path for path in package.parity}
    return paths, contents


def _src(package: Package, tree: Tree, paths: Mapping[str, str]) -> dict[KeyPath, list[str]]:
    """What each table names: its sources, then the headers that they reach.

    Upstream's Nix build sees no other file. Headers that only a compiler finds go to the first table.
    """
    found = {key: list(tree.reach(group.sources)) for key, group in _tables(package).items()}
    python = f"{package.python_source}/"
    left = [path for path in set(paths).difference(*found.values()) if not path.startswith(python)]
    if left:
        found[next(iter(found))] += left
    named = {key: [posixpath.normpath(path) for path in group.sources] for key, group in _tables(package).items()}
    return {
        key: [paths[path] for path in (*named[key], *sorted(set(reached) - set(named[key])))]
        for key, reached in found.items()
    }


def search_of(package: Package) -> tuple[str, ...]:
    """Folders of the project where any source of the package looks for headers."""
    own = [
        folder for group in _tables(package).values() for folder in (*group.include, *search_folders(group.cxx_flags))
    ]
    usual = (folder for folder in USUAL_FOLDERS if (package.root / folder).is_dir())
    return tuple(dict.fromkeys(posixpath.normpath(folder) for folder in (*own, *usual)))


def _tables(package: Package) -> Mapping[KeyPath, Torch | TvmFfi | KernelSection]:
    """The binding and the kernel sections, for every backend, by the keys of their tables."""
    framework = package.framework
    sections: dict[KeyPath, Torch | TvmFfi | KernelSection] = {("kernel", s.name): s for s in package.sections}
    if isinstance(framework, TorchNoarch):
        return sections
    return {("torch" if isinstance(framework, Torch) else "tvm-ffi",): framework, **sections}


def sources_of(package: Package) -> Iterator[str]:
    """Every file that build.toml names as a source, for any backend."""
    for path in (path for group in _tables(package).values() for path in group.sources):
        if not (package.root / path).is_file():
            what = f"source file does not exist: {path}"
            raise InputError(Problem(what, str(package.root / BUILD_TOML), "`kernel-builder check config` says where"))
        yield path


def _build_toml(package: Package, table: RawTable) -> bytes:
    text = write_toml(table)
    if package.parity:
        note = "# For `kernel-builder check parity` and `bench`, in a workspace: edition 5 has no key for cases."
        text = f"{note}\n# parity = {toml_value(list(package.parity))}\n\n{text}"
    return text.encode()


def _refuse_older_edition(package: Package, table: RawTable) -> None:
    if table["general"].get("edition") != NEWEST_EDITION:
        what = f"{package.name} has an older edition than {NEWEST_EDITION}, which exports have"
        raise InputError(Problem(what, str(package.root / BUILD_TOML), "run `kernel-builder update-build` first"))


def _beside(package: Package) -> Iterator[str]:
    for pattern in _FIELD_FILES:
        yield from (path.relative_to(package.root).as_posix() for path in sorted(package.root.glob(pattern)))


def licences(package: Package, root: Path, report: Report) -> dict[str, Path]:
    """The licence files that lie nearest: in the package's folder, or in that of its project, ``root``."""
    for folder in (package.root, root):
        found = {path.name: path for pattern in LICENCES for path in sorted(folder.glob(pattern)) if path.is_file()}
        if found:
            return found
    report(f"{package.name}: there is no licence file in {package.root} to go along")
    return {}


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


def _refuse_in_the_way(folder: Path, package: Package, *, force: bool) -> None:
    """Only an earlier export is replaced, and only when that is wished."""
    if not folder.is_symlink() and (not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))):
        return
    if not force:
        raise InputError(Problem(f"{folder} is there already", hint="choose another folder, or --force to replace it"))
    text = (folder / BUILD_TOML).read_bytes() if (folder / BUILD_TOML).is_file() else b""
    if folder.is_symlink() or (folder / ".git").exists() or f'name = "{package.name}"'.encode() not in text:
        what = f"{folder} is no earlier export of {package.name}: it is not replaced"
        raise InputError(Problem(what, hint="export to a new folder, then copy what you need"))
