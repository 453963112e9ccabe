"""A package as a CMake and setuptools tree, for editable installs and editors.

Flags come from the toolchain that `kernel-builder build` uses; what is made with them is for one machine: it links to
this machine's libraries, and is not checked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.build.pipeline import Builder
from hubkernels.build.plan import OPS_PY, UID_LENGTH
from hubkernels.build.sources import is_compiled, shipped_python, source_groups
from hubkernels.errors import InputError, Problem
from hubkernels.export.includes import Tree
from hubkernels.export.project import search_of, sources_of
from hubkernels.export.toml import write_toml
from hubkernels.host.files import hash_file
from hubkernels.host.git import git_state
from hubkernels.model.artifact import metadata
from hubkernels.model.backend import CPU, CUDA, ROCM, XPU, Backend
from hubkernels.model.project import Package, Torch
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.cpu import LIBRARIES

TREE = Path(__file__).with_name("tree")
BUILT_HERE = (CPU, CUDA, ROCM, XPU)
"""Backends that the tree can be built for."""

DEVICE_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "cuda": ("torch_cuda", "c10_cuda"),
    "rocm": ("torch_hip", "c10_hip"),
    "xpu": ("torch_xpu", "c10_xpu"),
}
_UNIQUE_ID = re.compile("[a-z0-9]+")
_COMMIT = re.compile("[0-9a-f]{40}([0-9a-f]{24})?")
_KERNEL_DIR = "${KERNEL_DIR}"
_TAKES_A_PATH = frozenset({"-I", "-isystem", "-iquote", "-idirafter", "-include"})


@dataclass(frozen=True)
class Stamp:
    """What marks the builds of one tree. kernel: the git state of the package, for its metadata."""

    unique_id: str
    kernel: Mapping[str, Any] | None


def stamp(
    package: Package, environment: Mapping[str, str], unique_id: str | None, sha: str | None, *, dirty: bool
) -> Stamp:
    """The stamp that was asked for; else the hash of the package's files, and the state of its repository."""
    if unique_id is not None and not _UNIQUE_ID.fullmatch(unique_id):
        raise InputError(Problem(f"{unique_id!r} is not an id", "--unique-id", "lower-case letters and digits"))
    if sha is not None and not _COMMIT.fullmatch(sha):
        raise InputError(Problem(f"{sha!r} is not a commit", "--kernel-sha", "40 or 64 hexadecimal digits"))
    if dirty and sha is None:
        raise InputError(Problem("--kernel-dirty says of which commit", hint="give --kernel-sha too"))
    state = {"commit": sha, "dirty": dirty} if sha else git_state(package.root, environment)
    return Stamp(unique_id or _content_id(package), state)


def _content_id(package: Package) -> str:
    tree = Tree(package.root, search_of(package))
    files = sorted({*tree.reach(tuple(sources_of(package))), *(path for _, path in shipped_python(package))})
    lines = "".join(f"{path} {hash_file(package.root / path)}\n" for path in files)
    return base64.b32encode(hashlib.sha256(lines.encode()).digest()).decode().lower()[:UID_LENGTH]


def render_tree(package: Package, builder: Builder, target: Path, mark: Stamp) -> dict[str, str]:
    """Every file of the tree for a package in upstream's form: its path below ``target``, and its text."""
    framework = package.framework
    if not isinstance(framework, Torch) or package.home:
        what = f"{package.name} has no CMake tree"
        hint = "`kernel-builder export` writes upstream's form first" if package.home else "it has no [torch] sources"
        raise InputError(Problem(what, where=str(package.root / "build.toml"), hint=hint))
    kernel = os.path.relpath(package.root.resolve(), target.resolve())
    words = {"PYTHON_NAME": package.python_name, "UNIQUE_ID": mark.unique_id}
    own = builder.tools().own_include
    headers = {f"cmake/include/{path.relative_to(own)}": path for path in own.rglob("*.h")}
    return {
        "CMakeLists.txt": _cmake_lists(package, builder, kernel, mark),
        "setup.py": _fill("setup.py.in", words),
        "pyproject.toml": _pyproject(package, kernel),
        "cmake/torch.cmake": _fill("torch.cmake", {}),
        "cmake/kernel.cmake": _fill("kernel.cmake", {}),
        "cmake/torch_facts.py": _fill("torch_facts.py.in", {}),
        "cmake/_ops.py.in": OPS_PY.format(op_id="@OPS_NAME@"),
        **{name: path.read_text(encoding="utf-8") for name, path in sorted(headers.items())},
        **{
            f"cmake/metadata-{backend.name}.json": _metadata(package, backend, builder, mark)
            for backend in _backends(package)
        },
    }


def _fill(name: str, words: Mapping[str, str]) -> str:
    text = (TREE / name).read_text(encoding="utf-8")
    return (
        re.sub("|".join(f"@{word}@" for word in words), lambda found: words[found[0].strip("@")], text)
        if words
        else text
    )


def _backends(package: Package) -> tuple[Backend, ...]:
    return tuple(backend for backend in package.backends if backend in BUILT_HERE)


def _metadata(package: Package, backend: Backend, builder: Builder, mark: Stamp) -> str:
    torch = builder.tools().torch.version.minor
    op_id = f"_{package.python_name}_{backend.name}_{mark.unique_id}"
    own = {"kernel-builder": {"version": __version__}, **({"kernel": mark.kernel} if mark.kernel else {})}
    text = {**metadata(package, _variant(package, backend, torch, builder), op_id), "provenance": own}
    return json.dumps(text, indent=2) + "\n"


def _cmake_lists(package: Package, builder: Builder, kernel: str, mark: Stamp) -> str:
    backends = _backends(package)
    lines = [
        f"# {package.name}. Written by `kernel-builder create-pyproject`: change build.toml, and write it again.",
        "# What it builds is for this machine and its torch; `kernel-builder build` makes what others can load.",
        "cmake_minimum_required(VERSION 3.24)",
        'include("${CMAKE_CURRENT_LIST_DIR}/cmake/torch.cmake")',
        f"project({package.name} LANGUAGES CXX)",
        f"set(PYTHON_NAME {package.python_name})",
        f"set(UNIQUE_ID {mark.unique_id})",
        f'get_filename_component(KERNEL_DIR {_quoted(kernel)} ABSOLUTE BASE_DIR "${{CMAKE_CURRENT_SOURCE_DIR}}")',
    ]
    for word, backend in zip(("if", *["elseif"] * len(backends)), backends, strict=False):
        lines += [
            "",
            f'{word}(BACKEND STREQUAL "{backend.name}")',
            *_indented(_backend_lines(package, backend, builder)),
        ]
    names = ", ".join(backend.name for backend in backends)
    unknown = f'message(FATAL_ERROR "{package.name} is not built for ${{BACKEND}} here: -DBACKEND= one of {names}")'
    return "\n".join((*lines, "else()", f"  {unknown}", "endif()", ""))


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" if line else line for line in lines)


def _backend_lines(package: Package, backend: Backend, builder: Builder) -> Iterator[str]:
    variant = _variant(package, backend, builder.tools().torch.version.minor, builder)
    yield from _variant_flags(package, backend, builder)
    # Only flags of the linker: what a build links to instead of this machine's libraries is its own affair.
    yield from _set("LINK_FLAGS", [word for word in builder.tools().link_flags() if word.startswith("-Wl,")])
    yield 'include("${CMAKE_CURRENT_LIST_DIR}/cmake/kernel.cmake")'
    sections = {("kernel", section.name): section for section in package.sections_for(backend)}
    seen: set[str] = set()
    for group in source_groups(package, variant):
        section = sections.get((group.key[0], group.key[-1]))
        sources = [path for path in group.sources if is_compiled(path, backend) and path not in seen]
        seen.update(sources)
        if not sources:
            continue
        device = list(section.device_flags) if section else []
        if section and backend.archs_key:
            yield f"device_arch_flags({' '.join(('archs', *map(_quoted, section.archs)))})"
        name = re.sub(r"\W", "_", "_".join(("section", *group.key)))
        yield f"kernel_section({name}"
        yield from _list("SOURCES", sources)
        yield from _list("FLAGS", [_flag(word) for word in _in_project(group.flags)])
        yield from _list("DEVICE_FLAGS", device, ("${archs}",) if section and backend.archs_key else ())
        yield ")"
    yield "kernel_library("
    yield f'  TAG "{_tag(variant)}"'
    yield from _list("SHIPPED", package.framework.python_suffixes)
    yield from _list("LIBRARIES", (*DEVICE_LIBRARIES.get(backend.name, ()), *LIBRARIES))
    yield ")"


def _tag(variant: Variant) -> str:
    """The variant's tag, with what only the machine of the build knows left to CMake."""
    torch = f"torch-stable-abi{variant.torch.digits}" if variant.stable_abi else "torch${TORCH_DIGITS}-cxx11"
    version = "${BACKEND_DIGITS}" if variant.backend.versioned else ""
    return f"{torch}-{variant.backend.tag}{version}-${{CMAKE_SYSTEM_PROCESSOR}}-linux"


def _variant(package: Package, backend: Backend, torch: Version, builder: Builder) -> Variant:
    stable = package.framework.stable_abi.get(backend.name) if isinstance(package.framework, Torch) else None
    return Variant(stable or torch, backend, builder.machine.platform, stable_abi=stable is not None)


def _variant_flags(package: Package, backend: Backend, builder: Builder) -> Iterator[str]:
    """The flags of every source, for each compiler and each torch that changes them."""
    yield "if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)"
    yield from _indented(_flags_of("g++", "VARIANT_FLAGS", package, backend, builder))
    yield "else()"
    yield from _indented(_flags_of("clang", "VARIANT_FLAGS", package, backend, builder))
    yield "endif()"
    if backend == ROCM:  # whose device compiler is a clang, whatever compiles the C++ sources
        yield from _flags_of("clang", "DEVICE_VARIANT_FLAGS", package, backend, builder)
    else:
        yield "set(DEVICE_VARIANT_FLAGS ${VARIANT_FLAGS})"


def _flags_of(family: str, name: str, package: Package, backend: Backend, builder: Builder) -> Iterator[str]:
    tools = replace(builder.tools(), compiler=replace(builder.tools().compiler, family=family))
    known: tuple[str, ...] = ()
    for torch in sorted({torch for row in builder.rows if row.backend == backend for torch in row.torch}):
        flags = tools.compile_flags(_variant(package, backend, torch, builder))
        if flags != known and known:
            yield f"if(TORCH_VERSION VERSION_GREATER_EQUAL {torch})"
            yield from _indented(_set(name, flags))
            yield "endif()"
        elif flags != known:
            yield from _set(name, flags)
        known = flags


def _set(name: str, words: Sequence[str]) -> Iterator[str]:
    yield f"set({name}"
    yield from _indented(_quoted(word) for word in words)
    yield ")"


def _list(name: str, words: Sequence[str], variables: Sequence[str] = ()) -> Iterator[str]:
    if words or variables:
        yield f"  {name}"
        yield from (f"    {word}" for word in (*variables, *(_quoted(word) for word in words)))


def _flag(word: str) -> str:
    """A flag inside of a generator expression."""
    return word.replace(">", "$<ANGLE-R>")


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


def _pyproject(package: Package, kernel: str) -> str:
    """Names, what is needed, and where the Python files are."""
    source = os.path.normpath(os.path.join(kernel, "torch-ext"))  # noqa: PTH118 - a path in a file
    suffixes = [f"**/*.{suffix}" for suffix in package.framework.python_suffixes]
    table = {
        "build-system": {
            "requires": ["cmake>=3.24", "ninja", "setuptools>=77", "torch"],
            "build-backend": "setuptools.build_meta",
        },
        "project": {
            "name": package.name,
            "version": str(package.version),
            "requires-python": ">=3.9",
            "dependencies": ["torch"],
        },
        "tool": {
            "setuptools": {
                "package-dir": {"": source},
                "packages": {"find": {"where": [source], "include": [f"{package.python_name}*"]}},
                "package-data": {package.python_name: suffixes},
            }
        },
    }
    return "# Written by `kernel-builder create-pyproject`.\n" + write_toml(table)
