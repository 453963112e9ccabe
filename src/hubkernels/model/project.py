"""What a build.toml says, whichever of its forms it was written in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hubkernels.errors import Problem
from hubkernels.model.backend import Backend
from hubkernels.model.version import Version

PACKAGE_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
NAME_RULE = "two or more lower-case letters, digits and dashes; a letter first, no dash last: my-kernel, relu2d"
"""PACKAGE_NAME in words."""

PYTHON_SUFFIXES = ("py", "pyi")


@dataclass(frozen=True)
class KernelDependency:
    """Another Hub kernel that this one loads: exactly one of version and revision is set."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Requirements:
    """What a package asks of one backend, ``[general.<backend>]``."""

    minver: Version | None = None
    maxver: Version | None = None
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelSection:
    """Sources for one backend, compiled with one set of flags.

    device_flags: cuda-flags, hip-flags or sycl-flags, whichever the backend has.
    archs: cuda-capabilities or rocm-archs.
    isa: instruction set whose flags the toolchain owns ("avx512"); cpu only.
    """

    name: str
    backend: Backend
    sources: tuple[str, ...]
    depends: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    device_flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    cuda_minver: Version | None = None
    isa: str | None = None


@dataclass(frozen=True)
class Torch:
    """A compiled torch extension, ``[torch]``: the sources of its binding and what Python ships with it."""

    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    python_suffixes: tuple[str, ...] = PYTHON_SUFFIXES
    minver: Version | None = None
    maxver: Version | None = None
    stable_abi: Mapping[str, Version] = field(default_factory=dict)
    cxx_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class TorchNoarch:
    """A kernel of Python files alone, ``[torch-noarch]``. archs: by backend, the devices that it is declared for."""

    python_suffixes: tuple[str, ...] = PYTHON_SUFFIXES
    archs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TvmFfi:
    """A kernel bound through tvm-ffi, ``[tvm-ffi]``: parsed, not built."""

    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    python_suffixes: tuple[str, ...] = PYTHON_SUFFIXES
    cxx_flags: tuple[str, ...] = ()


Framework = Torch | TorchNoarch | TvmFfi


@dataclass(frozen=True)
class Package:
    """One publishable kernel.

    root: folder that every path below is relative to.
    python_source: folder of the Python files that ship, relative to root.
    home: key path of its tables in the build.toml of root: none in upstream's form, package.<name> in a workspace.
    parity: case files that `check parity` and `bench` read.
    warnings: what is likely not meant in its tables, though a build can go on.
    """

    name: str
    version: int
    license: str
    backends: tuple[Backend, ...]
    framework: Framework
    root: Path
    python_source: str
    sections: tuple[KernelSection, ...] = ()
    requirements: Mapping[str, Requirements] = field(default_factory=dict)
    kernel_depends: tuple[KernelDependency, ...] = ()
    python_depends: tuple[str, ...] = ()
    upstream: str | None = None
    source: str | None = None
    repo_id: str | None = None
    branch: str | None = None
    parity: tuple[str, ...] = ()
    home: tuple[str | int, ...] = ()
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    @property
    def python_name(self) -> str:
        return self.name.replace("-", "_")

    @property
    def tables(self) -> Mapping[tuple[str, ...], Torch | TvmFfi | KernelSection]:
        """What has sources: the binding, then the kernel sections of every backend, by their keys in build.toml."""
        found: dict[tuple[str, ...], Torch | TvmFfi | KernelSection] = {}
        if not isinstance(self.framework, TorchNoarch):
            found["torch" if isinstance(self.framework, Torch) else "tvm-ffi",] = self.framework
        return found | {("kernel", section.name): section for section in self.sections}

    def sections_for(self, backend: Backend) -> tuple[KernelSection, ...]:
        return tuple(section for section in self.sections if section.backend == backend)


@dataclass(frozen=True)
class Unreadable:
    """A member whose build.toml has problems. name: the package's, as far as it can be told, else the folder's.

    package: the rest of it, for who looks for more problems.
    """

    name: str
    root: Path
    problems: tuple[Problem, ...]
    package: Package | None = None


@dataclass(frozen=True)
class Project:
    """A folder with a build.toml, or with folders that have one, and the packages of these files, in their order.

    unreadable: members that stand beside them; who asks for one, or for all, is told.
    """

    root: Path
    packages: tuple[Package, ...]
    unreadable: tuple[Unreadable, ...] = ()
