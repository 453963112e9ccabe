"""Whether the same sources give the same bytes: built again elsewhere, later, colder, and with other surroundings."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG

from hubkernels.build.artifacts import BUILD_FIRST
from hubkernels.build.pipeline import Builder
from hubkernels.build.places import WORK
from hubkernels.build.state import why_not_current
from hubkernels.check.client import Task, run_in_fresh_process
from hubkernels.check.violation import Violation, collect
from hubkernels.config.members import BUILD_TOML
from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.disk import is_full, says_full
from hubkernels.host.files import read_json_object
from hubkernels.model.digest import METADATA, hashed_files
from hubkernels.model.project import Package, TorchNoarch
from hubkernels.model.variant import AnyVariant, Variant

REBUILD = Task("reproducible", "hubkernels.check.rebuilt:rebuild", requires=())
TIMEOUT_S = 3600.0
TICK_S = 1.1
"""A clock that is read in seconds, as ``__TIME__`` is, tells another time after this long."""

_ELSEWHERE = "name another folder with TMPDIR"
_ROOM = f"free some space, or {_ELSEWHERE}"

_SURROUNDINGS = {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"}
"""Half a world away from UTC; the Turkish locale sorts and cases its own way; sets have another order."""


def check_reproducible(
    builder: Builder, package: Package, variants: Sequence[AnyVariant]
) -> dict[str, tuple[Violation, ...]]:
    """Build the artifacts that are there again, from a copy of the package, and name what differs, by variant.

    The second build has another folder, time, number of jobs, time zone, locale, umask and hash seed, and an empty
    cache. Raises InputError for artifacts that are missing or out of date: there is nothing to compare.
    """
    stale = {variant.tag: why for variant in variants if (why := why_not_current(builder, package, variant))}
    if stale:
        raise InputError(
            *(Problem(f"{tag} of {package.name} is {why}", hint=BUILD_FIRST) for tag, why in stale.items())
        )
    first = {variant.tag: builder.places.artifact(package.name, variant.tag) for variant in variants}
    with _scratch() as scratch:
        copy = copy_package(package.root, _read(builder, package, variants), scratch / "a copy: of it")
        time.sleep(TICK_S)
        environment = {**builder.surroundings, **_SURROUNDINGS, "HUBKERNELS_CACHE": f"{scratch}/cache"}
        order = {
            "project": str(copy),
            "package": package.name,
            "variants": list(first),
            "jobs": 1 + builder.settings.jobs % 4,
            "environment": environment,
            "sdks": _sdks(builder),
        }
        second = run_in_fresh_process(REBUILD, order, timeout_s=TIMEOUT_S, environment=environment)
        return {tag: collect(tag, compare(folder, Path(second[tag]))) for tag, folder in first.items()}


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the second build. Raises EnvironmentLacksError for what the system refuses then, as what it is."""
    what = "cannot build a second time"
    with _told(what), ExitStack() as stack:
        with _told(what, _ELSEWHERE):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hubkernels-"))
        yield Path(folder)


@contextmanager
def _told(what: str, hint: str | None = None) -> Iterator[None]:
    """An error of the system as the user's; the hint is another one for a full disk and a file too large."""
    try:
        yield
    except OSError as error:
        too_large = error.errno == errno.EFBIG  # other file systems have another limit
        way_out = _ROOM if is_full(error) else _ELSEWHERE if too_large else hint
        where = error.filename2 or error.filename
        raise EnvironmentLacksError(Problem(f"{what}: {error.strerror or error}", where, way_out)) from error


def _sdks(builder: Builder) -> list[str] | None:
    """The project's lock, and the stores of what the second build does not fetch once more."""
    sdks = builder.sdks
    if builder.settings.system or not sdks.locked:
        return None
    return [str(path.absolute()) for path in (sdks.lock, sdks.folder, *sdks.others)]


def _read(builder: Builder, package: Package, variants: Iterable[AnyVariant]) -> frozenset[str]:
    """The files that the build of a package names or includes, by their paths from its folder."""
    if isinstance(package.framework, TorchNoarch):
        return frozenset()
    scanned = [source for v in variants if isinstance(v, Variant) for source in builder.scan(package, v)]
    named = (*package.framework.sources, *(path for section in package.sections for path in section.sources))
    paths = {*named, *(path for source in scanned for path, _ in source.inputs)}
    return frozenset(path for path in paths if not path.startswith("/") and (package.root / path).is_file())


def copy_package(root: Path, read: Iterable[str], target: Path) -> Path:
    """Copy a package's folder, and files that are read beyond it, which keep their places; tells the new folder."""
    root = Path(os.path.abspath(root))  # noqa: PTH100 - links in the path stay: files are named from here
    top = os.path.commonpath([root, *(os.path.normpath(root / path) for path in read)])
    made = target / root.relative_to(top)
    copy_sources(root, made)
    for path in read:
        if not (made / path).exists():
            copy = Path(os.path.normpath(made / path))  # a link on the way is a folder now
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy(root / path, copy)
    return made


def copy_sources(root: Path, target: Path) -> None:
    """Copy a project without what was built from it, hidden folders, Python environments, and other projects in it.

    Of these the build.toml stays, since that of ``root`` may count on it. A link to what is not copied becomes a copy.
    What is neither file nor folder, a pipe or a socket, is no source, and left out.

    Raises EnvironmentLacksError where a file cannot be copied.
    """

    def outside(folder: str, names: list[str]) -> set[str]:
        if Path(folder) != root and BUILD_TOML in names:
            return set(names) - {BUILD_TOML}
        built = {"build"} if Path(folder) == root and (root / "build" / WORK).is_dir() else set()
        hidden = {name for name in names if name.startswith(".") and (Path(folder) / name).is_dir()}
        environments = {name for name in names if (Path(folder) / name / "pyvenv.cfg").is_file()}
        special = {name for name in names if _is_neither_file_nor_folder(Path(folder) / name)}
        return built | hidden | environments | special | {"__pycache__"}

    _copy_tree(root, target, outside)
    waiting = [(root, target, frozenset({root.resolve()}))]
    while waiting:
        origin, copy, above = waiting.pop()
        for link in [path for path in copy.rglob("*") if path.is_symlink()]:
            source = origin / link.relative_to(copy)
            if not source.exists() or source.resolve() in above or _leads_to_copy(source, link, root, target):
                continue
            link.unlink()
            if source.is_dir():
                _copy_tree(source, link, outside)
                waiting.append((source, link, above | {source.resolve()}))
            elif source.is_file():
                _copy(source, link)


def _is_neither_file_nor_folder(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not (S_ISREG(mode) or S_ISDIR(mode) or S_ISLNK(mode))


def _copy_tree(source: Path, target: Path, left_out: Callable[[str, list[str]], set[str]]) -> None:
    try:
        shutil.copytree(source, target, symlinks=True, ignore=left_out, copy_function=_copy)
    except shutil.Error as error:  # of folders and links; it lists every one
        where, _, why = error.args[0][0]  # no error number is left
        hint = _ROOM if says_full(why) else None
        raise EnvironmentLacksError(Problem(f"cannot copy {where}: {why}", str(target), hint)) from error


def _copy(source: str | Path, target: str | Path) -> None:
    with _told(f"cannot copy {source}"):
        shutil.copy2(source, target)


def _leads_to_copy(source: Path, link: Path, root: Path, target: Path) -> bool:
    """Whether a copied link leads to the copy of what it led to."""
    meant = source.resolve()
    if not (link.exists() and meant.is_relative_to(root.resolve())):
        return False
    return link.resolve() == target.resolve() / meant.relative_to(root.resolve())


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
