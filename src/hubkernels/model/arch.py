"""The devices that CUDA and ROCm compile for: which names exist, and since and until which release.

Sources of the table, as of TABLE_DATE: what `nvcc --list-gpu-code` prints for 13.0 and 13.2; NVIDIA's release notes and
PTX ISA pages for older releases, for suffixes and for what 13.0 removed (Maxwell, Pascal, Volta; 10.1 became 11.0);
LLVM's list of AMDGPU processors, with the removal of gfx940 and gfx941 that ROCm 7.0 carries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hubkernels.model.version import Version

TABLE_DATE = "2026-11"


@dataclass(frozen=True)
class Arch:
    """since: the first release of the toolkit that compiles for it; None where that is older than our oldest variant.

    until: the first release that no longer does.
    """

    name: str
    since: Version | None = None
    until: Version | None = None


@dataclass(frozen=True)
class Family:
    """The architectures of one toolkit, and how a build.toml spells them.

    form: an entry; its group ``name`` is looked up. parts: the group ``kin`` says which others are of its kind.
    """

    toolkit: str
    noun: str
    examples: str
    form: re.Pattern[str]
    archs: Mapping[str, Arch]

    def name(self, entry: str) -> str | None:
        """The architecture that an entry asks for; None where it is not spelled as one."""
        found = self.form.fullmatch(entry)
        return found["name"] if found else None

    def knows(self, entry: str) -> bool:
        return self.name(entry) in self.archs

    def has_kin(self, entry: str) -> bool:
        """Whether the table has others of its generation, so that a missing one may be newer than the table."""
        found = self.form.fullmatch(entry)
        return found is not None and any(arch.startswith(found["kin"]) for arch in self.archs)

    def why_not(self, entry: str, release: Version) -> str | None:
        """Why a release of the toolkit does not compile for an entry."""
        arch = self.archs.get(self.name(entry) or "")
        if arch is None:
            return f"no such {self.noun} is known"
        if arch.since and release.minor < arch.since:
            return f"new in {self.toolkit} {arch.since}"
        if arch.until and release.minor >= arch.until:
            return f"removed in {self.toolkit} {arch.until}"
        return None


@dataclass(frozen=True)
class Choice:
    """What is compiled for. kept: entries as declared. dropped: the other entries, each with the reason."""

    kept: tuple[str, ...]
    dropped: tuple[tuple[str, str], ...]


def choose_archs(declared: Iterable[str], why_not: Callable[[str], str | None]) -> Choice:
    """Divide the declared entries by a rule: a table's, or what a compiler that is at hand says of itself."""
    reasons = {entry: why_not(entry) for entry in declared}
    return Choice(
        tuple(entry for entry, why in reasons.items() if why is None),
        tuple((entry, why) for entry, why in reasons.items() if why is not None),
    )


def _archs(rows: str) -> dict[str, Arch]:
    """Read lines of ``since until name...``."""
    found = {}
    for row in rows.strip().splitlines():
        since, until, *names = row.split()
        for name in names:
            found[name] = Arch(name, _release(since), _release(until))
    return found


def _release(text: str) -> Version | None:
    return None if text == "-" else Version.parse(text)


_CUDA = """
-     12.0  3.5 3.7
-     13.0  5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2
-     -     7.5 8.0 8.6 8.7 8.9 9.0 9.0a
12.8  -     10.0 10.0a 12.0 12.0a
12.8  13.0  10.1 10.1a
12.9  -     10.0f 10.3 10.3a 10.3f 12.0f 12.1 12.1a 12.1f
12.9  13.0  10.1f
13.0  -     8.8 11.0 11.0a 11.0f
"""

_ROCM = """
-     7.0   gfx940 gfx941
-     -     gfx600 gfx601 gfx602 gfx700 gfx701 gfx702 gfx703 gfx704 gfx705 gfx801 gfx802 gfx803 gfx805 gfx810
-     -     gfx900 gfx902 gfx904 gfx906 gfx908 gfx909 gfx90a gfx90c gfx942 gfx950 gfx9-generic gfx9-4-generic
-     -     gfx1010 gfx1011 gfx1012 gfx1013 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
-     -     gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153 gfx1200 gfx1201 gfx1250
-     -     gfx10-1-generic gfx10-3-generic gfx11-generic gfx12-generic
"""

FAMILIES: Mapping[str, Family] = {
    "cuda": Family(
        "CUDA",
        "CUDA capability",
        "9.0, 9.0a, 10.0f, 12.0+PTX",
        re.compile(r"(?P<name>(?P<kin>[1-9][0-9]*\.)[0-9]+[af]?)(\+PTX)?", re.ASCII),
        _archs(_CUDA),
    ),
    "rocm": Family(
        "ROCm",
        "ROCm architecture",
        "gfx90a, gfx942:xnack+, gfx11-generic",
        re.compile(r"(?P<name>(?P<kin>gfx[1-9][0-9]??)([0-9][0-9a-f]|(-[0-9])?-generic))(:[a-z]+[+-])*", re.ASCII),
        _archs(_ROCM),
    ),
}
"""By name of the backend."""
