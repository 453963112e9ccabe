"""Branches, tags and pull requests: each a file that names a commit, replaced in one step.

Who changes one holds git's own lock for it, a file beside it. Else `git pack-refs`, a part of `git gc`, deletes what
was written between its look at the old value and its step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from hubkernels.host.files import read_regular
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.durable import make_folders, sync_all, sync_file, write_durably
from hubkernels.hub.local.names import is_commit, is_ref

_LOG = logging.getLogger(__name__)

KINDS = ("refs/heads/", "refs/tags/", "refs/pr/")
"""What the names of refs that are served begin with."""

_KIND_PARTS = 2

_PACKED = "packed-refs"
_LOCK = ".lock"
_LOCK_MODE = 0o444  # given when the file is made, so there is no moment when it could be git's, whose are writable
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_LOCKED_AGAIN_S = 0.005
_LOCKED_MOST_S = 3.0  # git holds a ref's for milliseconds, that of packed-refs for as long as it writes
_MEND = "write the commit there"
_DELETE = "delete it where no refs were ever packed"
_NO_FILE = ("is no plain file", _DELETE)
_EMPTY = ("is empty", _DELETE)


class DamagedRefError(Refusal):
    """A file of refs that names no commit. It is no ref that never was: who made that one anew would lose commits."""

    def __init__(self, path: Path, folder: Path, why: str = "names no commit", mend: str = _MEND) -> None:
        _LOG.error("%s is damaged: it %s", path, why)
        file = path.relative_to(folder)
        hint = f"who runs the Hub may {mend}, or bring it back from a copy"
        super().__init__(503, f"{file} of this repository is damaged, it {why}: {hint}")
        self.damage = f"{file} {why}"


class Refs:
    """The refs of one repository, as git keeps them. Who writes holds the repository's lock.

    A name is a path, and may come from elsewhere, as a value may: what is no ref is neither read nor written. Who reads
    what is damaged, or what may have stood there, is told so by DamagedRefError.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch

    def get(self, name: str) -> str | None:
        """The object that a full name, as refs/heads/main, names."""
        if not is_ref(name):
            return None
        return self._own(name) or self._packed(name).get(name)

    def _own(self, name: str) -> str | None:
        """What the file of a ref names; None where there is no file."""
        path = self.folder / name
        try:
            oid = read_regular(path).decode("ascii", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            self._insist_on_folders(name)
            if not path.is_symlink():
                return None
            oid = ""
        except OSError:
            if path.is_dir():
                return None
            if path.is_file():  # the disk's failure
                raise
            oid = ""
        if not is_commit(oid):
            raise DamagedRefError(path, self.folder)
        return oid

    def _insist_on_folders(self, name: str) -> None:
        """Raises DamagedRefError where a ref cannot be looked for: a link may lead to a disk that is gone.

        Below the folder of its kind a file is another ref.
        """
        path = self.folder
        for depth, part in enumerate(name.split("/")[:-1]):
            path /= part
            is_ref_of_its_own = depth >= _KIND_PARTS and path.is_file()
            if os.path.lexists(path) and not (path.is_dir() or is_ref_of_its_own):
                raise DamagedRefError(path, self.folder, "is no folder", "mend the link, where it is one")

    def below(self, prefix: str) -> dict[str, str]:
        """The refs of one of KINDS, by the rest of their names, sorted."""
        self._insist_on_folders(prefix)
        found = {}
        for name in self._files(prefix):
            if oid := self.get(name):
                found[name] = oid
        # Last: who packs refs writes this file before those of the refs go.
        found = {name: oid for name, oid in self._packed().items() if name.startswith(prefix)} | found
        return {name.removeprefix(prefix): found[name] for name in sorted(found)}

    def damaged(self) -> list[str]:
        """What names no commit, or leads to none."""
        reads: list[Callable[[], object]] = [partial(self._insist_on_folders, kind) for kind in KINDS]
        reads += [partial(self._own, name) for kind in KINDS for name in self._files(kind) if is_ref(name)]
        reads.append(self._packed)
        return list(dict.fromkeys(damage for read in reads if (damage := _damaged(read))))

    def set(self, name: str, oid: str) -> None:
        """Raises Refusal for what is no ref, and for one that clashes with another."""
        _insist_on_ref(name)
        if not is_commit(oid):
            raise Refusal(400, f"{oid[:80]!r} is no object that a ref may name")
        path = self.folder / name
        try:
            with self._locked(path):
                write_durably(path, f"{oid}\n".encode(), self.scratch)
        except (NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            raise Refusal(409, f"{name} clashes with another ref: one is a folder of the other") from error

    def delete(self, name: str) -> None:
        _insist_on_ref(name)
        path = self.folder / name
        with self._locked(path), self._locked(self.folder / _PACKED):
            packed = self._packed()
            if packed.pop(name, None):
                self._pack(packed)
            path.unlink(missing_ok=True)
            sync_all({path.parent})
        kind = self.folder.joinpath(*name.split("/")[:2])
        with contextlib.suppress(OSError):  # a folder that is left would be in the way of a ref of its name
            for folder in path.parents:
                if folder == kind:
                    break
                folder.rmdir()

    def _pack(self, refs: Mapping[str, str]) -> None:
        """Of none there is no file: an empty one is what git never writes, and dulwich cannot read."""
        path = self.folder / _PACKED
        if refs:
            lines = "".join(f"{oid} {ref}\n" for ref, oid in sorted(refs.items()))
            write_durably(path, lines.encode(), self.scratch)
        else:
            path.unlink()
            sync_file(self.folder)

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Raises Refusal where somebody else, a running git or one that was killed, has the lock and keeps it."""
        lock = path.with_name(path.name + _LOCK)
        until = time.monotonic() + _LOCKED_MOST_S
        while not self._lock(lock):
            if time.monotonic() > until:
                hint = "try again; where no git runs in that folder, one was killed there: delete the file"
                raise Refusal(503, f"{lock.relative_to(self.folder)} is there: {hint}", headers={"Retry-After": "1"})
            time.sleep(_LOCKED_AGAIN_S)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)

    def _lock(self, lock: Path) -> bool:
        """Make a lock's file; tells whether it could be."""
        try:
            sync_all(make_folders(lock.parent, self.folder))
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _LOCK_MODE))
        except (FileExistsError, FileNotFoundError):  # git takes empty folders away
            return False
        return True

    def clear_locks(self) -> None:
        """Take away what a killed server left. git's own stay: that one may run."""
        left = [self.folder / name for name in self._files("refs/", locks=True)]
        for lock in (*left, self.folder / f"{_PACKED}{_LOCK}"):
            with contextlib.suppress(FileNotFoundError):
                mode = lock.lstat().st_mode
                if stat.S_ISREG(mode) and not mode & _WRITABLE:
                    lock.unlink()

    def _files(self, prefix: str, *, locks: bool = False) -> Iterator[str]:
        """The names of refs that have a file, or of their locks. It goes on where a folder is deleted meanwhile."""
        for folder, _, files in os.walk(self.folder / prefix):
            for file in files:
                if file.endswith(_LOCK) == locks:
                    yield (Path(folder) / file).relative_to(self.folder).as_posix()

    def clashes(self, name: str) -> bool:
        """Whether a ref stands where this one's folder would, or the other way round."""
        kind = "/".join(name.split("/")[:2]) + "/"
        others = {*self._files(kind), *self._packed()}
        return any(other.startswith(f"{name}/") or name.startswith(f"{other}/") for other in others)

    def _packed(self, wanted: str | None = None) -> dict[str, str]:
        """What somebody's `git gc` or `git pack-refs` moved into one file.

        wanted: where it is there, damage elsewhere is no matter.
        """
        path = self.folder / _PACKED
        try:
            lines = read_regular(path).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            if not path.is_symlink():
                return {}
            raise DamagedRefError(path, self.folder, *_NO_FILE) from None
        except OSError as error:
            if path.is_file():  # the disk's failure
                raise
            raise DamagedRefError(path, self.folder, *_NO_FILE) from error
        if lines == [""]:
            raise DamagedRefError(path, self.folder, *_EMPTY)
        found = {name: oid for oid, name in map(_entry, lines) if is_commit(oid) and is_ref(name)}
        if wanted not in found and not all(map(_is_packed, lines)):
            raise DamagedRefError(path, self.folder)
        return found


def _insist_on_ref(name: str) -> None:
    if not is_ref(name):
        raise Refusal(400, f"{name[:200]!r} is no name of a ref")


def _damaged(read: Callable[[], object]) -> str | None:
    try:
        read()
    except DamagedRefError as error:
        return error.damage
    return None


def _entry(line: str) -> tuple[str, str]:
    """The object and the name in a line of packed-refs."""
    oid, _, name = line.partition(" ")
    return oid, name


def _is_packed(line: str) -> bool:
    """Whether git writes such lines: refs of any kind, what a tag leads to, and what it says of the file."""
    oid, name = _entry(line)
    return (
        line.startswith("#")
        or not line
        or is_commit(line.removeprefix("^"))
        or (is_commit(oid) and name.startswith("refs/"))
    )
