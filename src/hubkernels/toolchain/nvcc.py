"""The nvcc that a CUDA build would use: which one, of which release, and the host compilers that it accepts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.process import run
from hubkernels.model.version import Version

USUAL = Path("/usr/local/cuda")

PINNED = "pinned by toolchain.lock"
"""How an nvcc of an SDK is found."""

NEWEST_HOST: Mapping[str, Mapping[Version, int]] = {
    "g++": {
        Version((11, 8)): 11,
        **dict.fromkeys((Version((12, minor)) for minor in range(4)), 12),
        **dict.fromkeys((Version((12, minor)) for minor in (4, 5, 6)), 13),
        **dict.fromkeys((Version((12, minor)) for minor in (8, 9)), 14),
        Version((13, 0)): 15,
    },
    "clang": {
        **dict.fromkeys((Version((12, minor)) for minor in (0, 1)), 14),
        **dict.fromkeys((Version((12, minor)) for minor in (2, 3)), 15),
        Version((12, 4)): 16,
        **dict.fromkeys((Version((12, minor)) for minor in (5, 6)), 17),
        **dict.fromkeys((Version((12, minor)) for minor in (8, 9)), 18),
        Version((13, 0)): 20,
    },
}
"""The newest major release of each host compiler, by CUDA release: for toolkits whose own header cannot be read."""

_FOLDERS = frozenset({"_HERE_", "TOP", "INCLUDES", "SYSTEM_INCLUDES", "CICC_PATH", "NVVMIR_LIBRARY_DIR"})
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_VARIABLE = re.compile(r"^#\$ (\w+)=(.*)$", re.MULTILINE)
_LIMITS = {
    "g++": re.compile(r"^#\s*if __GNUC__ > (\d+)\s*$", re.MULTILINE),
    "clang": re.compile(r"unsupported clang version! clang version must be less than (\d+)"),
}


@dataclass(frozen=True)
class Nvcc:
    """why: how it was found. newest_host: by family of compiler, the newest major release that it accepts.

    own: what it knows of its own folders, by the names that its profile has for them.
    """

    path: str
    release: Version
    why: str
    newest_host: Mapping[str, int]
    own: Mapping[str, str] = field(default_factory=dict, compare=False)


def find_nvcc(environment: Mapping[str, str], usual: Path = USUAL) -> Nvcc | None:
    """Below a folder that is named that one alone; else the first that runs of: on PATH, in the usual place."""
    found = (nvcc_at(path, why, environment) for path, why in _places(environment, usual))
    return next((nvcc for nvcc in found if nvcc), None)


def why_no_nvcc(environment: Mapping[str, str]) -> str:
    """What there is to say where `find_nvcc` finds none."""
    if named := named_toolkit(environment):
        return f"no nvcc runs in the bin of {named[1]}, which {named[0]} names"
    return f"there is no nvcc in CUDA_HOME, CUDA_PATH, PATH or {USUAL}"


def nvcc_at(path: str, why: str, environment: Mapping[str, str]) -> Nvcc | None:
    """The nvcc of this path; None where it does not run."""
    try:
        release = parse_release(run((path, "--version"), timeout_s=30, env=environment).output)
    except EnvironmentLacksError:
        return None
    if release is None:
        return None
    own = _own(path, environment)
    return Nvcc(path, release, why, _newest_host(own.get("TOP"), release), own)


def list_codes(path: str, environment: Mapping[str, str]) -> frozenset[str]:
    """The architectures that an nvcc compiles for, as it says itself: ``90``. Empty where it does not say."""
    said = run((path, "--list-gpu-code"), timeout_s=30, env=environment).output.split()
    return frozenset(word.removeprefix("sm_") for word in said if word.startswith("sm_"))


def parse_release(text: str) -> Version | None:
    """The release in what ``nvcc --version`` prints."""
    found = _RELEASE.search(text)
    return Version((int(found[1]), int(found[2]))) if found else None


def parse_limits(header: str) -> dict[str, int]:
    """The newest major release of each host compiler that crt/host_config.h lets through."""
    found = {family: pattern.search(header) for family, pattern in _LIMITS.items()}
    excluded = {"g++": 0, "clang": 1}  # one names the last that is accepted, the other the first that is not
    return {family: int(match[1]) - excluded[family] for family, match in found.items() if match}


def table_limits(release: Version) -> dict[str, int]:
    """The same from the table; empty for releases that it does not have."""
    return {family: table[release] for family, table in NEWEST_HOST.items() if release in table}


def _places(environment: Mapping[str, str], usual: Path) -> Iterator[tuple[str, str]]:
    if named := named_toolkit(environment):
        yield str(Path(named[1], "bin/nvcc")), f"by {named[0]}"
        return
    if path := shutil.which("nvcc", path=environment.get("PATH")):
        yield path, "first on PATH"
    yield str(usual / "bin/nvcc"), "in the usual place"


def named_toolkit(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that names a toolkit, and its folder."""
    return next(((name, environment[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environment.get(name)), None)


def _own(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    said = run((path, "--dryrun", "-x", "cu", "/dev/null"), timeout_s=30, cwd=Path("/"), env=environment).errors
    return {name: value.strip() for name, value in _VARIABLE.findall(said) if name in _FOLDERS}


def _newest_host(top: str | None, release: Version) -> dict[str, int]:
    """By the toolkit's header, which nvcc itself goes by, else by the table."""
    for folder in Path(top).glob("targets/*/include") if top else ():
        if limits := _read_limits(folder):
            return limits
    return (_read_limits(Path(top, "include")) if top else {}) or table_limits(release)


def _read_limits(include: Path) -> dict[str, int]:
    try:
        return parse_limits((include / "crt/host_config.h").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}
