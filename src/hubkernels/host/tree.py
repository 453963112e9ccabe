"""Several files of text below one folder, written when none is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import write_atomically


def write_tree(files: Mapping[str, str], folder: Path, *, overwrite: str | None) -> None:
    """Write the files. overwrite: the option that allows it, when it was not given.

    Raises InputError that lists what is in the way.
    """
    present = [path for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if present and overwrite:
        what = "\n".join((f"{folder} already has", *(f"  - {path}" for path in present)))
        raise InputError(Problem(what, hint=f"choose another folder, or {overwrite} them"))
    for path, text in files.items():
        write_atomically(folder / path, text.encode())
