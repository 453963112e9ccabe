"""Which variants of a package are built here, and the reason for each that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hubkernels.build.archs import left_out, why_no_arch, why_no_dependency, why_no_device, why_unknown_to
from hubkernels.build.supply import Supply
from hubkernels.config.variant_table import VariantRow
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem, nearest
from hubkernels.host.machine import OLDEST_TORCH, serves
from hubkernels.model.backend import BACKENDS, CPU, CUDA, Backend
from hubkernels.model.project import Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.sdk import LOCK
from hubkernels.model.variant import AnyVariant, Decisions, NoarchVariant, Rejection, Variant, index_by_tag
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler
from hubkernels.toolchain.nvcc import USUAL, Nvcc

_NOT_RUN = (
    "`kernel-builder toolchain verify` mends what was altered; where the file system allows no programs, "
    "HUBKERNELS_CACHE names a folder on another"
)

BUILT_BACKENDS = frozenset({CPU, CUDA})
"""Backends that have a toolchain module."""


Rule = Callable[[Package, Variant], str | None]
MachineRule = Callable[[Package, Variant, Supply], str | None]


def select(package: Package, rows: Iterable[VariantRow], supply: Supply) -> Decisions:
    """Decide on every variant that the table and the package make possible.

    Of an SDK that is pinned and not fetched yet only the name is known: what it cannot do is told once it is there.
    """
    accepted: list[AnyVariant] = []
    rejected: list[Rejection] = []
    rows = tuple(rows)
    for variant in candidates(package, rows):
        of_package, of_machine = _reasons(package, variant, rows, supply)
        if of_package or of_machine:
            rejected.append(Rejection(variant, of_package, of_machine))
        else:
            accepted.append(variant)
    notes = (f"{backend.name}: {BINDING_ALONE}" for backend in without_sections(package))
    return Decisions(tuple(accepted), tuple(rejected), (*left_out(package, rows), *notes))


BINDING_ALONE = "only torch.src is compiled, no kernel section is for it"


def without_sections(package: Package) -> tuple[Backend, ...]:
    """Declared backends that no kernel section is for, where others have some: their variants are the binding alone."""
    if not isinstance(package.framework, Torch) or not package.framework.sources or not package.sections:
        return ()
    return tuple(backend for backend in package.backends if not package.sections_for(backend))


def _reasons(
    package: Package, variant: AnyVariant, rows: Iterable[VariantRow], supply: Supply
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the package says against a variant, and what the machine lacks for it: nothing for Python files alone."""
    if isinstance(variant, NoarchVariant):
        against = (_backend_is_declared(package, variant), why_no_device(package, variant, rows))
        return tuple(why for why in against if why), ()
    of_package = tuple(why for rule in PACKAGE_RULES if (why := rule(package, variant)))
    rules = (*MACHINE_RULES, *(() if of_package else DEVICE_RULES.get(variant.backend.name, ())))
    return of_package, tuple(why for rule in rules if (why := rule(package, variant, supply)))


def candidates(package: Package, rows: Iterable[VariantRow]) -> tuple[AnyVariant, ...]:
    """Every variant of the table: one a torch release, or one for all of them with a stable ABI.

    Of Python files alone: one a backend, which needs no table.
    """
    if isinstance(package.framework, TorchNoarch):
        return tuple(NoarchVariant(backend) for backend in BACKENDS.values())
    stable = package.framework.stable_abi if isinstance(package.framework, Torch) else {}
    found: list[Variant] = []
    for row in rows:
        target = stable.get(row.backend.name)
        for torch in (target,) if target else row.torch:
            found += [Variant(torch, row.backend, p, row.version, stable_abi=bool(target)) for p in row.platforms]
    return tuple(index_by_tag(found).values())


def choose(decisions: Decisions, package: Package, tags: Iterable[str] = ()) -> tuple[AnyVariant, ...]:
    """The accepted variants, or those of them that were asked for.

    Raises InputError for a tag that does not exist or was rejected, EnvironmentLacksError when nothing is left.
    """
    wanted = tuple(tags)
    for tag in wanted:
        _refuse_unknown(tag, decisions, package)
    chosen = tuple(variant for variant in decisions.accepted if not wanted or variant.tag in wanted)
    if not chosen:
        raise _nothing_left(decisions, package)
    return chosen


def _nothing_left(decisions: Decisions, package: Package) -> HubkernelsError:
    """The error for a package without a variant here: what keeps those that come nearest from being built."""
    declared = [rejection for rejection in decisions.rejected if rejection.variant.backend in package.backends]
    meant = declared or decisions.rejected
    fewest = min((len(rejection.reasons) for rejection in meant), default=0)
    nearest_ones = [rejection for rejection in meant if len(rejection.reasons) == fewest]
    why = dict.fromkeys(f"  - {reason}" for rejection in nearest_ones for reason in rejection.reasons)
    what = "\n".join((f"no variant of {package.name} can be built here", *why))
    lacking = any(rejection.of_machine for rejection in nearest_ones)
    kind = EnvironmentLacksError if lacking else InputError
    return kind(
        Problem(what, hint="`kernel-builder list-variants` tells every reason, `doctor` what this machine lacks")
    )


def _refuse_unknown(tag: str, decisions: Decisions, package: Package) -> None:
    rejected = {rejection.variant.tag: rejection.reasons for rejection in decisions.rejected}
    if tag in rejected:
        raise InputError(
            Problem("\n".join((f"{package.name}: {tag} is not built here", *(f"  - {why}" for why in rejected[tag]))))
        )
    if tag not in decisions.tags:
        hint = nearest(tag, decisions.tags) or "`kernel-builder list-variants` prints them all"
        raise InputError(Problem(f"{package.name} has no variant {tag}", hint=hint))


def _backend_is_declared(package: Package, variant: AnyVariant) -> str | None:
    if variant.backend in package.backends:
        return None
    return f"general.backends does not name {variant.backend.name}"


def _framework_is_built(package: Package, _: Variant) -> str | None:
    return "tvm-ffi packages are not built yet" if isinstance(package.framework, TvmFfi) else None


def _toolchain_exists(_: Package, variant: Variant, __: Supply) -> str | None:
    if variant.backend in BUILT_BACKENDS:
        return None
    built = ", ".join(sorted(backend.name for backend in BUILT_BACKENDS))
    return f"this hubkernels has no {variant.backend.name} toolchain (it has {built})"


def _platform_is_here(_: Package, variant: Variant, supply: Supply) -> str | None:
    here = supply.machine.platform
    return None if variant.platform == here else f"built on {variant.platform}, this machine is {here}"


def _torch_is_at_hand(_: Package, variant: Variant, supply: Supply) -> str | None:
    """Pinned headers of just this release, else the installed ones, of which newer ones serve an older stable ABI."""
    if supply.pins("torch", variant.torch):
        return None
    installed = supply.machine.torch
    if installed is None:
        return f"torch is not installed{supply.pinned.lacking}"
    if installed.version < OLDEST_TORCH:
        return f"the installed torch {installed.release} is older than {OLDEST_TORCH}"
    wanted = f"{'>= ' if variant.stable_abi else ''}{variant.torch}"
    needs = f"needs the headers of torch {wanted}, {installed.release} is installed"
    return None if serves(installed, variant) else f"{needs}{supply.pinned.lacking}"


def _nvcc_is_here(package: Package, variant: Variant, supply: Supply) -> str | None:
    """An nvcc of just this release: another one makes other code, and links another libcudart where majors differ."""
    release = variant.backend_version
    if supply.why_none:
        return supply.why_none
    if release is None or supply.waits("cuda", release):
        return None
    nvcc = supply.nvcc(release)
    if nvcc is None:
        return _why_no_nvcc(release, supply)
    if variant.platform != supply.machine.platform:
        return None
    if nvcc.release.minor != release:
        return _why_another(nvcc, release, supply)
    return why_unknown_to(package, variant, supply.codes(nvcc)) or _why_no_host(nvcc, supply.compiler())


def _why_no_nvcc(release: Version, supply: Supply) -> str:
    if supply.pins("cuda", release):
        return f"the nvcc {release} that {LOCK} pins does not run, in {supply.root('cuda', release)}: {_NOT_RUN}"
    return f"there is no nvcc in CUDA_HOME, CUDA_PATH, PATH or {USUAL}{supply.pinned.lacking}"


def _why_another(nvcc: Nvcc, release: Version, supply: Supply) -> str:
    if supply.pins("cuda", release):
        return f"the tree of cuda {release} in {LOCK} has nvcc {nvcc.release}: `kernel-builder toolchain lock --update`"
    return f"needs nvcc {release}; {nvcc.path} is nvcc {nvcc.release}{supply.pinned.lacking}"


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
    if variant.stable_abi or release is None or not supply.pins("cuda", release) or supply.pins("cuda-math", release):
        return None
    return f"needs the headers of the math libraries of CUDA {release}{supply.pinned.lacking}"


def _torch_is_in_bounds(package: Package, variant: Variant) -> str | None:
    framework = package.framework
    if not isinstance(framework, Torch) or variant.stable_abi:
        return None
    if framework.minver and variant.torch < framework.minver.minor:
        return f"torch.minver is {framework.minver}"
    if framework.maxver and variant.torch > framework.maxver.minor:
        return f"torch.maxver is {framework.maxver}"
    return None


def _release_is_in_bounds(package: Package, variant: Variant) -> str | None:
    bounds = package.requirements.get(variant.backend.name)
    if bounds is None or variant.backend_version is None:
        return None
    if bounds.minver and variant.backend_version < bounds.minver.minor:
        return f"general.{variant.backend.name}.minver is {bounds.minver}"
    if bounds.maxver and variant.backend_version > bounds.maxver.minor:
        return f"general.{variant.backend.name}.maxver is {bounds.maxver}"
    return None


def _has_sources(package: Package, variant: Variant) -> str | None:
    framework = package.framework
    if not isinstance(framework, Torch) or framework.sources or package.sections_for(variant.backend):
        return None
    return f"no sources: torch.src is empty and no kernel section has backend {variant.backend.name}"


BOUNDS: tuple[Rule, ...] = (_torch_is_in_bounds, _release_is_in_bounds, why_no_arch)
"""The limits that a package sets itself."""

PACKAGE_RULES: tuple[Rule, ...] = (
    _backend_is_declared,
    _framework_is_built,
    *BOUNDS,
    _has_sources,
    why_no_dependency,
)
"""What build.toml says against a variant, wherever it is built."""

MACHINE_RULES: tuple[MachineRule, ...] = (_toolchain_exists, _platform_is_here, _torch_is_at_hand)
"""What this machine lacks for it."""

DEVICE_RULES: Mapping[str, tuple[MachineRule, ...]] = {"cuda": (_nvcc_is_here, _torch_has_device, _math_is_at_hand)}
"""More of that for one backend, asked where the package itself allows the variant: it takes looking for programs."""
