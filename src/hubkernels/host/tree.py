"""Several files of text below one folder, written when none is in the way."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import write_atomically


def write_tree(files: Mapping[str, str], folder: Path, *, overwrite: bool, hint: str) -> None:
    """Write the files. Raises InputError that lists what is in the way, with the hint, unless that may be replaced.

    A folder never is, nor what stands where folders should.
    """
    present = [path for path in files if (folder / path).exists() or (folder / path).is_symlink()]
    if present and not overwrite:
        what = "\n".join((f"{folder} already has", *(f"  - {path}" for path in present)))
        raise InputError(Problem(what, hint=hint))
    _refuse_links_out(files, folder)
    _refuse_misfits(files, folder)
    for path, text in files.items():
        write_atomically(folder / path, text.encode())


def _refuse_misfits(files: Iterable[str], folder: Path) -> None:
    """Raises InputError for folders where files are to be, and for anything else where folders are."""
    top = len(folder.parts)
    targets = [folder / path for path in files]
    ways = {folder} | {way for target in targets for way in target.parents if len(way.parts) > top}
    bad = {f"{path} is a folder" for path in targets if path.is_dir() and not path.is_symlink()}
    bad |= {f"{way} is no folder" for way in ways if os.path.lexists(way) and not way.is_dir()}
    if bad:
        what = "\n".join((f"nothing was written to {folder}:", *(f"  - {each}" for each in sorted(bad))))
        raise InputError(Problem(what, hint="move that away, or choose another folder"))


def _refuse_links_out(files: Iterable[str], folder: Path) -> None:
    """Raises InputError for folders on the way to a file that lead out of the tree."""
    top = os.path.realpath(folder)  # Path.resolve raises for a loop, before Python 3.13
    ways = {(folder / path).parent for path in files}
    out = sorted(str(way) for way in ways if not Path(os.path.realpath(way)).is_relative_to(top))
    if out:
        what = "\n".join((f"links lead out of {folder}, where nothing may be written:", *(f"  - {way}" for way in out)))
        raise InputError(Problem(what, hint="remove the links, or choose another folder"))
