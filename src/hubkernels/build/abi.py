"""The last look at a library before it is published: no artifact leaves a build that would not load elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hubkernels.abi.fatbin import PTX, read_archs
from hubkernels.abi.installed import Installed
from hubkernels.abi.library import read_library, undefined_names
from hubkernels.abi.rules import Finding, Subject, find
from hubkernels.config.abi_policy import load_abi_policy
from hubkernels.errors import CheckFailedError, EnvironmentLacksError, Problem
from hubkernels.host.process import run
from hubkernels.model.variant import Variant

_LINKED_ALONG = "the compiler's own libraries bring it in"


def require_portable(
    library: Path, variant: Variant, libraries: Installed, objects: Callable[[], Mapping[str, Path]]
) -> None:
    """Hold a library against the policy. libraries: those that it was linked with.

    objects: tells those of all sources, or none where they are not to be had; asked only when something is wrong.

    Raises CheckFailedError that names each symbol, the sources that bring it in, and the way out.
    """
    read = read_library(library)
    if isinstance(read, str):
        raise CheckFailedError(Problem(f"the linker made something that {read}", where=library.name))
    findings = find(Subject(read, variant, load_abi_policy(), libraries))
    if not findings:
        return
    plain = demangled([finding.symbol for finding in findings])
    used = {source: undefined_names(path) for source, path in objects().items()}
    what = f"the library for {variant.tag} would not load on every system of its kind: it is not published"
    raise CheckFailedError(Problem(what), *(_problem(finding, plain, used) for finding in findings))


def require_archs(library: Path, variant: Variant, metadata: Mapping[str, Any]) -> None:
    """Hold the device code in a library against what its metadata say. Raises CheckFailedError for a difference."""
    declared = frozenset(metadata["backend"].get("archs", ()))
    wanted = {arch.removesuffix(PTX) for arch in declared} | {arch for arch in declared if arch.endswith(PTX)}
    found = read_archs(library)
    missing, more = sorted(wanted - found), sorted(found - wanted)
    if missing or more:
        words = [f"lacks code for {', '.join(missing)}"] if missing else []
        words += [f"has code for {', '.join(more)}, which is not declared"] if more else []
        hint = "cuda-capabilities says what is compiled for; no -gencode or -arch in cuda-flags"
        raise CheckFailedError(Problem(f"the library for {variant.tag} {' and '.join(words)}", library.name, hint))


def _problem(finding: Finding, plain: Mapping[str, str], used: Mapping[str, frozenset[str]]) -> Problem:
    readable = plain.get(finding.symbol)
    users = [source for source, names in used.items() if finding.symbol in names]
    where = ", ".join(users) or (f"no source: {_LINKED_ALONG}" if finding.symbol and used else None)
    return Problem(f"{finding.what}\n{readable}" if readable else finding.what, where, finding.hint or None)


def demangled(names: Iterable[str]) -> dict[str, str]:
    """C++ names as they were written. Where there is no c++filt, or for a name of C, they stay as they are."""
    wanted = [name for name in dict.fromkeys(names) if name.startswith("_Z")]
    if not wanted:
        return {}
    try:
        lines = run(("c++filt", *wanted)).output.splitlines()
    except EnvironmentLacksError:
        return {}
    return dict(zip(wanted, lines, strict=True)) if len(lines) == len(wanted) else {}
