"""Files that are whole or not there, whenever the machine or the process stops.

Every file is written in a scratch folder on the same disk, brought to the disk, and renamed into place; then its folder
is brought to the disk, too. A killed server leaves remains in that one scratch folder alone, which the next one clears.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

_AT_ONCE = 8


def scratch_file(scratch: Path) -> tuple[BinaryIO, Path]:
    """A new file to write to."""
    handle, name = tempfile.mkstemp(dir=scratch)
    return os.fdopen(handle, "w+b"), Path(name)


def sync_file(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Iterable[Path]) -> None:
    """As `sync_file`, side by side: a journal writes what waits for it together. 300 files took 0.9 s one by one."""
    wanted = sorted(set(paths))
    if len(wanted) == 1:
        sync_file(wanted[0])
    elif wanted:
        with ThreadPoolExecutor(min(_AT_ONCE, len(wanted))) as threads:
            tuple(threads.map(sync_file, wanted))


def move_into_place(new: Path, target: Path, root: Path) -> None:
    """Rename a file that is on the disk; the folders on the way to it, below ``root``, are made and kept, too."""
    folders = make_folders(target.parent, root)
    move(new, target)
    sync_all({*folders, target.parent})


def move(new: Path, target: Path) -> None:
    """Rename a file that is on the disk; where an operator's link leads to another disk, copy it there first."""
    try:
        new.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            shutil.copy(new, beside)
            sync_file(beside)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        new.unlink()


def make_folders(folder: Path, root: Path) -> set[Path]:
    """Make a folder below another one, which is there; tells which folders got a new name in them."""
    changed: set[Path] = set()
    way = (path for path in (folder, *folder.parents) if path != root and path.is_relative_to(root))
    missing = [path for path in way if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        changed.add(path.parent)
    return changed


def write_durably(path: Path, content: bytes, scratch: Path) -> None:
    """Replace a small file in a folder that is there."""
    file, new = scratch_file(scratch)
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(0o644)
        move(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_file(path.parent)
