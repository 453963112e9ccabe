"""build.toml files of a project: everything that loading checks, and what needs the files beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.build.select import BINDING_ALONE, BOUNDS, candidates, without_sections
from hubkernels.build.sources import (
    find_files_for_folders,
    nearest_file,
    shipped_python,
    why_no_source,
    with_include,
)
from hubkernels.check.unnamed import unnamed_sources
from hubkernels.config.document import Problems, RawTable
from hubkernels.config.load import find_tables, read_files
from hubkernels.config.positions import KeyPath
from hubkernels.config.variant_table import VariantRow, load_variant_table
from hubkernels.errors import InputError, Problem
from hubkernels.model.project import PACKAGE_NAME, Package, Torch
from hubkernels.model.variant import Variant

_NAMED = 3
"""Files that one warning names."""


@dataclass(frozen=True)
class ConfigReport:
    """errors: what no build can go on with. warnings: what is likely not meant."""

    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def check_config(root: Path) -> ConfigReport:
    """Check the files of every package. Raises InputError where there is no build.toml, or it is not TOML.

    Where some cannot be read, what is beside them is looked for as far as they tell.
    """
    readable, unreadable, found = read_files(root)
    packages = (*readable, *(member.package for member in unreadable if member.package))
    errors = [*found.found, *(problem for member in unreadable for problem in member.problems)]
    reports = [check_package(package, bounds=not found.found and package in readable) for package in packages]
    errors += [problem for report in reports for problem in report.errors]
    warnings = (*found.warnings, *(problem for report in reports for problem in report.warnings))
    return ConfigReport(tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)))


def check_package(package: Package, *, bounds: bool = True) -> ConfigReport:
    """Check one package that was read. bounds: whether its tables are known to be as its author means them."""
    if not PACKAGE_NAME.fullmatch(package.name):  # that is the problem; which folder is its own is not known
        return ConfigReport((), package.warnings)
    table, problems = find_tables(package)
    _files(package, table, problems)
    known = bounds and not problems.found  # else one that nothing names may only be misspelled
    for section, paths in unnamed_sources(package, problems.document.table).items() if known else ():
        problems.warn(("kernel", section.name, "src"), _forgotten(paths), "add what belongs to this section")
    if bounds and isinstance(package.framework, Torch):
        _bounds(package, problems, load_variant_table())
        for backend in without_sections(package):
            problems.warn(("general", "backends"), f"{backend.name} is declared, but {BINDING_ALONE}")
    try:
        shipped_python(package)
    except InputError as error:
        problems.found += error.problems
    return ConfigReport(tuple(problems.found), (*package.warnings, *problems.warnings))


def _files(package: Package, table: RawTable, problems: Problems) -> None:
    """Sources, case files and folders of headers that do not exist."""
    for path, name in _listed(table, "src"):
        if why := why_no_source(package.root, name):
            problems.add(path, *why)
    for path, name in _items(table, ("parity",)):
        if not (package.root / name).is_file():
            problems.add(path, f"case file does not exist: {name}", nearest_file(package.root, name))
    for path, name in _listed(table, "include"):
        if not (package.root / name).exists():
            problems.warn(path, f"include folder does not exist: {name}", nearest_file(package.root, name))
    flags = {key: with_include(group.include, group.cxx_flags) for key, group in package.tables.items()}
    for place, what, hint in find_files_for_folders(package, flags):
        problems.add(place, what, hint)


def _forgotten(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return f"no src names {', '.join(paths[:_NAMED])}{more}, beside these sources: not compiled"


def _listed(table: RawTable, key: str) -> Iterator[tuple[KeyPath, str]]:
    """The items of a list that the framework's table and the kernel sections may have."""
    sections = table.get("kernel")
    names = tuple(sections) if isinstance(sections, dict) else ()
    for place in (("torch",), ("tvm-ffi",), *(("kernel", name) for name in names)):
        yield from _items(table, (*place, key))


def _items(table: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - whatever the file holds
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    for index, item in enumerate(table if isinstance(table, list) else ()):
        if isinstance(item, str) and item.isprintable():
            yield (*path, index), item


def _bounds(package: Package, problems: Problems, rows: tuple[VariantRow, ...]) -> None:
    """Backends whose every variant the package's own limits exclude."""
    stable = package.framework.stable_abi if isinstance(package.framework, Torch) else {}
    variants = [variant for variant in candidates(package, rows) if isinstance(variant, Variant)]
    for backend in package.backends:
        newest = max((torch for row in rows if row.backend == backend for torch in row.torch), default=None)
        target = stable.get(backend.name)
        if target and newest and target > newest:
            what = f"stable-abi {target} is newer than every known torch for {backend.name}, the newest is {newest}"
            problems.warn(("torch", "stable-abi"), what)
        reasons = [
            [why for rule in BOUNDS if (why := rule(package, variant))]
            for variant in variants
            if variant.backend == backend
        ]
        if reasons and all(reasons):
            why = "; ".join(dict.fromkeys(reason for found in reasons for reason in found))
            problems.warn(("general", "backends"), f"no variant for {backend.name} is left: {why}")
