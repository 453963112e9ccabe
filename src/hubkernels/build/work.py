"""The work folder: one process at a time builds in it, and what killed ones left is swept out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hubkernels.build.places import LOCK, OLD
from hubkernels.build.report import Report
from hubkernels.host.files import disk_errors


@contextmanager
def locked(work: Path, report: Report) -> Iterator[None]:
    """One build at a time in one folder. The lock is the kernel's: it ends with its process, however that ends."""
    with disk_errors(work / LOCK):
        work.mkdir(parents=True, exist_ok=True)
        lock = FileLock(work / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(f"another build is running in {work.parent}; waiting for it")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def sweep(work: Path, runs: Path) -> None:
    """Remove what killed builds left unfinished. Only under the lock: then no other build is at work."""
    if runs.is_symlink():
        runs.unlink()
    shutil.rmtree(runs, ignore_errors=True)
    for path in work.iterdir():
        if OLD.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
