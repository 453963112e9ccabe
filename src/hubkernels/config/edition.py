"""The tables of an edition-4 or edition-5 build.toml, turned into a Package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hubkernels import __version__
from hubkernels.config.crosschecks import cross_check
from hubkernels.config.document import Problems, RawTable
from hubkernels.config.older import missing_in_3, old_edition
from hubkernels.config.reader import Defaults, Reader
from hubkernels.config.values import (
    read_archs,
    read_branch,
    read_git_url,
    read_kernel_depends,
    read_license,
    read_python_depends,
    read_python_suffixes,
    read_repo_id,
)
from hubkernels.errors import did_you_mean
from hubkernels.model.backend import BACKENDS, Backend
from hubkernels.model.isa import EVERY_MACHINE, ISAS, reach
from hubkernels.model.project import (
    NAME_RULE,
    PACKAGE_NAME,
    Framework,
    KernelSection,
    Package,
    Requirements,
    Torch,
    TorchNoarch,
    TvmFfi,
)
from hubkernels.model.version import Version

NEWEST_EDITION, OLDEST_EDITION = 5, 4
OLDEST_STABLE_ABI = Version((2, 9))
"""The least that torch's headers say any of its stable ABI needs."""

UNMARKED_EDITION = 4  # edition 5 was the first that says its number
LAST_OLD_EDITION = 3
MIGRATE = "kernel-builder update-build"

TORCH_KEYS = ("cxx-flags", "include", "maxver", "minver", "pyext", "src", "stable-abi")
NOARCH_ARCHS = {b: b.archs_key.replace("-", "_") for b in BACKENDS.values() if b.archs_key}  # upstream's own spelling
NOARCH_KEYS = ("pyext", *NOARCH_ARCHS.values())
TVM_FFI_KEYS = ("cxx-flags", "include", "pyext", "src")
GENERAL_KEYS: Mapping[str, int] = {  # with the edition that brought each
    "name": 4,
    "version": 4,
    "license": 4,
    "upstream": 4,
    "source": 4,
    "backends": 4,
    "hub": 4,
    "python-depends": 4,
    "edition": 5,
    "kernel-depends": 5,
    **{backend.name: min(backend.general_keys.values()) for backend in BACKENDS.values() if backend.general_keys},
}
SECTION_KEYS = frozenset({"backend", "cxx-flags", "depends", "include", "src"})
DEPENDENCIES = frozenset({"torch", "sycl_tla", "metal-cpp"}) | {
    f"cutlass_{version}" for version in ("2_10", "3_5", "3_6", "3_8", "3_9", "4_0", "4_4", "4_5")
}
_MEANT = {"gpu": "cuda, rocm or xpu", "hip": "did you mean rocm?", "sycl": "did you mean xpu?"}
"""Hints for what people call a backend and we do not."""
_SECTION_BACKENDS = {backend.name: backend for backend in BACKENDS.values() if backend.has_sections}
_UNKNOWN_BACKEND = Backend(  # stands in for a name that no backend has, so that the rest of its section is read
    "unknown",
    "unknown",
    more_section_keys=frozenset[str]().union(*(backend.section_keys for backend in BACKENDS.values())),
)


@dataclass(frozen=True)
class Form:
    """What the two forms of build.toml differ in, once a package is spelled as edition-5 tables.

    unmarked_edition: the edition of a package that says none.
    lacks: keys that only the other form has.
    python_depth: how many folders of the package's Python name its Python files are in.
    """

    unmarked_edition: int
    lacks: frozenset[str]
    python_depth: int

    @property
    def package_keys(self) -> frozenset[str]:
        return frozenset({*PACKAGE_KEYS, "parity"}) - self.lacks

    def section_keys(self, backend: Backend) -> frozenset[str]:
        return (SECTION_KEYS | backend.section_keys) - self.lacks


EXTENSIONS = frozenset({"isa", "parity"})
UPSTREAM = Form(UNMARKED_EDITION, EXTENSIONS, 1)
WORKSPACE = Form(NEWEST_EDITION, frozenset(), 2)  # bindings of several packages stand side by side


def read_package(table: RawTable, problems: Problems, root: Path, form: Form) -> Package:
    """Read one package; what is wrong goes to ``problems``, and the result is then not to be used."""
    if form is UPSTREAM and (found := old_edition(table)):
        refuse_old(problems, found, table)
        table = {"general": {"name": "", "version": 0, "license": "", "edition": 5, "backends": []}, "torch": {}}
        problems = Problems(problems.document)  # of a stand-in: what the file holds means something else
    own = replace(problems, warnings=[])
    reader = Reader(table, (), own, form.package_keys)
    package = _read_tables(reader, root, form)
    cross_check(reader, package)
    return replace(package, warnings=tuple(own.warnings))


def refuse_old(problems: Problems, edition: int, table: RawTable) -> None:
    """Note that a file has to be migrated first."""
    lacks = missing_in_3(table)
    why = f": it lacks {' and '.join(lacks)}" if edition == LAST_OLD_EDITION else ""
    hint = f"migrate it with `{MIGRATE}`"
    if why:
        hint = f"{hint}, or add what it lacks and edition = {NEWEST_EDITION}"
    problems.add(("general",), f"build.toml is of edition {edition}, which is read no more{why}", hint)


def check_defaults(workspace: Defaults) -> None:
    """Check what the packages of a workspace may inherit, key by key."""
    _read_tables(workspace, Path(), WORKSPACE)
    backends = workspace.below("backend", _SECTION_BACKENDS)
    if backends is None:
        return
    for name in backends.table:
        backend = BACKENDS[name]
        section = backends.below(name, WORKSPACE.section_keys(backend) - {"backend"})
        if section:
            _read_section(section, name, backend)


def python_source(table: RawTable, name: str, form: Form) -> str:
    """Where the Python files that ship are kept."""
    folder = "tvm-ffi-ext" if "tvm-ffi" in table else "torch-ext"
    return "/".join((folder, *[name.replace("-", "_")] * form.python_depth))


def _read_tables(reader: Reader, root: Path, form: Form) -> Package:
    edition = _edition(reader.named("general"), form)
    general = reader.below("general", _since(GENERAL_KEYS, edition), GENERAL_KEYS)
    if general is None:
        if reader.lacks("general"):
            reader.miss("missing table [general]")
        general = Defaults({}, ("general",), reader.problems, ())  # its missing keys are no news
    name = _package_name(general)
    hub = general.below("hub", ("repo-id", "branch"))
    return Package(
        name=name,
        version=general.required_count("version") or 0,
        license=read_license(general),
        backends=_backends(general),
        framework=_framework(reader, edition),
        root=root,
        python_source=python_source(reader.table, name, form),
        sections=_sections(reader, form),
        requirements=_requirements(general, edition),
        kernel_depends=read_kernel_depends(general),
        python_depends=read_python_depends(general),
        upstream=read_git_url(general, "upstream"),
        source=read_git_url(general, "source"),
        repo_id=read_repo_id(hub) if hub else None,
        branch=read_branch(hub) if hub else None,
        parity=reader.texts("parity"),
        home=reader.problems.origin(()),
    )


def _since(keys: Mapping[str, int], edition: int) -> set[str]:
    return {key for key, first in keys.items() if first <= edition}


def _edition(general: Reader, form: Form) -> int:
    if "edition" not in general.table:
        return form.unmarked_edition
    found = general.count("edition")
    if found is None or found == NEWEST_EDITION:
        return NEWEST_EDITION
    if found > NEWEST_EDITION:
        what = f"edition {found} is newer than this hubkernels reads ({NEWEST_EDITION})"
        hint = f"this needs a newer hubkernels than {__version__}"
    elif found < OLDEST_EDITION:
        what = f"edition {found} is older than this hubkernels reads ({OLDEST_EDITION})"
        hint = f"editions before {NEWEST_EDITION} had no such key: remove it, then `{MIGRATE}`"
    else:
        what, hint = f"edition {found} has no edition key", "remove the key, or say edition = 5"
    general.complain(what, "edition", hint=hint)
    return NEWEST_EDITION


def _package_name(general: Reader) -> str:
    name = general.required_text("name")
    if name and not PACKAGE_NAME.fullmatch(name):
        general.complain(
            f'"{name}" is not a package name',
            "name",
            hint=NAME_RULE,
        )
    return name


def _backends(general: Reader) -> tuple[Backend, ...]:
    found: dict[str, Backend] = {}
    general.require("backends")
    for index, name in general.numbered_texts("backends"):
        if name not in BACKENDS:
            hint = _MEANT.get(name.lower()) or did_you_mean(name, BACKENDS)
            general.complain(f"unknown backend {name}", "backends", index, hint=hint)
        elif name in found:
            general.complain(f"backend {name} is named twice", "backends", index)
        else:
            found[name] = BACKENDS[name]
    return tuple(found.values())


def _framework(reader: Reader, edition: int) -> Framework:
    present = [name for name in FRAMEWORKS if name in reader.table]
    if len(present) > 1 or reader.lacks(*FRAMEWORKS):
        reader.miss(f"exactly one of [{'], ['.join(FRAMEWORKS)}] is needed, found {' and '.join(present) or 'none'}")
    found = []
    for name in present:
        keys, read = FRAMEWORKS[name]
        table = reader.below(name, keys)
        if table:
            found.append(read(table, edition))
    return found[0] if found else Torch()


def _torch(torch: Reader, edition: int) -> Torch:
    return Torch(
        sources=torch.texts("src"),
        include=torch.texts("include"),
        python_suffixes=read_python_suffixes(torch),
        minver=torch.version("minver"),
        maxver=torch.version("maxver"),
        stable_abi=_stable_abi(torch, edition),
        cxx_flags=torch.flags("cxx-flags"),
    )


def _torch_noarch(noarch: Reader, _: int) -> TorchNoarch:
    return TorchNoarch(
        read_python_suffixes(noarch),
        {backend.name: read_archs(noarch, backend, key) for backend, key in NOARCH_ARCHS.items()},
    )


def _tvm_ffi(ffi: Reader, _: int) -> TvmFfi:
    return TvmFfi(ffi.required_texts("src"), ffi.texts("include"), read_python_suffixes(ffi), ffi.flags("cxx-flags"))


FRAMEWORKS: Mapping[str, tuple[tuple[str, ...], Callable[[Reader, int], Framework]]] = {
    "torch": (TORCH_KEYS, _torch),
    "torch-noarch": (NOARCH_KEYS, _torch_noarch),
    "tvm-ffi": (TVM_FFI_KEYS, _tvm_ffi),
}
PACKAGE_KEYS = ("general", *FRAMEWORKS, "kernel")


def _stable_abi(torch: Reader, edition: int) -> dict[str, Version]:
    """One version for every backend, or since edition 5 a table of versions by backend."""
    if isinstance(torch.table.get("stable-abi"), dict) and edition >= 5:  # noqa: PLR2004 - an edition is a number
        by_backend = torch.below("stable-abi", BACKENDS)
        versions = {name: _abi_version(by_backend, name) for name in by_backend.table} if by_backend else {}
        return {name: version for name, version in versions.items() if version}
    version = _abi_version(torch, "stable-abi")
    return dict.fromkeys(BACKENDS, version) if version else {}


def _abi_version(reader: Reader, key: str) -> Version | None:
    version = reader.version(key)
    if version and version != version.minor:
        reader.complain(f"the version of a stable ABI is two numbers, found {version}", key, hint='such as "2.10"')
    elif version and version < OLDEST_STABLE_ABI:
        what = f"torch has no stable ABI before {OLDEST_STABLE_ABI}, found {version}"
        reader.complain(what, key, hint=f'"{OLDEST_STABLE_ABI}" or newer; the headers of each release say what it has')
    return version


def _requirements(general: Reader, edition: int) -> dict[str, Requirements]:
    found: dict[str, Requirements] = {}
    for backend in BACKENDS.values():
        reader = general.below(backend.name, _since(backend.general_keys, edition), backend.general_keys)
        if reader is not None:
            found[backend.name] = Requirements(
                reader.version("minver"),
                reader.version("maxver"),
                read_kernel_depends(reader),
                read_python_depends(reader, backend.name),
            )
    return found


def _sections(reader: Reader, form: Form) -> tuple[KernelSection, ...]:
    kernels = reader.named("kernel")
    found = []
    for name, table in kernels.table.items():
        backend = _section_backend(kernels.named(name)) if isinstance(table, dict) else _UNKNOWN_BACKEND
        section = kernels.below(name, form.section_keys(backend))
        if section:
            found.append(_read_section(section, name, backend))
    return tuple(found)


def _section_backend(section: Reader) -> Backend:
    section.require("backend", hint=did_you_mean("", _SECTION_BACKENDS))
    found = section.text("backend")
    if found in _SECTION_BACKENDS:
        return _SECTION_BACKENDS[found]
    if found in BACKENDS:
        section.complain(f"backend {found} takes no kernel section", "backend", hint="ship Python: [torch-noarch]")
    elif found is not None:
        section.complain(f"unknown backend {found}", "backend", hint=did_you_mean(found, _SECTION_BACKENDS))
    return _UNKNOWN_BACKEND


def _read_section(section: Reader, name: str, backend: Backend) -> KernelSection:
    return KernelSection(
        name=name,
        backend=backend,
        sources=section.required_texts("src"),
        depends=_depends(section),
        include=section.texts("include"),
        cxx_flags=section.flags("cxx-flags"),
        device_flags=section.flags(backend.device_flags_key) if backend.device_flags_key else (),
        archs=read_archs(section, backend, backend.archs_key) if backend.archs_key else (),
        cuda_minver=section.version("cuda-minver"),
        isa=_isa(section),
    )


def _depends(section: Reader) -> tuple[str, ...]:
    section.require("depends")
    named = section.numbered_texts("depends")
    for index, name in named:
        if name not in DEPENDENCIES:
            section.complain(f"unknown dependency {name}", "depends", index, hint=did_you_mean(name, DEPENDENCIES))
    return tuple(name for _, name in named)


def _isa(section: Reader) -> str | None:
    isa = section.text("isa")
    if isa is not None and isa not in ISAS:
        section.complain(f"unknown isa {isa}", "isa", hint=did_you_mean(isa, ISAS))
    for index, word in section.numbered_texts("cxx-flags") if isa else ():
        if reach(word) > EVERY_MACHINE:
            what = f"isa gives the flags of the instruction set, beside it stands {word}"
            section.complain(what, "cxx-flags", index, hint="drop the flag, or the isa")
    return isa
