"""What one variant is made of: the sources with their flags, and the Python files that ship."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISDIR

from hubkernels.build.archs import compiled_archs, takes_part
from hubkernels.build.generator import GeneratorError, expand
from hubkernels.build.search import search_folders
from hubkernels.config.load import find_tables
from hubkernels.errors import InputError, Problem, nearest
from hubkernels.host.links import OWN_FILE, why_foreign
from hubkernels.model.backend import Backend
from hubkernels.model.digest import is_bytecode
from hubkernels.model.isa import EVERY_MACHINE, ISAS, reach
from hubkernels.model.project import KernelSection, Package, Torch, TorchNoarch
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cuda import without_lines

USUAL_FOLDERS = ("torch-ext", "csrc")
"""Folders that upstream searches for headers of every source."""

_OF_MACHINE = re.compile("(?:^|[:;])(-m[^;>]*)")
"""In a flag, or in one that an expression of CMake guards."""

_PATTERN = re.compile(r"[*?[]")

OWN_FILES = frozenset({"_ops.py", "metadata.json"})
"""Files that the builder writes itself; copies that other builders left beside the sources do not ship."""


@dataclass(frozen=True)
class Source:
    """A file to compile. path: relative to the package's root. flags: its own, beside the variant's.

    archs: the devices that it is compiled for, as build.toml spells them; none for the C++ compiler's sources.
    """

    path: str
    flags: tuple[str, ...]
    archs: tuple[str, ...] = ()

    @property
    def of_device(self) -> bool:
        """Whether the compiler of the device takes it."""
        return bool(self.archs)


Key = tuple[str, ...]
"""A table of build.toml: ``("torch",)`` or ``("kernel", name)``."""


@dataclass(frozen=True)
class Group:
    """Sources that are compiled alike. keys: the tables that name them. flags: beside the variant's."""

    keys: tuple[Key, ...]
    sources: tuple[str, ...]
    flags: tuple[str, ...]


def source_groups(package: Package, variant: Variant, family: str | None) -> tuple[Group, ...]:
    """What is compiled for one variant, by the tables that name it, in the order of build.toml.

    A source that two tables name is compiled once, with the flags of both: upstream's way.
    family: of the compiler, for flags that depend on it; without one CMake's expressions stay as they are.
    Raises InputError for files that do not exist and for flags that cannot be evaluated.
    """
    tables = _tables(package, variant, family)
    refuse_missing(package, {key: sources for key, (sources, _) in tables.items()})
    _refuse_files(package, {key: flags for key, (_, flags) in tables.items()})
    naming: dict[str, dict[Key, None]] = {}
    for key, (sources, _) in tables.items():
        for path in sources:
            if is_compiled(path, variant.backend):
                naming.setdefault(path, {})[key] = None
    groups: dict[tuple[Key, ...], list[str]] = {}
    for path, keys in naming.items():
        groups.setdefault(tuple(keys), []).append(path)
    return tuple(Group(keys, tuple(paths), _joined([tables[key][1] for key in keys])) for keys, paths in groups.items())


FromNvcc = Callable[[Sequence[str]], tuple[str, ...]]
"""What makes of flags for nvcc those for the compiler that is there."""


def compiled_sources(
    package: Package, variant: Variant, family: str, from_nvcc: FromNvcc = tuple
) -> tuple[Source, ...]:
    """The sources of one variant in the order of their link. Raises InputError as `source_groups` does.

    Those that ask most of the machine come last: of an inline function that several objects hold, the linker keeps the
    first copy, and one made for AVX-512 would run on every machine.
    """
    groups = source_groups(package, variant, family)
    found = (_source(package, variant, path, group, from_nvcc) for group in groups for path in group.sources)
    return tuple(sorted(found, key=lambda source: tier(source.flags)))


def _source(package: Package, variant: Variant, path: str, group: Group, from_nvcc: FromNvcc) -> Source:
    """One of a group; of those for the device's compiler the flags are its own, upstream's way."""
    if PurePosixPath(path).suffix not in variant.backend.device_suffixes:
        return Source(path, group.flags)
    sections = [section for section in _sections(package, variant) if ("kernel", section.name) in group.keys]
    framework = package.framework
    binding = () if isinstance(framework, TorchNoarch) or ("torch",) not in group.keys else (framework.include,)
    around = (*binding, *(section.include for section in sections))
    usual = tuple(folder for folder in USUAL_FOLDERS if (package.root / folder).is_dir())
    folders = dict.fromkeys(folder for include in around for folder in (*include, *usual))
    flags = from_nvcc(_joined([without_lines(section.device_flags) for section in sections]))
    archs = compiled_archs(sections or _sections(package, variant), variant)
    return Source(path, with_include(tuple(folders), flags), archs)


def _sections(package: Package, variant: Variant) -> tuple[KernelSection, ...]:
    """The kernel sections that take part in a variant."""
    release = variant.backend_version
    return tuple(s for s in package.sections_for(variant.backend) if release is None or takes_part(s, release))


def _tables(
    package: Package, variant: Variant, family: str | None
) -> dict[Key, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The files and the flags of the binding's table, and of that of each kernel section."""
    framework = package.framework
    if not isinstance(framework, Torch):
        raise TypeError(f"{type(framework).__name__} packages have no compiled sources")
    usual = tuple(folder for folder in USUAL_FOLDERS if (package.root / folder).is_dir())
    words = _expanded(package, ("torch",), framework.cxx_flags, family)
    tables: dict[Key, tuple[tuple[str, ...], tuple[str, ...]]] = {
        ("torch",): (framework.sources, with_include((*framework.include, *usual), words))
    }
    for section in _sections(package, variant):
        isa = ISAS[section.isa] if section.isa else None
        if isa is None or isa.cpu == variant.platform.cpu:
            key = ("kernel", section.name)
            own = (*(isa.flags if isa else ()), *_expanded(package, key, section.cxx_flags, family))
            tables[key] = (section.sources, with_include((*section.include, *usual), own))
    return tables


def _joined(flags: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Flags one after another, equal lists once."""
    return tuple(flag for words in dict.fromkeys(flags) for flag in words)


def tier(flags: Sequence[str]) -> int:
    """How much of a machine the flags of a source ask for, by `model.isa.reach`; within CMake's expressions too."""
    words = (word for flag in flags for word in _OF_MACHINE.findall(flag))
    return max(map(reach, words), default=EVERY_MACHINE)


def _expanded(package: Package, key: Key, words: tuple[str, ...], family: str | None) -> tuple[str, ...]:
    if family is None:
        return words
    expanded = (_expand(package, (*key, "cxx-flags", index), word, family) for index, word in enumerate(words))
    return tuple(flag for flags in expanded for flag in flags)


def _expand(package: Package, key: tuple[str | int, ...], word: str, family: str) -> tuple[str, ...]:
    try:
        return expand(word, family)
    except GeneratorError as error:
        _, problems = find_tables(package)
        problems.add(key, f"an expression of CMake that cannot be evaluated: {word}: {error}", "write the flag itself")
        raise InputError(*problems.found) from error


def with_include(include: tuple[str, ...], flags: tuple[str, ...]) -> tuple[str, ...]:
    return (*(f"-I{folder}" for folder in include), *flags)


def is_compiled(path: str, backend: Backend) -> bool:
    """Whether a file under ``src`` is compiled; headers and the like are inputs only."""
    return PurePosixPath(path).suffix in backend.compiles


def shipped_python(package: Package) -> tuple[tuple[str, str], ...]:
    """The files that go into the artifact beside the library: (path there, path from the root), sorted.

    Raises InputError when there is no ``__init__.py`` to load, and for what cannot ship under its name.
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
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    shipped = sorted(name.as_posix() for name in names if _ships(name, package.framework.python_suffixes, folder))
    for name in shipped:
        if why := _why_misnamed(name) or _why_no_file(name, folder, package.root):
            raise InputError(Problem(why[0], str(folder), why[1]))
    return tuple((name, f"{package.python_source}/{name}") for name in shipped)


def _why_misnamed(name: str) -> tuple[str, str] | None:
    if not name.isprintable():
        return f"a file has a name that cannot be written: {name!r}", "rename it"
    if name.partition("/")[0] in OWN_FILES:
        return f"a folder has the name of a file that the builder writes: {name}", "rename it"
    return None


def _why_no_file(name: str, folder: Path, root: Path) -> tuple[str, str] | None:
    if (folder / name).is_dir():
        return f"{name} is a link to a folder, whose files would not ship", "copy the folder, or link each file"
    if not (folder / name).is_symlink() and not (folder / name).is_file():
        return f"{name} is a pipe, a socket or a device, and no file", "remove it"
    if not (folder / name).is_file():
        return f"{name} is a link that leads to no file: {(folder / name).readlink()}", "remove it"
    if why := why_foreign(folder / name, root):
        return f"{name} {why}", OWN_FILE
    return None


def _ships(name: Path, suffixes: tuple[str, ...], folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in name.parts)
    made = is_bytecode(name) or str(name) in OWN_FILES
    return (
        not hidden
        and not made
        and ((folder / name).is_dir() or name.name.endswith(tuple(f".{suffix}" for suffix in suffixes)))
    )


def refuse_missing(package: Package, sources: Mapping[Key, Sequence[str]]) -> None:
    """Raises InputError for files that do not exist. sources: those of each table."""
    named = [(key, index, path) for key, paths in sources.items() for index, path in enumerate(paths)]
    missing = [(key, index, why) for key, index, path in named if (why := why_no_source(package.root, path))]
    if not missing:
        return
    _, problems = find_tables(package)
    for key, index, why in missing:
        problems.add((*key, "src", index), *why)
    problems.raise_if_any()


def find_files_for_folders(
    package: Package, flags: Mapping[Key, Sequence[str]]
) -> list[tuple[tuple[str | int, ...], str, str]]:
    """Files where flags look for headers: keys, what is wrong, and a hint. To clang one may map headers to any place.

    flags: of each table, with its include folders.
    """
    found = []
    tables = package.tables
    for key, words in flags.items():
        listed = [folder.rstrip("/") for folder in tables[key].include]
        for path in dict.fromkeys(search_folders(words)):
            if _is_no_folder(package.root / path):
                place = ("include", listed.index(path)) if path in listed else ("cxx-flags",)
                what = f"headers are looked for in folders, and this is a file: {path}"
                found.append(((*key, *place), what, "name the folder of the headers; -include takes a file"))
    return found


def _refuse_files(package: Package, flags: Mapping[Key, Sequence[str]]) -> None:
    if found := find_files_for_folders(package, flags):
        _, problems = find_tables(package)
        for place, what, hint in found:
            problems.add(place, what, hint)
        problems.raise_if_any()


def _is_no_folder(path: Path) -> bool:
    try:
        return not S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):  # nothing is there
        return False


def why_no_source(root: Path, path: str) -> tuple[str, str | None] | None:
    """Why an entry of ``src`` is no source, and what to do about it."""
    if (root / path).is_file():
        return None
    if (root / path).is_dir():
        return f"{path} is a folder", "name its files"
    if _PATTERN.search(path):
        return f"src takes no patterns: {path}", "name the files"
    return f"source file does not exist: {path}", nearest_file(root, path)


def nearest_file(root: Path, name: str) -> str | None:
    """A hint at what lies beside a path from ``root`` where nothing is, in the same spelling."""
    folder, _ = os.path.split(name)
    beside = (os.path.join(folder, path.name) for path in (root / folder).glob("*"))  # noqa: PTH118 - keeps the spelling
    return nearest(name, list(beside))
