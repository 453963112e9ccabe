"""The tables of an edition-4 or edition-5 build.toml, turned into a Package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.reader import Reader
from hubkernels.errors import did_you_mean
from hubkernels.model.backend import BACKENDS, CPU, CUDA, ROCM, XPU, Backend
from hubkernels.model.isa import ISAS
from hubkernels.model.project import (
    PACKAGE_NAME,
    PYTHON_SUFFIXES,
    Framework,
    KernelDependency,
    KernelSection,
    Package,
    Requirements,
    Torch,
    TorchNoarch,
    TvmFfi,
)
from hubkernels.model.version import Version

NEWEST_EDITION, OLDEST_EDITION = 5, 4
UNMARKED_EDITION = 4  # edition 5 was the first that says its number

FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")
PACKAGE_KEYS = ("general", *FRAMEWORKS, "kernel")
TORCH_KEYS = ("cxx-flags", "include", "maxver", "minver", "pyext", "src", "stable-abi")
NOARCH_KEYS = ("cuda_capabilities", "pyext", "rocm_archs")  # snake case is upstream's own here
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
}
SECTION_KEYS = frozenset({"backend", "cxx-flags", "depends", "include", "src"})
DEPENDENCIES = frozenset({"torch", "sycl_tla", "metal-cpp"}) | {
    f"cutlass_{version}" for version in ("2_10", "3_5", "3_6", "3_8", "3_9", "4_0", "4_4", "4_5")
}
_DEVICE_FLAGS = {CUDA: "cuda-flags", ROCM: "hip-flags", XPU: "sycl-flags"}
_ARCHS = {CUDA: "cuda-capabilities", ROCM: "rocm-archs"}


def read_package(table: RawTable, problems: Problems, root: Path, *, extensions: Iterable[str] = ()) -> Package:
    """Read one package; what is wrong goes to ``problems``, and the result is then not to be used.

    extensions: keys that the workspace form has beside the edition's own.
    """
    extensions = frozenset(extensions)
    reader = Reader(table, (), problems, (*PACKAGE_KEYS, *extensions & {"parity"}))
    edition = _edition(table, problems)
    general = reader.below("general", _since(GENERAL_KEYS, edition) | _since(_GENERAL_BACKENDS, edition))
    if general is None:
        if "general" not in table:
            problems.add((), "missing table [general]")
        general = Reader({}, ("general",), Problems(problems.document), ())  # its missing keys are no news
    name = general.required_text("name")
    if name and not PACKAGE_NAME.fullmatch(name):
        general.complain(
            f'"{name}" is not a package name',
            "name",
            hint="lower-case letters, digits and dashes; a letter first, no dash last: my-kernel, relu2d",
        )
    hub = general.below("hub", ("repo-id", "branch"))
    return Package(
        name=name,
        version=general.required_count("version"),
        license=general.required_text("license"),
        backends=_backends(general),
        framework=_framework(reader, edition),
        root=root,
        python_source=python_source(table, name),
        sections=_sections(reader, extensions),
        requirements=_requirements(general, edition),
        kernel_depends=_kernel_depends(general),
        python_depends=general.texts("python-depends"),
        upstream=general.text("upstream"),
        source=general.text("source"),
        repo_id=hub.text("repo-id") if hub else None,
        branch=hub.text("branch") if hub else None,
        parity=reader.texts("parity"),
    )


def python_source(table: RawTable, name: str) -> str:
    """Where upstream keeps the Python files that ship."""
    folder = "tvm-ffi-ext" if "tvm-ffi" in table else "torch-ext"
    return f"{folder}/{name.replace('-', '_')}"


_GENERAL_BACKENDS = {
    backend.name: min(backend.general_keys.values()) for backend in BACKENDS.values() if backend.general_keys
}


def _since(keys: Mapping[str, int], edition: int) -> set[str]:
    return {key for key, first in keys.items() if first <= edition}


def _edition(table: RawTable, problems: Problems) -> int:
    general = table.get("general")
    found = general.get("edition", UNMARKED_EDITION) if isinstance(general, dict) else UNMARKED_EDITION
    if type(found) is not int:
        problems.add(("general", "edition"), f"edition must be an integer, found {found!r}")
    elif found > NEWEST_EDITION:
        problems.add(
            ("general", "edition"),
            f"edition {found} is newer than this hubkernels reads ({NEWEST_EDITION})",
            hint="update with `pip install -U hubkernels`",
        )
    elif found < OLDEST_EDITION:
        problems.add(
            ("general", "edition"),
            f"edition {found} is older than this hubkernels reads ({OLDEST_EDITION})",
            hint="migrate the file with upstream's `kernel-builder update-build`",
        )
    elif found == UNMARKED_EDITION and "edition" in (general or ()):
        problems.add(("general", "edition"), "edition 4 has no edition key", hint="remove the key, or say edition = 5")
        return NEWEST_EDITION
    else:
        return found
    return NEWEST_EDITION


def _backends(general: Reader) -> tuple[Backend, ...]:
    names = general.required_texts("backends")
    for index, name in enumerate(names):
        if name not in BACKENDS:
            general.complain(f"unknown backend {name}", "backends", index, hint=did_you_mean(name, BACKENDS))
        elif name in names[:index]:
            general.complain(f"backend {name} is named twice", "backends", index)
    return tuple(dict.fromkeys(BACKENDS[name] for name in names if name in BACKENDS))


def _framework(reader: Reader, edition: int) -> Framework:
    present = [name for name in FRAMEWORKS if name in reader.table]
    if len(present) != 1:
        found = f"found {' and '.join(present)}" if present else "found none"
        reader.complain(f"exactly one of [{'], ['.join(FRAMEWORKS)}] is needed, {found}")
    if "torch-noarch" in present and (noarch := reader.below("torch-noarch", NOARCH_KEYS)):
        return TorchNoarch(_python_suffixes(noarch), noarch.texts("cuda_capabilities"), noarch.texts("rocm_archs"))
    if "tvm-ffi" in present and (ffi := reader.below("tvm-ffi", TVM_FFI_KEYS)):
        return TvmFfi(ffi.required_texts("src"), ffi.texts("include"), _python_suffixes(ffi), ffi.texts("cxx-flags"))
    torch = reader.below("torch", TORCH_KEYS) if "torch" in present else None
    if torch is None:
        return Torch()
    return Torch(
        sources=torch.texts("src"),
        include=torch.texts("include"),
        python_suffixes=_python_suffixes(torch),
        minver=torch.version("minver"),
        maxver=torch.version("maxver"),
        stable_abi=_stable_abi(torch, edition),
        cxx_flags=torch.texts("cxx-flags"),
    )


def _python_suffixes(reader: Reader) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*PYTHON_SUFFIXES, *reader.texts("pyext"))))


def _stable_abi(torch: Reader, edition: int) -> dict[str, Version]:
    """One version for every backend, or since edition 5 a table of versions by backend."""
    if isinstance(torch.table.get("stable-abi"), dict) and edition >= 5:  # noqa: PLR2004 - an edition is a number
        by_backend = torch.below("stable-abi", BACKENDS)
        versions = {name: by_backend.version(name) for name in by_backend.table} if by_backend else {}
        return {name: version for name, version in versions.items() if version and name in BACKENDS}
    version = torch.version("stable-abi")
    return dict.fromkeys(BACKENDS, version) if version else {}


def _requirements(general: Reader, edition: int) -> dict[str, Requirements]:
    found: dict[str, Requirements] = {}
    for backend in BACKENDS.values():
        reader = general.below(backend.name, _since(backend.general_keys, edition))
        if reader is not None and backend.general_keys:
            found[backend.name] = Requirements(
                reader.version("minver"),
                reader.version("maxver"),
                _kernel_depends(reader),
                reader.texts("python-depends"),
            )
    return found


def _kernel_depends(reader: Reader) -> tuple[KernelDependency, ...]:
    found = []
    for index, item in reader.tables("kernel-depends"):
        path = (*reader.path, "kernel-depends", index)
        entry = Reader(item, path, reader.problems, ("repo-id", "version", "revision"))
        if ("version" in item) == ("revision" in item):
            entry.complain("exactly one of version and revision is needed")
        version = entry.required_count("version") if "version" in item else None
        found.append(KernelDependency(entry.required_text("repo-id"), version, entry.text("revision")))
    return tuple(found)


def _sections(reader: Reader, extensions: frozenset[str]) -> tuple[KernelSection, ...]:
    tables = reader.table.get("kernel", {})
    kernels = reader.below("kernel", tables if isinstance(tables, dict) else ())
    if kernels is None:
        return ()
    sections = [_section(kernels, name, extensions) for name in kernels.table]
    return tuple(section for section in sections if section)


def _section(kernels: Reader, name: str, extensions: frozenset[str]) -> KernelSection | None:
    table = kernels.table[name]
    if not isinstance(table, dict):
        kernels.complain(f"kernel.{name} must be a table", name)
        return None
    path = (*kernels.path, name)
    backend = _section_backend(kernels, name, table)
    if backend is None:
        return None
    own = backend.section_keys - ({"isa"} - extensions)
    reader = Reader(table, path, kernels.problems, SECTION_KEYS | own)
    return KernelSection(
        name=name,
        backend=backend,
        sources=reader.required_texts("src"),
        depends=_depends(reader),
        include=reader.texts("include"),
        cxx_flags=reader.texts("cxx-flags"),
        device_flags=reader.texts(_DEVICE_FLAGS[backend]) if backend in _DEVICE_FLAGS else (),
        archs=reader.texts(_ARCHS[backend]) if backend in _ARCHS else (),
        cuda_minver=reader.version("cuda-minver") if backend == CUDA else None,
        isa=_isa(reader) if backend == CPU and "isa" in extensions else None,
    )


def _section_backend(kernels: Reader, name: str, table: RawTable) -> Backend | None:
    usable = {backend.name: backend for backend in BACKENDS.values() if backend.has_sections}
    found = table.get("backend")
    if isinstance(found, str) and found in usable:
        return usable[found]
    if found in tuple(BACKENDS):
        kernels.complain(
            f"backend {found} takes no kernel section", name, "backend", hint="ship Python: [torch-noarch]"
        )
    elif "backend" in table:
        kernels.complain(f"unknown backend {found}", name, "backend", hint=did_you_mean(str(found), usable))
    else:
        kernels.complain("missing key backend", name, "backend", hint=did_you_mean("", usable))
    return None


def _depends(reader: Reader) -> tuple[str, ...]:
    names = reader.required_texts("depends")
    for index, name in enumerate(names):
        if name not in DEPENDENCIES:
            reader.complain(f"unknown dependency {name}", "depends", index, hint=did_you_mean(name, DEPENDENCIES))
    return names


def _isa(reader: Reader) -> str | None:
    isa = reader.text("isa")
    if isa is not None and isa not in ISAS:
        reader.complain(f"unknown isa {isa}", "isa", hint=did_you_mean(isa, ISAS))
    return isa
