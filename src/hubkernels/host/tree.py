"""Several files of text below one folder, written when none is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import write_atomically


def write_tree(files: Mapping[str, str], folder: Path, *, overwrite: bool, hint: str) -> None:
    """Write the files. Raises InputError that lists what is in the way, with the hint, unless that may be replaced."""
    present = [path for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if present and not overwrite:
        what = "\n".join((f"{folder} already has", *(f"  - {path}" for path in present)))
        raise InputError(Problem(what, hint=hint))
    for path, text in files.items():
        write_atomically(folder / path, text.encode())
