"""Disks: how much room a folder has and takes, what an error says of it, and whether programs may be loaded from it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

_BLOCK = 512  # that of st_blocks, whatever the file system's own are


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Whether the reason is that there is no room: on the disk, or in the user's share of it."""
    return error.errno in _FULL


def says_full(text: str) -> bool:
    """The same, where only the words of a program are left of the error."""
    return any(os.strerror(code) in text for code in _FULL)


def free_bytes(folder: Path) -> int:
    """Room that is left where the folder is, or where it would be made."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(existing).free


def taken(folder: Path) -> int:
    """Bytes of all its blocks, as ``du`` counts: those of folders too."""
    found = 0
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):  # noqa: PTH118 - ten thousand of them
            with contextlib.suppress(OSError):
                found += os.lstat(path).st_blocks * _BLOCK
    return found


def allows_programs(folder: Path) -> bool:
    """Whether the folder's disk is mounted without noexec."""
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
