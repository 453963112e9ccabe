"""Whether the same sources give the same bytes: built again elsewhere, later, colder, and with other surroundings."""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hubkernels.build.pipeline import WORK, Builder
from hubkernels.build.report import Report
from hubkernels.check.client import Task, run_in_fresh_process
from hubkernels.check.violation import Violation, collect
from hubkernels.host.files import read_json_object
from hubkernels.model.artifact import METADATA
from hubkernels.model.digest import hashed_files
from hubkernels.model.project import Package
from hubkernels.model.variant import Variant

REBUILD = Task("reproducible", "hubkernels.check.rebuilt:rebuild", requires=())
TIMEOUT_S = 3600.0
TICK_S = 1.1
"""A clock that is read in seconds, as ``__TIME__`` is, tells another time after this long."""

_SURROUNDINGS = {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"}
"""Half a world away from UTC; the Turkish locale sorts and cases its own way; sets have another order."""


def check_reproducible(builder: Builder, package: Package, variant: Variant, report: Report) -> tuple[Violation, ...]:
    """Bring an artifact up to date, build it again from a copy of the project, and name what differs.

    The second build has another folder, time, number of jobs, time zone, locale, umask and hash seed, and an empty
    cache.
    """
    first = builder.build(package, variant, report).folder
    with tempfile.TemporaryDirectory(prefix="hubkernels-") as scratch:
        copy = Path(scratch) / "a copy: of the project"
        copy_sources(builder.places.root, copy)
        time.sleep(TICK_S)
        environment = {**builder.surroundings, **_SURROUNDINGS, "HUBKERNELS_CACHE": f"{scratch}/cache"}
        order = {
            "project": str(copy),
            "package": package.name,
            "variant": variant.tag,
            "jobs": 1 + builder.jobs % 4,
            "environment": environment,
        }
        second = run_in_fresh_process(REBUILD, order, timeout_s=TIMEOUT_S, environment=environment)
        return collect(variant.tag, compare(first, Path(second)))


def copy_sources(root: Path, target: Path) -> None:
    """Copy a project without what was built from it, hidden folders, and Python environments."""

    def outside(folder: str, names: list[str]) -> set[str]:
        built = {"build"} if Path(folder) == root and (root / "build" / WORK).is_dir() else set()
        hidden = {name for name in names if name.startswith(".") and (Path(folder) / name).is_dir()}
        environments = {name for name in names if (Path(folder) / name / "pyvenv.cfg").is_file()}
        return built | hidden | environments | {"__pycache__"}

    shutil.copytree(root, target, symlinks=True, ignore=outside)


def compare(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """What differs between two artifacts: a file, and how."""
    if _id(first) != _id(second):
        yield METADATA, f"the id is {_id(first)}, then {_id(second)}: something that is read differs between the builds"
        return
    ours, theirs = ({*hashed_files(folder), METADATA} for folder in (first, second))
    for name in sorted(ours ^ theirs):
        yield name, f"is there {'before' if name in ours else 'after'} only"
    for name in sorted(ours & theirs):
        before, after = (first / name).read_bytes(), (second / name).read_bytes()
        if before != after:
            yield name, f"differs when it is built again: {where_they_differ(before, after)}"


def where_they_differ(before: bytes, after: bytes) -> str:
    """The sections of two libraries that differ, or the first byte of other files."""
    one, other = _sections(before), _sections(after)
    if names := [name for name in one | other if one.get(name) != other.get(name)]:
        return f"section {', '.join(names)}"
    if len(before) != len(after):
        return f"{len(before)} bytes, then {len(after)}"
    return f"byte {next(at for at, (x, y) in enumerate(zip(before, after, strict=True)) if x != y)}"


def _sections(content: bytes) -> dict[str, bytes]:
    """The sections of a library by name; none of another file."""
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - only where there is something to tell
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        return {section.name: section.data() for section in ELFFile(io.BytesIO(content)).iter_sections()}
    except ELFError:
        return {}


def _id(folder: Path) -> object:
    return read_json_object(folder / METADATA).get("id")
