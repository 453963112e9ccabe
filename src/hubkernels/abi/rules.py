"""What a library must not need or be, to load everywhere that its variant promises. Each rule yields what breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hubkernels.abi.exports import library_names, load_exports, versioned_names
from hubkernels.abi.installed import Installed, python_defines, system_version
from hubkernels.abi.library import Library, Symbol
from hubkernels.config.abi_policy import AbiPolicy
from hubkernels.model.artifact import LIMITED_API
from hubkernels.model.variant import Variant

_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_SHIM = re.compile(r"(aoti_)?torch_\w+|aoti_\w+")
"""Names of torch's C shim: it has no others, and C++ names begin with ``_Z``."""

_TORCH = frozenset({"libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so"})
"""Libraries of torch, which need not be at hand: its headers tell what a stable-ABI library may need of them."""

_TO_TORCH_PYTHON = "it belongs to one Python: register ops with TORCH_LIBRARY instead of pybind11"
_OWN_COPY = "do without it, or bring a copy of your own under another name"
_CLANG_OPENMP = "clang's OpenMP has a runtime that torch does not bring: compile with g++, or use at::parallel_for"


@dataclass(frozen=True, order=True)
class Finding:
    """What breaks a rule, and the way out. symbol: what of the library's, for those that look for who brought it."""

    what: str
    hint: str = ""
    symbol: str = ""


@dataclass(frozen=True)
class Subject:
    """A library and what it is held against. torch: the libraries of the torch that it was made for, if installed."""

    library: Library
    variant: Variant
    policy: AbiPolicy
    torch: Installed | None

    @property
    def cpu(self) -> str:
        return self.variant.platform.cpu

    @property
    def allowed(self) -> tuple[str, ...]:
        needed = self.policy.needed
        return (*needed["system"], *needed["torch"], *needed.get(self.variant.backend.name, ()))


def find(subject: Subject) -> tuple[Finding, ...]:
    """Everything that is wrong with a library, sorted."""
    if subject.library.cpu != subject.cpu:
        return (Finding(f"is made for {subject.library.cpu}, not for {subject.cpu}"),)
    return tuple(sorted({finding for rule in RULES for finding in rule(subject)}))


def unchecked(subject: Subject) -> tuple[str, ...]:
    """Libraries that the subject needs and that are not at hand: their symbols were not looked up.

    Those of torch that a stable-ABI library may need are in the headers of the C shim.
    """
    absent = _absent(subject)
    return () if subject.torch and subject.variant.stable_abi and set(absent) <= _TORCH else absent


def _absent(subject: Subject) -> tuple[str, ...]:
    return tuple(name for name in _others(subject) if subject.torch is None or not subject.torch.has(name))


def _form(subject: Subject) -> Iterator[Finding]:
    library = subject.library
    for path in library.search_paths:
        yield Finding(
            f"has the search path {path}: it would be looked in before the folders of the user's own system",
            "link without -rpath; torch's libraries are loaded before a kernel is",
        )
    if library.executable_stack:
        yield Finding(
            "asks for an executable stack, which hardened systems refuse",
            "assembly files need a .note.GNU-stack section; pass no -z execstack",
        )
    if library.writable_code:
        yield Finding("has a segment that is writable and executable", "pass no -N or -z execstack to the linker")
    if library.relocated_text:
        yield Finding("has relocations in its code", "compile every object with -fPIC")
    if library.packed_relocations:
        yield Finding("has packed relocations, which glibc reads from 2.36 on", "link with -z nopack-relative-relocs")
    if library.static_tls:
        yield Finding(
            "has thread-local variables in the room that a process has for those of its program: it loads only while"
            " some is left",
            "compile without -ftls-model=initial-exec, and without the attribute tls_model",
        )
    if library.cpu_levels:
        levels = ", ".join(library.cpu_levels)
        yield Finding(
            f"is marked as for processors with {levels} only: others do not load it", "compile without -mneeded"
        )
    for name in library.unique:
        yield Finding(
            f"{name} is one for the whole process (GNU unique): two versions of the kernel would share it",
            "compile with -fno-gnu-unique",
            name,
        )


def _needed(subject: Subject) -> Iterator[Finding]:
    for name in subject.library.needed:
        if name not in subject.allowed:
            hint = _TO_TORCH_PYTHON if name == "libtorch_python.so" else "link it statically, or do without"
            yield Finding(f"needs the library {name}, which not every system has", hint)
        release = subject.variant.backend_version
        if release and name.startswith("libcudart.so.") and name != f"libcudart.so.{release.parts[0]}":
            yield Finding(
                f"needs {name}, and is for CUDA {release}", "compile and link with the toolkit of that release"
            )


def _versions(subject: Subject) -> Iterator[Finding]:
    """Versions that must be there, with the symbols that need them; a version may stand alone."""
    system = library_names(subject.cpu)
    with_symbols = {(symbol.library, symbol.version) for symbol in subject.library.undefined}
    alone = [Symbol("", version, library) for library, version in subject.library.versions]
    for symbol in (*subject.library.undefined, *(s for s in alone if (s.library, s.version) not in with_symbols)):
        if symbol.library in system and (why := _against(symbol, subject)):
            what, hint = why
            yield Finding(f"{symbol.name} {what}".lstrip(), hint, symbol.name)


def _against(symbol: Symbol, subject: Subject) -> tuple[str, str] | None:
    """What speaks against one versioned symbol of a system library."""
    prefix, _, number = symbol.version.partition("_")
    known = subject.policy.versions[subject.cpu].get(prefix, ())
    if number in known:
        # The loader looks for a version in every library: a symbol that has moved to another is still found.
        if not symbol.name or (symbol.name, symbol.version) in versioned_names(subject.cpu):
            return None
        return f"is not in {symbol.library} as {symbol.version}: no {subject.policy.name} system has it", _OWN_COPY
    if number == "PRIVATE":
        return f"is private to glibc ({symbol.library}): another release may not have it", _OWN_COPY
    if known and re.fullmatch(r"[\d.]+", number):
        limit = f"{prefix}_{subject.policy.newest(subject.cpu, prefix)}"
        return f"needs {symbol.version} of {symbol.library}; the limit is {limit}", _OWN_COPY
    table = f"the table of {subject.policy.date}"
    return f"needs {symbol.version} of {symbol.library}, a version that {table} does not know", _OWN_COPY


def _python(subject: Subject) -> Iterator[Finding]:
    names = [symbol.name for symbol in subject.library.undefined if _PYTHON.fullmatch(symbol.name)]
    newest = max(subject.policy.python.values())
    for name in names:
        added = subject.policy.python.get(name)
        if added is None and python_defines(name):
            yield Finding(f"{name} is not in Python's stable ABI", "keep to the limited API of Python 3.9", name)
        elif added is None:
            what = (
                f"{name} is unknown: neither this Python nor the table of {subject.policy.date} (up to {newest}) has it"
            )
            yield Finding(what, "keep to the limited API of Python 3.9", name)
        elif added > LIMITED_API:
            what = f"{name} is in Python's stable ABI only from {added} on; artifacts serve {LIMITED_API} and later"
            yield Finding(what, "do without it, or look it up at run time", name)


def _torch(subject: Subject) -> Iterator[Finding]:
    """A stable-ABI library may need torch's C shim, as old as its variant says, and nothing else of torch."""
    if not subject.variant.stable_abi:
        return
    target = subject.variant.torch
    for symbol in _unversioned(subject):
        added = subject.policy.torch.get(symbol.name)
        if added is not None and added > target:
            what = f"{symbol.name} is in torch's C shim only from {added} on; {subject.variant.tag} serves {target}"
            yield Finding(what, f'raise torch.stable-abi to "{added}", or do without it', symbol.name)
        elif not _SHIM.fullmatch(symbol.name) and _comes_from_torch(symbol, subject):
            what = f"{symbol.name} is no part of torch's stable ABI"
            yield Finding(what, "use torch/csrc/stable and the C shim, or leave out torch.stable-abi", symbol.name)


def _comes_from_torch(symbol: Symbol, subject: Subject) -> bool:
    if subject.torch is None or not subject.torch.has("libtorch_cpu.so"):
        return re.match(r"_ZN?K?\w*?(2at|3c10|5torch)", symbol.name) is not None
    return subject.torch.provider(symbol.name, _others(subject)) is not None


def _provided(subject: Subject) -> Iterator[Finding]:
    """Each symbol but those of versions of the system's must be in a needed library. Weak ones may be missing.

    Of libraries of torch that are not installed here, a stable-ABI library may need what the C shim's headers declare.
    """
    if unchecked(subject):
        return
    absent = _absent(subject)
    system = _in_system(subject)
    for symbol in (*_unversioned(subject), *_versioned_elsewhere(subject)):
        if symbol.weak or symbol.name in system:
            continue
        if subject.torch and subject.torch.provider(symbol.name, _others(subject)):
            continue
        if absent and subject.torch and _SHIM.fullmatch(symbol.name) and subject.torch.declares(symbol.name):
            continue
        yield _missing(symbol.name, subject)


def _missing(name: str, subject: Subject) -> Finding:
    if newer := system_version(subject.cpu, library_names(subject.cpu), name):
        prefix = newer.partition("_")[0]
        limit = subject.policy.newest(subject.cpu, prefix)
        return Finding(f"{name} needs {newer}; the limit is {prefix}_{limit}", _OWN_COPY, name)
    if name.startswith(("__kmpc_", "__tgt_")):
        return Finding(f"no needed library provides {name}", _CLANG_OPENMP, name)
    hint = "name the source that defines it under src in build.toml, or remove the call"
    return Finding(f"no needed library provides {name}", hint, name)


def _unversioned(subject: Subject) -> Iterator[Symbol]:
    """Undefined symbols that come from anywhere but Python and a versioned library."""
    for symbol in subject.library.undefined:
        if not symbol.version and not _PYTHON.fullmatch(symbol.name):
            yield symbol


def _versioned_elsewhere(subject: Subject) -> Iterator[Symbol]:
    """Undefined symbols whose version is no system library's: libcudart has versions, too."""
    system = library_names(subject.cpu)
    return (symbol for symbol in subject.library.undefined if symbol.version and symbol.library not in system)


def _in_system(subject: Subject) -> frozenset[str]:
    """Names that the system libraries among the needed ones have, in any version."""
    exports = load_exports(subject.cpu)
    return frozenset(export.name for library in subject.library.needed for export in exports.get(library, ()))


def _others(subject: Subject) -> tuple[str, ...]:
    """The needed libraries that are not the system's."""
    return tuple(name for name in subject.library.needed if name not in library_names(subject.cpu))


RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (_form, _needed, _versions, _python, _torch, _provided)
"""Every rule. LIMITED_API and the tables of the policy say what they hold a library to."""
