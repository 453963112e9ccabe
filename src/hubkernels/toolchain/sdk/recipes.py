"""What each kind of SDK is made of: which wheels, which of their files, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from hubkernels.abi.stub import shared_object
from hubkernels.errors import Problem
from hubkernels.model.sdk import CUDA_FOLDER, SdkName
from hubkernels.toolchain.sdk.draft import Draft
from hubkernels.toolchain.sdk.index import Found, Index, NotOfferedError

TORCH_LIBRARIES = ("libc10", "libc10_cuda", "libtorch", "libtorch_cpu", "libtorch_cuda")
TOOLKIT = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
MATH = ("nvidia-cublas", "nvidia-cusparse", "nvidia-cusolver", "nvidia-curand", "nvidia-cufft")
_CUDA = f"{CUDA_FOLDER}/"
_PROGRAMS = (f"{_CUDA}bin/", f"{_CUDA}nvvm/bin/")


@dataclass(frozen=True)
class Recipe:
    """One kind of SDK. form: changes with the recipe, so that no tree of an older one passes for its.

    wheels: asks the index for the newest that fit. takes: whether a file of them belongs to the SDK. finish: adds what
    no wheel has; the names are all that are in the wheels. parts: whether so little is taken that parts are fetched.
    """

    form: int
    wheels: Callable[[SdkName, Index], tuple[Found, ...]]
    takes: Callable[[str], bool]
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


def _takes_torch(path: str) -> bool:
    return path.startswith("torch/include/") or path == "torch/version.py"


def _stub_torch(draft: Draft, names: Sequence[str], cpu: str) -> None:
    """Libraries with a name and nothing in them, for each that the wheel has: see ADR 13."""
    for library in (f"torch/lib/{name}.so" for name in TORCH_LIBRARIES):
        if library in names:
            draft.add(library, shared_object(cpu, library.rpartition("/")[2], ()))


def _toolkit_wheels(name: SdkName, index: Index) -> tuple[Found, ...]:
    return index.ask(tuple(f"{project}=={name.version}.*" for project in TOOLKIT), name.platform)


def _takes_cuda(path: str) -> bool:
    return path.startswith(_CUDA)


def _link_cuda(draft: Draft, names: Sequence[str], _: str) -> None:
    """The names that nvcc's profile and linkers look for, and wheels, which cannot have links, leave out."""
    draft.link(f"{_CUDA}lib64", "lib")
    for library in sorted(name for name in names if name.startswith(f"{_CUDA}lib/lib") and ".so." in name):
        draft.link(library.partition(".so.")[0] + ".so", library.rpartition("/")[2])


def _math_wheels(name: SdkName, index: Index) -> tuple[Found, ...]:
    """Those that belong to a release of the toolkit have numbers of their own: its metapackage tells them."""
    (kit,) = index.ask((f"cuda-toolkit=={name.version}.*",), name.platform)
    pins = dict(filter(None, map(_pin, kit.requires)))
    missing = [project for project in MATH if project not in pins]
    if missing:
        raise NotOfferedError(Problem(f"cuda-toolkit {kit.release} of the package index has no {', '.join(missing)}"))
    return index.ask(tuple(f"{project}{pins[project]}" for project in MATH), name.platform)


def _pin(text: str) -> tuple[str, str] | None:
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return None
    return found.name, str(found.specifier)


def _takes_math(path: str) -> bool:
    return path.startswith(f"{_CUDA}include/")


def _nothing(_: Draft, __: Sequence[str], ___: str) -> None:
    pass


RECIPES: Mapping[str, Recipe] = {
    "torch": Recipe(1, _torch_wheels, _takes_torch, _stub_torch),
    "cuda": Recipe(1, _toolkit_wheels, _takes_cuda, _link_cuda, parts=False),
    "cuda-math": Recipe(1, _math_wheels, _takes_math, _nothing),
}
