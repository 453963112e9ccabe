"""What of a package's lists of devices and dependencies a variant can have, and what is left out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from hubkernels.config.variant_table import VariantRow
from hubkernels.model.arch import FAMILIES, Choice, choose_archs
from hubkernels.model.backend import BACKENDS, Backend
from hubkernels.model.project import KernelSection, Package, Torch, TorchNoarch, TvmFfi
from hubkernels.model.variant import AnyVariant, NoarchVariant, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.cuda import usual_archs, without_lines

PROVIDED = frozenset({"torch"})
"""Dependencies of kernel sections that a toolchain of ours provides."""


def why_no_dependency(package: Package, variant: Variant) -> str | None:
    """Of the sections of this backend alone: what another backend needs is nothing to this one."""
    sections = package.sections_for(variant.backend)
    lacking = [
        f"{name} for kernel.{section.name}" for section in sections for name in section.depends if name not in PROVIDED
    ]
    return f"this hubkernels does not provide {', '.join(lacking)}" if lacking else None


def why_no_arch(package: Package, variant: Variant) -> str | None:
    """Why a section would be compiled for no device at all."""
    release = variant.backend_version
    if variant.backend.name not in FAMILIES or release is None:
        return None
    for section in package.sections_for(variant.backend):
        if takes_part(section, release) and section.archs and not (choice := arch_choice(section, release)).kept:
            toolkit = FAMILIES[variant.backend.name].toolkit
            return f"kernel.{section.name}: nothing is left to compile for with {toolkit} {release}: {_reasons(choice)}"
    return None


def why_unknown_to(
    package: Package, variant: Variant, codes: Collection[str], who: str = "this compiler"
) -> str | None:
    """Which declared devices the table knows of this release and the compiler at hand does not. codes: those it knows.

    Nothing is left out for it: another build of the same release would not leave it out.
    """
    wanted = (arch.removesuffix("+PTX").replace(".", "") for arch in device_archs(package, variant))
    unknown = [code for code in dict.fromkeys(wanted) if code not in codes] if codes else []
    return f"{who} does not know {', '.join(f'sm_{code}' for code in unknown)}" if unknown else None


def takes_part(section: KernelSection, release: Version) -> bool:
    """Whether a section is compiled with this release: upstream leaves it out below its cuda-minver."""
    return section.cuda_minver is None or release >= section.cuda_minver


def arch_choice(section: KernelSection, release: Version) -> Choice:
    """What a section is compiled for by a release of its toolkit, as far as the table knows."""
    family = FAMILIES[section.backend.name]
    return choose_archs(section.archs, lambda entry: family.why_not(entry, release))


def compiled_archs(sections: Iterable[KernelSection], variant: Variant) -> tuple[str, ...]:
    """What the sections together are compiled for, as declared; where none declares any, what upstream compiles for."""
    release = variant.backend_version
    if release is None:
        return ()
    usual = usual_archs(release)
    found = (arch_choice(section, release).kept if section.archs else usual for section in sections)
    return tuple(dict.fromkeys(arch for archs in found for arch in archs)) or usual


def device_archs(package: Package, variant: AnyVariant) -> tuple[str, ...]:
    """What a variant holds code for by its build.toml: that of the sections with sources for the device's compiler."""
    if not isinstance(variant, Variant) or variant.backend.name not in FAMILIES or variant.backend_version is None:
        return ()
    release, suffixes = variant.backend_version, tuple(variant.backend.device_suffixes)
    sections = [s for s in package.sections_for(variant.backend) if takes_part(s, release)]
    compiled = [section for section in sections if any(path.endswith(suffixes) for path in section.sources)]
    binding = package.framework.sources if isinstance(package.framework, Torch | TvmFfi) else ()
    if any(path.endswith(suffixes) for path in binding):
        compiled = sections
    elif not compiled:
        return ()
    return compiled_archs(compiled, variant)


def why_no_device(package: Package, variant: NoarchVariant, rows: Iterable[VariantRow]) -> str | None:
    """Why a package of Python files alone would be for no device at all."""
    choice = _device_choice(package, variant.backend, _releases(package, rows).get(variant.backend, ()))
    if choice.kept or not choice.dropped:
        return None
    return f"{_devices_key(variant.backend)}: nothing is left: {_reasons(choice)}"


def with_known_devices(package: Package, rows: Iterable[VariantRow]) -> Package:
    """A package of Python files alone, without the devices that no release compiles for: its metadata name the rest."""
    if not isinstance(package.framework, TorchNoarch):
        return package
    found = _releases(package, rows)
    kept = {
        name: _device_choice(package, BACKENDS[name], found.get(BACKENDS[name], ())).kept
        for name in package.framework.archs
    }
    return replace(package, framework=replace(package.framework, archs=kept))


def _device_choice(package: Package, backend: Backend, releases: Iterable[Version]) -> Choice:
    """Of the devices that Python files alone are declared for, those that some release compiles for."""
    framework, releases = package.framework, tuple(releases)
    declared = framework.archs.get(backend.name, ()) if isinstance(framework, TorchNoarch) else ()

    def why_not(entry: str) -> str | None:
        reasons = [FAMILIES[backend.name].why_not(entry, release) for release in releases]
        return reasons[0] if reasons and all(reasons) else None

    return choose_archs(declared, why_not)


def _devices_key(backend: Backend) -> str:
    return f"torch-noarch.{(backend.archs_key or '').replace('-', '_')}"


def left_out(package: Package, rows: Iterable[VariantRow]) -> tuple[str, ...]:
    """What variants do without though the package declares it, and what stays: one line a section and reason."""
    lines = _device_lines if isinstance(package.framework, TorchNoarch) else _lines
    found = _releases(package, rows).items()
    told = tuple(line for backend, releases in found for line in lines(package, backend, releases))
    return (*told, *(line for backend, _ in found for line in _line_flags(package, backend)))


def _line_flags(package: Package, backend: Backend) -> Iterator[str]:
    """Flags that would make other bytes of the same sources."""
    for section in package.sections_for(backend):
        kept = without_lines(section.device_flags)
        if dropped := sorted(set(section.device_flags) - set(kept)):
            why = "with it the code holds the times of files, and no two builds are alike"
            yield f"kernel.{section.name}: left out: {', '.join(dropped)} ({why})"


def _releases(package: Package, rows: Iterable[VariantRow]) -> dict[Backend, list[Version]]:
    """The releases of each toolkit that a package declares a backend of."""
    releases: dict[Backend, list[Version]] = {}
    for row in rows:
        if row.backend in package.backends and row.backend.name in FAMILIES and row.version:
            releases.setdefault(row.backend, []).append(row.version)
    return releases


def _device_lines(package: Package, backend: Backend, releases: Sequence[Version]) -> Iterator[str]:
    """Of Python files alone: what their metadata leave out, and what stays though some releases do not know it."""
    choice = _device_choice(package, backend, releases)
    if choice.dropped and choice.kept:
        yield f"{_devices_key(backend)}: {_say_left_out(choice)}"
    family = FAMILIES[backend.name]
    found: dict[str, list[Version]] = {}
    for release in releases:
        some = choose_archs(choice.kept, partial(family.why_not, release=release))
        if some.dropped:
            found.setdefault(_reasons(some), []).append(release)
    for what, those in found.items():
        yield f"{_devices_key(backend)}, {family.toolkit} {', '.join(map(str, those))}: does not run on {what}"


def _lines(package: Package, backend: Backend, releases: Iterable[Version]) -> Iterator[str]:
    found: dict[tuple[str, str], list[Version]] = {}
    for section in package.sections_for(backend):
        for release in releases:
            what = _what_is_left_out(section, release)
            if what:
                found.setdefault((section.name, what), []).append(release)
    for (name, what), those in found.items():
        yield f"kernel.{name}, {FAMILIES[backend.name].toolkit} {', '.join(map(str, those))}: {what}"


def _what_is_left_out(section: KernelSection, release: Version) -> str | None:
    if not takes_part(section, release):
        return f"the section is left out, its cuda-minver is {section.cuda_minver}"
    choice = arch_choice(section, release)
    if not choice.dropped or not choice.kept:  # where nothing is kept the variant is rejected
        return None
    return _say_left_out(choice)


def _say_left_out(choice: Choice) -> str:
    return f"left out: {_reasons(choice)}; {', '.join(choice.kept)} {'stays' if len(choice.kept) == 1 else 'stay'}"


def _reasons(choice: Choice) -> str:
    by_reason: dict[str, list[str]] = {}
    for entry, why in choice.dropped:
        by_reason.setdefault(why, []).append(entry)
    return ", ".join(f"{', '.join(entries)} ({why})" for why, entries in by_reason.items())
