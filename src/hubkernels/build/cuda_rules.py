"""Why a machine builds no variant for CUDA, asked where the package itself allows it: it takes looking for programs."""

from __future__ import annotations

from collections.abc import Callable

from hubkernels.build.archs import takes_part, why_unknown_to
from hubkernels.build.supply import Supply
from hubkernels.model.project import Package
from hubkernels.model.sdk import FIRST_NVCC, LOCK, MENDS
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain import clang
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.cuda import without_lines
from hubkernels.toolchain.nvcc import Nvcc

_NOT_RUN = f"{MENDS}; where the file system allows no programs, HUBKERNELS_CACHE names a folder on another"


def _compiler_is_here(package: Package, variant: Variant, supply: Supply) -> str | None:
    """The nvcc of just this release, or where no index has it, a clang."""
    release = variant.backend_version
    if supply.why_none:
        return supply.why_none
    if release is None:
        return None
    if supply.by_clang(release):
        return _clang_is_here(package, variant, supply, release)
    return _nvcc_is_here(package, variant, supply, release)


def _nvcc_is_here(package: Package, variant: Variant, supply: Supply, release: Version) -> str | None:
    """Another release makes other code, and links another libcudart where majors differ."""
    if supply.takes_pinned(release) and supply.waits("cuda", release):
        return None
    nvcc = supply.nvcc(release)
    if nvcc is None:
        return why_without_nvcc(variant, release, supply)
    if variant.platform != supply.machine.platform:
        return None
    if nvcc.release.minor != release:
        return _why_another(nvcc, variant, release, supply)
    return why_unknown_to(package, variant, supply.codes(nvcc)) or _why_no_host(nvcc, supply.compiler())


def why_without_nvcc(variant: Variant, release: Version, supply: Supply) -> str:
    """What there is to say where there is no nvcc for a release, neither pinned nor of the machine."""
    if supply.takes_pinned(release):
        return f"the nvcc {release} that {LOCK} pins does not run, in {supply.toolkit(release)}: {_NOT_RUN}"
    return f"{supply.none_installed}{_lacking(variant, release, supply)}"


def _why_another(nvcc: Nvcc, variant: Variant, release: Version, supply: Supply) -> str:
    if supply.takes_pinned(release):
        return f"the tree of cuda {release} in {LOCK} has nvcc {nvcc.release}: `kernel-builder toolchain lock --update`"
    return f"needs nvcc {release}; {nvcc.path} is nvcc {nvcc.release}{_lacking(variant, release, supply)}"


def _lacking(variant: Variant, release: Version, supply: Supply) -> str:
    """What the lock lacks. What clang compiles with it has where that was asked for by name."""
    if release >= FIRST_NVCC or not supply.pinned.lacking:
        return supply.pinned.lacking
    return f"; clang does it, with what `kernel-builder toolchain lock --variant {variant.tag}` pins"


def _clang_is_here(package: Package, variant: Variant, supply: Supply, release: Version) -> str | None:
    """It takes ptxas and libcudart of just this release; what itself can do is known before these are fetched."""
    if variant.platform != supply.machine.platform:
        return None
    found = supply.clang()
    if isinstance(found, str):
        return f"needs nvcc {release}, or clang {clang.OLDEST} or newer, and {found}: {clang.INSTALL}"
    return why_unknown_to(package, variant, supply.codes(found), str(found)) or _why_no_flags(package, variant, release)


def _why_no_flags(package: Package, variant: Variant, release: Version) -> str | None:
    """Flags for nvcc that clang cannot be told: without them the code would be another."""
    sections = [section for section in package.sections_for(variant.backend) if takes_part(section, release)]
    found = {section.name: clang.without_counterpart(without_lines(section.device_flags)) for section in sections}
    told = (f"{', '.join(flags)} of kernel.{name}" for name, flags in found.items() if flags)
    first = next(told, None)
    return f"clang has no counterpart of nvcc's {first}: nvcc {release} is needed" if first else None


def _why_no_host(nvcc: Nvcc, compiler: Compiler | None) -> str | None:
    """Why nvcc would refuse the C++ compiler at hand."""
    newest = nvcc.newest_host.get(compiler.family) if compiler else None
    if compiler is None or newest is None or compiler.version.parts[0] <= newest:
        return None
    name = {"g++": "g++", "clang": "clang++"}[compiler.family]
    return (
        f"{compiler} is too new for nvcc {nvcc.release}, which accepts {compiler.family} up to {newest}: "
        f"name an older one, CXX={name}-{newest}"
    )


def _torch_has_device(_: Package, variant: Variant, supply: Supply) -> str | None:
    """The stable ABI has one set of headers; those of the C++ ABI for CUDA are in builds of torch for it alone."""
    if variant.stable_abi or supply.waits("torch", variant.torch):
        return None
    release, torch = variant.backend_version, supply.torch(variant)
    if torch is None or variant.torch != torch.version.minor:
        return None
    if torch.cuda is None:
        return f"needs ATen/cuda of a torch for CUDA {release}; {torch.release} is built without CUDA"
    if torch.cuda.minor != release:
        return f"needs a torch for CUDA {release}; {torch.release} is built with CUDA {torch.cuda}"
    return None


def _math_is_at_hand(_: Package, variant: Variant, supply: Supply) -> str | None:
    """torch's own headers for CUDA include those of the math libraries, which a pinned toolkit does not have."""
    release = variant.backend_version
    if variant.stable_abi or release is None or not supply.takes_pinned(release) or supply.pins("cuda-math", release):
        return None
    return f"needs the headers of the math libraries of CUDA {release}{supply.pinned.lacking}"


CUDA_RULES: tuple[Callable[[Package, Variant, Supply], str | None], ...] = (
    _compiler_is_here,
    _torch_has_device,
    _math_is_at_hand,
)
