"""What the tables of one package say against each other."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from hubkernels.config.positions import KeyPath
from hubkernels.config.reader import Reader
from hubkernels.model.backend import BACKENDS, Backend
from hubkernels.model.project import KernelSection, Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.version import Version


def cross_check(reader: Reader, package: Package) -> None:
    """Note every contradiction. reader: the package's tables."""
    _sections_for_undeclared_backends(reader, package)
    _sections_beside_noarch(reader, package)
    _bounds(reader, package)
    _repository_name(reader, package)
    _doubled_sources(reader, package)


def _sections_for_undeclared_backends(reader: Reader, package: Package) -> None:
    declared = reader.named("general").table.get("backends")
    if not isinstance(declared, list) or not all(isinstance(name, str) and name in BACKENDS for name in declared):
        return  # another problem, and which backends were meant is not known
    for section in package.sections:
        if section.backend.name in BACKENDS and section.backend not in package.backends:
            reader.complain(
                f"section {section.name} is for {section.backend.name}, which general.backends does not name",
                *("kernel", section.name, "backend"),
                hint=f'add "{section.backend.name}" to general.backends, or drop the section',
            )


def _sections_beside_noarch(reader: Reader, package: Package) -> None:
    if isinstance(package.framework, TorchNoarch) and "torch-noarch" in reader.table and package.sections:
        names = ", ".join(f"[kernel.{section.name}]" for section in package.sections)
        hint = f"say [torch], or drop {names}"
        reader.complain("a [torch-noarch] package compiles nothing, and has no kernel sections", "kernel", hint=hint)


def _bounds(reader: Reader, package: Package) -> None:
    if isinstance(package.framework, Torch):
        _order(reader, ("torch",), package.framework.minver, package.framework.maxver)
    for name, requirements in package.requirements.items():
        _order(reader, ("general", name), requirements.minver, requirements.maxver)


def _order(reader: Reader, table: KeyPath, minver: Version | None, maxver: Version | None) -> None:
    if minver and maxver and minver > maxver:
        reader.complain(f"no version is between minver {minver} and maxver {maxver}", *table, "minver")


def _repository_name(reader: Reader, package: Package) -> None:
    """Hub ids have dashes where Python names have underscores; the client asks for the id as it is written."""
    repository = (package.repo_id or "").rpartition("/")[2]
    if repository != package.name and repository.lower().replace("_", "-") == package.name:
        what = f"the repository is spelled {repository}, the package {package.name}"
        reader.warn(what, "general", "hub", "repo-id", hint="a user who asks for the other spelling finds nothing")


@dataclass(frozen=True)
class _Listed:
    """One place where a source is named. isa, flags: what it is compiled with because of that place."""

    path: KeyPath
    table: KeyPath
    isa: str | None
    flags: tuple[object, ...]


def _doubled_sources(reader: Reader, package: Package) -> None:
    """Of the files that are compiled; headers may be named anywhere."""
    for backend in package.backends:
        before: dict[str, _Places] = {}
        for source, listed in _listed(reader, package, backend):
            _note_again(reader, source, before.setdefault(source, _Places()), listed)


@dataclass(frozen=True)
class _Places:
    """Where a source was named before: the first place of each table, of each isa and of each list of flags."""

    tables: dict[KeyPath, _Listed] = field(default_factory=dict)
    isas: dict[str | None, _Listed] = field(default_factory=dict)
    flags: dict[tuple[object, ...], _Listed] = field(default_factory=dict)


def _note_again(reader: Reader, source: str, before: _Places, again: _Listed) -> None:
    """Note what is wrong with a place beside those before, and add it to them: with thousands of places, at once."""
    if again.table in before.tables:
        reader.warn(f"{source} is named twice: it is compiled once", *again.path)
    elif other := _first_but(again.isa, before.isas):
        hint = "one file an instruction set: what two share is merged at link, and then runs on machines without it"
        tables = f"{_spelled(other.table)} and {_spelled(again.table)}"
        reader.complain(f"{source} is in {tables}, whose isa differ", *again.path, hint=hint)
    elif other := _first_but(again.flags, before.flags):
        tables = f"{_spelled(other.table)} and {_spelled(again.table)}"
        hint = "upstream does the same; give each file one section, so that its flags are plain to see"
        reader.warn(f"{source} is in {tables}: it is compiled once, with the flags of all", *again.path, hint=hint)
    before.tables.setdefault(again.table, again)
    before.isas.setdefault(again.isa, again)
    before.flags.setdefault(again.flags, again)


_Key = TypeVar("_Key")


def _first_but(key: _Key, places: Mapping[_Key, _Listed]) -> _Listed | None:
    return next((place for other, place in places.items() if other != key), None)


def _spelled(table: KeyPath) -> str:
    return f"[{'.'.join(str(key) for key in table)}]"


def _listed(reader: Reader, package: Package, backend: Backend) -> Iterator[tuple[str, _Listed]]:
    """Every place where the compiled sources of a backend are named, in the order of the file."""
    framework = package.framework
    if not isinstance(framework, TorchNoarch):
        key = "tvm-ffi" if isinstance(framework, TvmFfi) else "torch"
        flags: tuple[object, ...] = (framework.include, framework.cxx_flags, (), ())
        yield from _sources(reader.named(key), backend, (key,), flags)
    kernels = reader.named("kernel")
    for section in package.sections_for(backend):
        flags = (section.include, section.cxx_flags, section.device_flags, section.archs)
        yield from _sources(kernels.named(section.name), backend, ("kernel", section.name), flags, section)


def _sources(
    reader: Reader, backend: Backend, table: KeyPath, flags: tuple[object, ...], section: KernelSection | None = None
) -> Iterator[tuple[str, _Listed]]:
    """reader: of the table itself."""
    listed = reader.table.get("src")
    for index, path in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(path, str) and posixpath.splitext(path)[1] in backend.compiles:
            yield (
                posixpath.normpath(path),
                _Listed((*table, "src", index), table, section.isa if section else None, flags),
            )
