"""A pip that tells of a wheel by its metadata, where the interpreter's own is older and downloads the wheel to do so.

For torch that is a gigabyte, and Debian 12 makes environments with pip 23.0.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import Version

from hubkernels.host.process import Finished, run

ENOUGH = Version("23.3")
_TIMEOUT_S = 120.0


def pip_variables(
    environment: Mapping[str, str], folder: Path, start: Callable[..., Finished] = run
) -> Mapping[str, str]:
    """Variables by which ``python -m pip`` is new enough; none where it is anyway, or where no newer one can be had.

    folder: where a newer one is kept. It is asked for as any package is, so the configured index gives it.
    """
    if not _is_old():
        return {}
    if not folder.is_dir():
        with contextlib.suppress(OSError):
            _install(environment, folder, start)
    if not folder.is_dir():
        return {}
    paths = (str(folder), environment.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _is_old() -> bool:
    try:
        return Version(version("pip")) < ENOUGH
    except PackageNotFoundError:
        return False


def _install(environment: Mapping[str, str], folder: Path, start: Callable[..., Finished]) -> None:
    """Whole or not at all, whoever else is at it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        made = scratch / "pip"
        words = ("--target", str(made), "--no-deps", "--only-binary=:all:", "--no-compile", f"pip>={ENOUGH}")
        command = (sys.executable, "-m", "pip", "install", "-q", "--retries", "1", *words)
        if start(command, env=environment, timeout_s=_TIMEOUT_S).status == 0:
            made.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
