"""Importing the folder of a variant, as the client does: the module is called by the kernel's id."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.model.digest import OUTSIDE
from hubkernels.runtime.metadata import Metadata

_IMPORTS = threading.RLock()
"""One import at a time; a kernel may load another one while it is imported."""


class NoModuleError(CheckFailedError, FileNotFoundError):
    """The variant has no Python file to import."""


class OtherKernelError(CheckFailedError, ImportError):
    """Another kernel of the same id is in this process."""


def import_kernel(folder: Path, metadata: Metadata, origin: str) -> ModuleType:
    """The module; the one that is there where this kernel was loaded before, by whom ever.

    An op library may be registered once in a process, and Python finds submodules by the id: another kernel of that id
    would be given those of the first. Equal files in another folder are the same kernel. Raises OtherKernelError,
    NoModuleError, and what the kernel raises.
    """
    with _IMPORTS:
        path = _entry(folder, metadata)
        loaded = sys.modules.get(metadata.id)
        if loaded is not None:
            _insist_on_same(loaded, path, metadata)
            return loaded
        return _execute(path, metadata, f"kernel {metadata.name}, variant {folder.name} of {origin}")


def _entry(folder: Path, metadata: Metadata) -> Path:
    for path in (folder / "__init__.py", folder / metadata.python_name / "__init__.py"):
        if path.exists():
            return path
    raise NoModuleError(Problem(f"the kernel {metadata.name} has no __init__.py", str(folder)))


def _insist_on_same(loaded: ModuleType, path: Path, metadata: Metadata) -> None:
    there = getattr(loaded, "__file__", None)
    if there and (Path(there) == path or _contents(Path(there).parent) == _contents(path.parent)):
        return
    what = f"another kernel of the id {metadata.id} is loaded in this process: two cannot be told apart"
    hint = f"load one of them in another process; in this one is {there}"
    raise OtherKernelError(Problem(what, str(path), hint))


def _contents(folder: Path) -> dict[str, bytes]:
    """What is imported from a folder; bytecode is Python's own."""
    paths = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in paths
        if path.suffix != ".pyc" and path.name not in OUTSIDE  # which tell where a build came from
    }


def _execute(path: Path, metadata: Metadata, what: str) -> ModuleType:
    """On failure nothing of it is left among the modules, so that another try starts from nothing."""
    spec = importlib.util.spec_from_file_location(metadata.id, path)
    if spec is None or spec.loader is None:
        raise NoModuleError(Problem(f"Python cannot import {path.name}", str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[metadata.id] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        for name in [name for name in sys.modules if name == metadata.id or name.startswith(f"{metadata.id}.")]:
            del sys.modules[name]
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"while {what} was imported")
        raise
    return module
