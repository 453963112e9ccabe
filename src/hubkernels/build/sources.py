"""What one variant is made of: the sources with their flags, and the Python files that ship."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hubkernels.config.load import find_tables
from hubkernels.config.positions import KeyPath
from hubkernels.errors import InputError, Problem, nearest
from hubkernels.model.backend import Backend
from hubkernels.model.digest import is_bytecode
from hubkernels.model.isa import ISAS
from hubkernels.model.project import Package, Torch
from hubkernels.model.variant import Variant

OWN_FILES = frozenset({"_ops.py", "metadata.json"})
"""Files that the builder writes itself; copies that other builders left beside the sources do not ship."""


@dataclass(frozen=True)
class Source:
    """A file to compile. path: relative to the package's root. flags: its own, beside the variant's."""

    path: str
    flags: tuple[str, ...]


def compiled_sources(package: Package, variant: Variant) -> tuple[Source, ...]:
    """The sources of one variant, in the order of build.toml. Raises InputError for files that do not exist."""
    framework = package.framework
    if not isinstance(framework, Torch):
        raise TypeError(f"{type(framework).__name__} packages have no compiled sources")
    groups = [("torch", framework.sources, framework.include, framework.cxx_flags)]
    for section in package.sections_for(variant.backend):
        if section.isa and ISAS[section.isa].cpu != variant.platform.cpu:
            continue
        isa = ISAS[section.isa].flags if section.isa else ()
        groups.append((f"kernel.{section.name}", section.sources, section.include, (*isa, *section.cxx_flags)))
    _refuse_missing(package, [(name, sources) for name, sources, _, _ in groups])
    found: dict[str, Source] = {}
    for _, sources, include, flags in groups:
        search = tuple(f"-I{folder}" for folder in (*include, *_usual_folders(package.root)))
        for path in sources:
            if is_compiled(path, variant.backend):
                found.setdefault(path, Source(path, (*search, *flags)))
    return tuple(found.values())


def is_compiled(path: str, backend: Backend) -> bool:
    """Whether a file under ``src`` is compiled; headers and the like are inputs only."""
    return PurePosixPath(path).suffix in backend.compiles


def shipped_python(package: Package) -> tuple[tuple[str, str], ...]:
    """The files that go into the artifact beside the library: (path there, path from the root), sorted.

    Raises InputError when there is no ``__init__.py`` to load.
    """
    folder = package.root / package.python_source
    if not (folder / "__init__.py").is_file():
        raise InputError(
            Problem(
                f"{package.name} has no Python package: {package.python_source}/__init__.py does not exist",
                where=str(package.root / "build.toml"),
                hint="the client imports this file; `kernel-builder init` writes one to start from",
            )
        )
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    shipped = sorted(name.as_posix() for name in names if _ships(name, package.framework.python_suffixes))
    return tuple((name, f"{package.python_source}/{name}") for name in shipped)


def _ships(name: Path, suffixes: tuple[str, ...]) -> bool:
    hidden = any(part.startswith(".") for part in name.parts)
    made = is_bytecode(name) or str(name) in OWN_FILES
    return not hidden and not made and name.suffix.removeprefix(".") in suffixes


def _usual_folders(root: Path) -> tuple[str, ...]:
    """Folders that upstream searches for every source."""
    return tuple(folder for folder in ("torch-ext", "csrc") if (root / folder).is_dir())


def _refuse_missing(package: Package, groups: list[tuple[str, tuple[str, ...]]]) -> None:
    missing = [
        (name, index, path)
        for name, sources in groups
        for index, path in enumerate(sources)
        if not (package.root / path).is_file()
    ]
    if not missing:
        return
    _, problems = find_tables(package)
    for name, index, path in missing:
        siblings = (package.root / path).parent
        known = [p.relative_to(package.root).as_posix() for p in siblings.glob("*") if p.is_file()]
        key: KeyPath = (*name.split(".", maxsplit=1), "src", index)
        problems.add(key, f"source file does not exist: {path}", nearest(path, known))
    problems.raise_if_any()
