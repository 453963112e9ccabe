"""Disks: how much room a folder has, and whether programs may be loaded from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """Room that is left where the folder is, or where it would be made."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(existing).free


def allows_programs(folder: Path) -> bool:
    """Whether the folder's disk is mounted without noexec."""
    return not os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
