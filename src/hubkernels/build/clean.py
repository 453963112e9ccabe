"""Take away what builds made, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.compile_commands import FILE, is_ours
from hubkernels.build.places import LOCK, Places, is_made
from hubkernels.build.report import Report
from hubkernels.build.work import locked
from hubkernels.errors import InputError, Problem
from hubkernels.host.files import disk_errors, read_json_object
from hubkernels.model.artifact import NOTE, records_of
from hubkernels.model.digest import METADATA

_NOTE = re.compile(rf"(.+){re.escape(NOTE)}")
_HALF_A_NOTE = re.compile(rf"\..+{re.escape(NOTE)}\.\w+")
"""What a build leaves that was killed while it wrote a note."""


@dataclass(frozen=True)
class Removed:
    """A folder or file that is gone, or what builds had made in it. size: bytes of the files."""

    path: Path
    size: int


def clean(places: Places, packages: Iterable[str], report: Report, *, work: bool) -> tuple[Removed, ...]:
    """Remove the artifacts of these packages and, if asked, the work folder. Waits for a running build.

    What no build made stays, and is told. Raises InputError where build/ itself is a link: what is behind it may be
    another project's.
    """
    if places.build.is_symlink():
        what = f"{places.build} is a link to {os.path.realpath(places.build)}, and no link is followed"
        raise InputError(Problem(f"{what}: nothing was removed", hint="remove the link, or what it leads to, by hand"))
    if not places.build.is_dir():
        return ()
    with disk_errors(places.build):
        removed = _clear_the_way(places.work)
        folders = [places.build / name for name in packages]
        editors = places.build / FILE
        if any(map(_made_in_package, folders)) or (work and (is_ours(editors) or _made_in_work(places.work))):
            with locked(places.work, report):
                removed += [found for folder in folders if (found := _remove(folder, places.work))]
                if work:
                    removed += _remove_common(editors, places.work)
        for stranger in _strangers(folders, editors, places.work, work_too=work):
            report(f"{stranger} stays: no build made it")
    return tuple(removed)


def _clear_the_way(work: Path) -> list[Removed]:
    """Remove links that locking and renaming would follow out of build/, and what is no folder or no lock."""
    removed = []
    for path, is_right in ((work, Path.is_dir), (work / LOCK, Path.is_file)):
        if path.is_symlink() or (os.path.lexists(path) and not is_right(path)):
            removed.append(Removed(path, _size(path)))
            _delete(path)
    return removed


def _made_in_package(folder: Path) -> list[Path]:
    """The artifacts that a build has noted, each before its note: without that, nobody would know it again.

    The folder itself where it is a link, or empty.
    """
    found: list[Path] = []
    if folder.is_symlink() or (folder.is_dir() and not any(folder.iterdir())):
        return [folder]
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _HALF_A_NOTE.fullmatch(path.name):
            found.append(path)
        elif (named := _NOTE.fullmatch(path.name)) and read_json_object(path).get("variant") == named[1]:
            artifact = folder / named[1]
            made = artifact.is_symlink() or (artifact / METADATA).is_file()
            records = records_of(artifact)
            found += [*([artifact] if made else []), *([records] if os.path.lexists(records) else []), path]
    return found


def _made_in_work(work: Path) -> list[Path]:
    """All but the lock: a build that waits has that file open, and a new one would let a third build in."""
    return sorted(path for path in work.iterdir() if path.name != LOCK and is_made(path.name)) if work.is_dir() else []


def _remove(folder: Path, work: Path) -> Removed | None:
    """Remove what builds made of a package: out of sight at once, then deleted; of a link, the link alone."""
    made = _made_in_package(folder)
    if not made:
        return None
    size = sum(map(_size, made))
    gone = work / f"{folder.name}.{os.getpid()}.old"
    gone.mkdir()
    for path in made:
        path.rename(gone / path.name)
    shutil.rmtree(gone)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return Removed(folder, size)


def _remove_common(editors: Path, work: Path) -> Iterator[Removed]:
    """Remove what all packages share."""
    if is_ours(editors):
        yield Removed(editors, _size(editors))
        editors.unlink()
    made = _made_in_work(work)
    if size := sum(map(_size, made)):
        yield Removed(work, size)
    for path in made:
        _delete(path)


def _strangers(folders: Iterable[Path], editors: Path, work: Path, *, work_too: bool) -> Iterator[Path]:
    """What lies where builds put theirs, and is not theirs."""
    for folder in folders:
        yield from sorted(folder.iterdir()) if folder.is_dir() else [folder] if os.path.lexists(folder) else []
    if work_too:
        yield from [editors] if os.path.lexists(editors) else []
        yield from sorted(path for path in work.iterdir() if not is_made(path.name)) if work.is_dir() else []


def _delete(path: Path) -> None:
    """Of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _size(path: Path) -> int:
    """Bytes of the files at and below the path; links count as nothing and are not followed."""
    if path.is_symlink():
        return 0
    if not path.is_dir():
        return path.lstat().st_size
    return sum(_size(below) for below in path.iterdir())
