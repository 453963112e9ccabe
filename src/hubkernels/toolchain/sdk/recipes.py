"""What each kind of SDK is made of: which wheels, which of their files, and what is added to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from hubkernels.abi.stub import shared_object
from hubkernels.errors import Problem
from hubkernels.model.sdk import SdkName
from hubkernels.toolchain.sdk.draft import Draft
from hubkernels.toolchain.sdk.fatbinary import PROGRAM, translator
from hubkernels.toolchain.sdk.index import Found, Index, NotOfferedError

TORCH_LIBRARIES = ("libc10", "libc10_cuda", "libtorch", "libtorch_cpu", "libtorch_cuda")
TOOLKIT = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
MATH = ("nvidia-cublas", "nvidia-cusparse", "nvidia-cusolver", "nvidia-curand", "nvidia-cufft")
_CUDA = "nvidia/cu13/"

_CUDA_12 = "nvidia/cu12/"
_SUFFIX_12 = "-cu12"
TOOLKIT_12 = ("nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-cuda-cccl", "nvidia-curand")
"""Of CUDA 12 the index has no nvcc. clang's own header includes one of curand's."""
FATBINARY_12 = "nvidia-cuda-nvcc==13.0.*"
"""The oldest release whose wheel has a fatbinary, of which alone it is taken."""
_TOOLKIT_FILE_12 = re.compile(
    r"nvidia/(?:cuda_nvcc|cuda_runtime|cuda_cccl|curand)/"
    r"(bin/ptxas|nvvm/libdevice/.+|include/(?!.*__init__\.py$).+|lib/libcudart\.so\.12)"
)
_MATH_FILE_12 = re.compile(r"nvidia/\w+/(include/(?!.*__init__\.py$).+)")

_PROGRAMS = (f"{_CUDA}bin/", f"{_CUDA}nvvm/bin/", f"{_CUDA_12}bin/")


@dataclass(frozen=True)
class Recipe:
    """One kind of SDK. form: changes with the recipe, so that no tree of an older one passes for its.

    wheels: asks the index for the newest that fit. place: where in the SDK a file of them goes, None where it does not
    belong there. finish: adds what no wheel has; the names are all that are in the wheels. parts: whether so little is
    taken that parts are fetched.
    """

    form: int
    wheels: Callable[[SdkName, Index], tuple[Found, ...]]
    place: Callable[[str], str | None]
    finish: Callable[[Draft, Sequence[str], str], None]
    parts: bool = True

    @staticmethod
    def is_program(path: str) -> bool:
        return path.startswith(_PROGRAMS)


def _torch_wheels(name: SdkName, index: Index) -> tuple[Found, ...]:
    """A local release such as 2.13.0+cpu is newer than 2.13.0 to pip, and would hide it."""
    (newest,) = index.ask((f"torch=={name.version}.*",), name.platform)
    public, local, _ = newest.release.partition("+")
    if local:
        try:
            return index.ask((f"torch==={public}",), name.platform)
        except NotOfferedError:
            pass
    return (newest,)


def _place_torch(path: str) -> str | None:
    return path if path.startswith("torch/include/") or path == "torch/version.py" else None


def _stub_torch(draft: Draft, names: Sequence[str], cpu: str) -> None:
    """Libraries with a name and nothing in them, for each that the wheel has: see ADR 13."""
    for library in (f"torch/lib/{name}.so" for name in TORCH_LIBRARIES):
        if library in names:
            draft.add(library, shared_object(cpu, library.rpartition("/")[2], ()))


def _toolkit_wheels(name: SdkName, index: Index) -> tuple[Found, ...]:
    return index.ask(tuple(f"{project}=={name.version}.*" for project in TOOLKIT), name.platform)


def _place_cuda(path: str) -> str | None:
    return path if path.startswith(_CUDA) else None


def _link_cuda(draft: Draft, names: Sequence[str], _: str) -> None:
    """The names that nvcc's profile and linkers look for, and wheels, which cannot have links, leave out."""
    draft.link(f"{_CUDA}lib64", "lib")
    for library in sorted(name for name in names if name.startswith(f"{_CUDA}lib/lib") and ".so." in name):
        draft.link(library.partition(".so.")[0] + ".so", library.rpartition("/")[2])


def _toolkit_wheels_12(name: SdkName, index: Index) -> tuple[Found, ...]:
    wanted = _pinned(name, index, tuple(f"{project}{_SUFFIX_12}" for project in TOOLKIT_12))
    return index.ask((*wanted, FATBINARY_12), name.platform)


def _place_cuda_12(path: str) -> str | None:
    """One tree of the several that wheels of CUDA 12 have."""
    if path == f"{_CUDA}bin/fatbinary":
        return f"{_CUDA_12}bin/{PROGRAM}"
    found = _TOOLKIT_FILE_12.fullmatch(path)
    return f"{_CUDA_12}{found[1]}" if found else None


def _finish_cuda_12(draft: Draft, _: Sequence[str], __: str) -> None:
    draft.add(f"{_CUDA_12}bin/fatbinary", translator(), program=True)
    draft.link(f"{_CUDA_12}lib64", "lib")
    draft.link(f"{_CUDA_12}lib/libcudart.so", "libcudart.so.12")


def _math_wheels(name: SdkName, index: Index) -> tuple[Found, ...]:
    return index.ask(_pinned(name, index, MATH), name.platform)


def _math_wheels_12(name: SdkName, index: Index) -> tuple[Found, ...]:
    return index.ask(_pinned(name, index, tuple(f"{project}{_SUFFIX_12}" for project in MATH)), name.platform)


def _pinned(name: SdkName, index: Index, projects: Sequence[str]) -> tuple[str, ...]:
    """Which of these belong to a release of the toolkit: many have numbers of their own, its metapackage tells them."""
    (kit,) = index.ask((f"cuda-toolkit=={name.version}.*",), name.platform)
    pins = dict(filter(None, map(_pin, kit.requires)))
    if missing := [project for project in projects if project not in pins]:
        raise NotOfferedError(Problem(f"cuda-toolkit {kit.release} of the package index has no {', '.join(missing)}"))
    return tuple(f"{project}{pins[project]}" for project in projects)


def _pin(text: str) -> tuple[str, str] | None:
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return None
    return found.name, str(found.specifier)


def _place_math(path: str) -> str | None:
    return path if path.startswith(f"{_CUDA}include/") else None


def _place_math_12(path: str) -> str | None:
    found = _MATH_FILE_12.fullmatch(path)
    return f"{_CUDA_12}{found[1]}" if found else None


def _nothing(_: Draft, __: Sequence[str], ___: str) -> None:
    pass


RECIPES: Mapping[str, Recipe] = {
    "torch": Recipe(1, _torch_wheels, _place_torch, _stub_torch),
    "cuda": Recipe(1, _toolkit_wheels, _place_cuda, _link_cuda, parts=False),
    "cuda-math": Recipe(1, _math_wheels, _place_math, _nothing),
}

RECIPES_12: Mapping[str, Recipe] = {
    "cuda": Recipe(1, _toolkit_wheels_12, _place_cuda_12, _finish_cuda_12),
    "cuda-math": Recipe(1, _math_wheels_12, _place_math_12, _nothing),
}
"""Of CUDA 12, whose wheels have a folder each, and no nvcc: a toolkit for clang."""


def recipe_of(name: SdkName) -> Recipe:
    older = name.kind in RECIPES_12 and name.version.parts[0] == 12  # noqa: PLR2004 - the release itself
    return (RECIPES_12 if older else RECIPES)[name.kind]
