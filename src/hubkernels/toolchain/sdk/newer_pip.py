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

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.process import Finished, run
from hubkernels.toolchain.sdk.patience import PATIENT, Patience

ENOUGH = Version("23.3")
KEPT = "pip-{}.{}".format(*sys.version_info)
"""The name of its folder: some releases of pip are for some of Python alone."""
_TIMEOUT_S = 120.0


def pip_variables(
    environment: Mapping[str, str], store: Path, start: Callable[..., Finished] = run, patience: Patience = PATIENT
) -> Mapping[str, str]:
    """Variables by which ``python -m pip`` is new enough; none where it is anyway, or where no newer one can be had.

    store: the folder that has a newer one's. It is asked for as any package is, so the configured index gives it.
    """
    if not _is_old():
        return {}
    folder = store / KEPT
    if not folder.is_dir():
        with contextlib.suppress(OSError, EnvironmentLacksError):  # then the old one tells what is wrong
            _install(environment, folder, start, patience)
    if not folder.is_dir():
        return {}
    paths = (str(folder), environment.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _is_old() -> bool:
    try:
        return Version(version("pip")) < ENOUGH
    except PackageNotFoundError:
        return False


def _install(environment: Mapping[str, str], folder: Path, start: Callable[..., Finished], patience: Patience) -> None:
    """Whole or not at all, whoever else is at it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        made = scratch / "pip"
        words = ("--target", str(made), "--no-deps", "--only-binary=:all:", "--no-compile", f"pip>={ENOUGH}")
        command = (sys.executable, "-m", "pip", "install", "-q", *patience.words, *words)
        if start(command, env=environment, timeout_s=_TIMEOUT_S).status == 0:
            made.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
