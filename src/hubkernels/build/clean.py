"""Take away what builds made, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.compile_commands import FILE
from hubkernels.build.places import Places
from hubkernels.build.report import Report
from hubkernels.build.work import LOCK, locked
from hubkernels.errors import InputError, Problem
from hubkernels.host.files import disk_errors


@dataclass(frozen=True)
class Removed:
    """A folder or file that is gone. size: bytes of the files in it."""

    path: Path
    size: int


def clean(places: Places, packages: Iterable[str], report: Report, *, work: bool) -> tuple[Removed, ...]:
    """Remove the artifacts of these packages and, if asked, the work folder. Waits for a running build.

    Raises InputError where build/ itself is a link: what is behind it may be another project's.
    """
    if places.build.is_symlink():
        what = f"{places.build} is a link to {places.build.resolve()}, and no link is followed: nothing was removed"
        raise InputError(Problem(what, hint="remove the link, or what it leads to, by hand"))
    if not places.build.is_dir():
        return ()
    with disk_errors(places.build):
        removed = _clear_the_way(places.work)
    with locked(places.work, report), disk_errors(places.build):
        for folder in (places.build / name for name in packages):
            if os.path.lexists(folder):
                removed.append(Removed(folder, _size(folder)))
                _remove(folder, places.work)
        editors = places.build / FILE
        if work and os.path.lexists(editors):
            removed.append(Removed(editors, _size(editors)))
            editors.unlink()
        if work and (size := _size(places.work)):
            removed.append(Removed(places.work, size))
            _empty(places.work)
    return tuple(removed)


def _clear_the_way(work: Path) -> list[Removed]:
    """Remove links that locking and renaming would follow out of build/, and what is no folder or no lock."""
    removed = []
    for path, is_right in ((work, Path.is_dir), (work / LOCK, Path.is_file)):
        if path.is_symlink() or (os.path.lexists(path) and not is_right(path)):
            removed.append(Removed(path, _size(path)))
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    return removed


def _remove(path: Path, work: Path) -> None:
    """Out of sight at once, then deleted; of a link, the link alone."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    gone = work / f"{path.name}.{os.getpid()}.old"
    path.rename(gone)
    shutil.rmtree(gone)


def _empty(work: Path) -> None:
    """All but the lock: a build that waits has that file open, and a new one would let a third build in."""
    for path in work.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def _size(path: Path) -> int:
    """Bytes of the files at and below the path; links count as nothing and are not followed."""
    if path.is_symlink():
        return 0
    if not path.is_dir():
        return path.lstat().st_size
    return sum(_size(below) for below in path.iterdir())
