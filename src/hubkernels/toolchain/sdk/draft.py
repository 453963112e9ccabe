"""Write a folder file by file, and know its hash."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import disk_errors, hash_file
from hubkernels.model.sdk import Tree


class Draft:
    """A tree in the making, below a folder that is there and empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree: dict[str, str] = {}
        self._made = {str(folder)}

    def add(self, path: str, content: bytes, *, program: bool = False) -> None:
        """Write a file. Several wheels may bring the same one, if its bytes are the same."""
        entry = f"{'x' if program else 'f'} {hashlib.sha256(content).hexdigest()}"
        if self.tree.get(path) == entry:
            return
        if path in self.tree:
            raise InputError(Problem(f"two wheels of one SDK bring {path}, with different bytes"))
        try:
            _write(self._place(path), content, 0o777 if program else 0o666)
        except OSError:
            with self._errors(path):
                raise
        self.tree[path] = entry

    def link(self, path: str, target: str) -> None:
        """Make a link, where nothing of that name is."""
        if path not in self.tree:
            with self._errors(path):
                os.symlink(target, self._place(path))  # noqa: PTH211 - Path would normalize the target
            self.tree[path] = f"l {target}"

    def take_back(self, count: int) -> None:
        """Remove what came after the first so many files."""
        for path in list(self.tree)[count:]:
            Path(self.folder, path).unlink(missing_ok=True)
            del self.tree[path]

    def _place(self, path: str) -> str:
        place = f"{self.folder}/{path}"
        above = place.rpartition("/")[0]
        if above not in self._made:
            os.makedirs(above, exist_ok=True)  # noqa: PTH103 - thousands a tree
            self._made.add(above)
        return place

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """The folder was empty, so what is in the way is of another wheel."""
        with disk_errors(self.folder / path):
            try:
                yield
            except (FileExistsError, NotADirectoryError) as error:
                what = f"wheels of one SDK do not go together at {path}: one has a file where another has a folder"
                raise InputError(Problem(what)) from error


def _write(place: str, content: bytes, mode: int) -> None:
    """Make a new file: ten thousand a tree, so that Path costs as much as the disk."""
    handle = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    with os.fdopen(handle, "wb", buffering=0) as file:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]


def scan(folder: Path) -> Tree:
    """What a folder holds now, pipes and devices too. Raises EnvironmentLacksError where it cannot be read."""
    found: dict[str, str] = {}
    for above, folders, files in os.walk(folder):
        for name in (*files, *(each for each in folders if Path(above, each).is_symlink())):
            path = Path(above, name)
            found[path.relative_to(folder).as_posix()] = _entry(path)
    return found


def _entry(path: Path) -> str:
    if path.is_symlink():
        return f"l {path.readlink()}"
    mode = path.stat().st_mode
    if not S_ISREG(mode):
        return "no file"
    return f"{'x' if mode & 0o100 else 'f'} {hash_file(path)}"
