"""A package as the text of a CMakeLists.txt.

Flags come from the toolchain that `kernel-builder build` uses; what is made with them is for one machine: it links to
this machine's libraries, and is not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hubkernels.build.pipeline import Builder
from hubkernels.build.search import SEARCH_FLAGS
from hubkernels.build.sources import Group, source_groups, tier
from hubkernels.model.backend import CPU, CUDA, ROCM, XPU, Backend
from hubkernels.model.project import Package, Torch
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.cpu import LIBRARIES

WITH_CMAKE = (CPU, CUDA, ROCM, XPU)
"""Backends that the tree has CMake code for."""

DEVICE_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cuda": ("torch_cuda", "c10_cuda"),
    "rocm": ("torch_hip", "c10_hip"),
    "xpu": ("torch_xpu", "c10_xpu"),
}
_KERNEL_DIR = "${KERNEL_DIR}"
_TAKES_A_PATH = (*SEARCH_FLAGS, "-include")
_PREPROCESSOR = ("-I", "-D", "-U")
"""Of cxx-flags, which are the host compiler's, what a device compiler takes too."""


def cmake_lists(package: Package, builder: Builder, kernel: str, unique_id: str) -> str:
    """The text of CMakeLists.txt. kernel: the package's folder, seen from there."""
    backends = tree_backends(package)
    lines = [
        f"# {package.name}. Written by `kernel-builder create-pyproject`: change build.toml, and write it again.",
        "# What it builds is for this machine and its torch; `kernel-builder build` makes what others can load.",
        "cmake_minimum_required(VERSION 3.24)",
        'include("${CMAKE_CURRENT_LIST_DIR}/cmake/torch.cmake")',
        f"project({package.name} LANGUAGES CXX)",
        f"set(PYTHON_NAME {package.python_name})",
        f"set(UNIQUE_ID {unique_id})",
        f'get_filename_component(KERNEL_DIR {_quoted(kernel)} ABSOLUTE BASE_DIR "${{CMAKE_CURRENT_SOURCE_DIR}}")',
    ]
    for word, backend in zip(("if", *["elseif"] * len(backends)), backends, strict=False):
        part = _Part(package, backend, builder)
        lines += ["", f'{word}(BACKEND STREQUAL "{backend.name}")', *_indented(part.lines())]
    names = ", ".join(backend.name for backend in backends)
    unknown = f'message(FATAL_ERROR "{package.name} is not built for ${{BACKEND}} here: -DBACKEND= one of {names}")'
    return "\n".join((*lines, "else()", f"  {unknown}", "endif()", ""))


def tree_backends(package: Package) -> tuple[Backend, ...]:
    """The backends of the package that the tree has CMake code for."""
    return tuple(backend for backend in package.backends if backend in WITH_CMAKE)


def tree_variant(package: Package, backend: Backend, builder: Builder, torch: Version | None = None) -> Variant:
    """The variant that the tree builds for a backend, with this machine's torch or another."""
    stable = package.framework.stable_abi.get(backend.name) if isinstance(package.framework, Torch) else None
    release = torch or builder.tools().torch.version.minor
    return Variant(stable or release, backend, builder.machine.platform, stable_abi=stable is not None)


@dataclass(frozen=True)
class _Part:
    """What CMakeLists.txt says of one backend."""

    package: Package
    backend: Backend
    builder: Builder

    def lines(self) -> Iterator[str]:
        variant = tree_variant(self.package, self.backend, self.builder)
        yield from self._flags()
        # Only flags of the linker: what a build links to instead of this machine's libraries is its own affair.
        yield from _set("LINK_FLAGS", [word for word in self.builder.tools().link_flags() if word.startswith("-Wl,")])
        yield 'include("${CMAKE_CURRENT_LIST_DIR}/cmake/kernel.cmake")'
        # In the order of a build's link: of equal inline functions, the copy that every machine can run is the first.
        for group in sorted(source_groups(self.package, variant, None), key=lambda group: tier(group.flags)):
            yield from self._section(group)
        yield "kernel_library("
        yield f'  TAG "{_tag(variant)}"'
        yield from _list("SHIPPED", self.package.framework.python_suffixes)
        yield from _list("LIBRARIES", (*DEVICE_LIBRARIES.get(self.backend.name, ()), *LIBRARIES))
        yield ")"

    def _section(self, group: Group) -> Iterator[str]:
        sections = [s for s in self.package.sections_for(self.backend) if ("kernel", s.name) in group.keys]
        flags, device_flags = list(_in_project(group.flags)), [word for s in sections for word in s.device_flags]
        variables = []
        if self.backend.archs_key is not None:
            device_flags = [*(word for word in flags if word.startswith(_PREPROCESSOR)), *device_flags]
            if sections:
                archs = dict.fromkeys(arch for section in sections for arch in section.archs)
                yield f"device_arch_flags({' '.join(('archs', *map(_quoted, archs)))})"
                variables = ["${archs}"]
        name = "_".join(("section", *(word for key in group.keys for word in key)))
        yield f"kernel_section({re.sub(r'[^a-zA-Z0-9_]', '_', name)}"
        yield from _list("SOURCES", group.sources)
        yield from _list("FLAGS", _guarded(flags))
        yield from _list("DEVICE_FLAGS", _guarded(device_flags), variables)
        yield ")"

    def _flags(self) -> Iterator[str]:
        """The flags of every source, for each compiler and each torch that changes them."""
        yield "if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)"
        yield from _indented(self._flags_of("g++", "VARIANT_FLAGS"))
        yield "else()"
        yield from _indented(self._flags_of("clang", "VARIANT_FLAGS"))
        yield "endif()"
        if self.backend == ROCM:  # whose device compiler is a clang, whatever compiles the C++ sources
            yield from self._flags_of("clang", "DEVICE_VARIANT_FLAGS")
        else:
            yield "set(DEVICE_VARIANT_FLAGS ${VARIANT_FLAGS})"

    def _flags_of(self, family: str, name: str) -> Iterator[str]:
        own = self.builder.tools()
        tools = replace(own, compiler=replace(own.compiler, family=family))
        known: tuple[str, ...] = ()
        for torch in sorted({torch for row in self.builder.rows if row.backend == self.backend for torch in row.torch}):
            flags = tools.compile_flags(tree_variant(self.package, self.backend, self.builder, torch))
            if flags != known and known:
                yield f"if(TORCH_VERSION VERSION_GREATER_EQUAL {torch})"
                yield from _indented(_set(name, flags))
                yield "endif()"
            elif flags != known:
                yield from _set(name, flags)
            known = flags


def _tag(variant: Variant) -> str:
    """The variant's tag, with what only the machine of the build knows left to CMake."""
    torch = f"torch-stable-abi{variant.torch.digits}" if variant.stable_abi else "torch${TORCH_DIGITS}-cxx11"
    version = "${BACKEND_DIGITS}" if variant.backend.versioned else ""
    return f"{torch}-{variant.backend.tag}{version}-${{CMAKE_SYSTEM_PROCESSOR}}-linux"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" if line else line for line in lines)


def _set(name: str, words: Sequence[str]) -> Iterator[str]:
    yield f"set({name}"
    yield from _indented(_quoted(word) for word in words)
    yield ")"


def _list(name: str, words: Sequence[str], variables: Sequence[str] = ()) -> Iterator[str]:
    if words or variables:
        yield f"  {name}"
        yield from (f"    {word}" for word in (*variables, *(_quoted(word) for word in words)))


def _guarded(flags: Iterable[str]) -> Sequence[str]:
    """Flags as they stand in a generator expression. One that is such an expression stays, and may hold several."""
    parts = (word.split(";") if "$<" in word else (word.replace(">", "$<ANGLE-R>"),) for word in flags)
    return [word for several in parts for word in several]


def _in_project(flags: Sequence[str]) -> Iterator[str]:
    """Flags with the folder of the package before their paths, since CMake runs commands elsewhere."""
    words = iter(flags)
    for word in words:
        option = next((option for option in _TAKES_A_PATH if word.startswith(option)), None)
        if option is None:
            yield word
            continue
        path = word.removeprefix(option) or next(words, "")
        yield f"{option}{path}" if os.path.isabs(path) else f"{option}{_KERNEL_DIR}/{path}"  # noqa: PTH117 - a flag's


def _quoted(word: str) -> str:
    """A word as CMake reads it back, but for the folder of the package, which CMake fills in."""
    escaped = re.sub(r'["\\;]|\$(?!\{KERNEL_DIR\})', r"\\\g<0>", word)
    return f'"{escaped}"'
