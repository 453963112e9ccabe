"""Which variants of a package are built here, and the reason for each that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from hubkernels.build.archs import left_out, why_no_arch, why_no_dependency, why_no_device
from hubkernels.build.cuda_rules import CUDA_RULES
from hubkernels.build.supply import Supply
from hubkernels.config.variant_table import VariantRow
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem, nearest
from hubkernels.host.machine import OLDEST_TORCH, serves
from hubkernels.model.backend import BACKENDS, CPU, CUDA, Backend
from hubkernels.model.project import Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.variant import AnyVariant, Decisions, NoarchVariant, Rejection, Variant, index_by_tag
from hubkernels.toolchain import clang

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
    told = (*left_out(package, rows), *notes)
    return Decisions(tuple(accepted), tuple(rejected), told, dict(_made_by(accepted, supply)))


def _made_by(accepted: Iterable[AnyVariant], supply: Supply) -> Iterator[tuple[str, str]]:
    """Of the variants whose device code nvcc does not make, by tag, what does."""
    for variant in accepted:
        release = variant.backend_version if isinstance(variant, Variant) and variant.backend == CUDA else None
        if release and supply.by_clang(release) and not isinstance(found := supply.clang(), str):
            yield variant.tag, clang.label(found, release)


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

DEVICE_RULES: Mapping[str, tuple[MachineRule, ...]] = {"cuda": CUDA_RULES}
"""More of that for one backend, asked where the package itself allows the variant: it takes looking for programs."""
