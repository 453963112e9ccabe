"""Files: their hashes, remembered between runs, and writing them so that no reader sees half of one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from typing import Any, BinaryIO

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.disk import is_full

_SETTLED_NS = 2_000_000_000
"""A file changed within this span may change again inside one tick of its timestamps: its hash is not remembered."""

_FORM = 1  # of the remembered hashes; another form is forgotten

_TICK_NS = 10_000_000
"""File systems stamp changes with the time of the last tick, up to 10 ms ago."""

Stamp = tuple[int, int, int, int]


class DiskError(EnvironmentLacksError):
    """Something cannot be written here."""


def stamp(path: str) -> Stamp | None:
    """What changes whenever a file's content may have: size, both timestamps, inode. None where no regular file is."""
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands a build, and Path costs as much as the call
    except (OSError, ValueError):  # a damaged memory can name what no file is called
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino) if S_ISREG(found.st_mode) else None


def inode_of(path: str) -> tuple[int, int] | str:
    """What is equal for two paths of one file; the path where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - hundreds a build
    except (OSError, ValueError):
        return path
    return (found.st_dev, found.st_ino)


def changed_since(path: str, moment_ns: int) -> bool:
    """Whether a file, or a link to one, changed at or after a moment, as far as file systems' ticks tell; or is gone.

    Of a folder, whether anything came into it or went. By the time of the inode, which nobody can set: a file from
    another machine may have been written in the future.
    """
    try:
        times = os.stat(path).st_ctime_ns, os.lstat(path).st_ctime_ns  # noqa: PTH116 - thousands a source
    except (OSError, ValueError):
        return True
    return max(times) > moment_ns - _TICK_NS


def came_since(paths: Iterable[str], below: str, moment_ns: int) -> bool:
    """Whether a folder on the way to one of these full paths, or a link, got a new name at or after a moment.

    Of a folder below another, ``below``, anything that came into it counts. Above, where others write too, what comes
    into a folder sets both of its times; a new name for it sets that of the inode alone.
    """
    folders = {os.path.dirname(path) for path in paths}  # noqa: PTH120 - thousands a source
    ways = {above for folder in folders for spelled in (folder, os.path.realpath(folder)) for above in _way(spelled)}
    tops = (f"{below}/", f"{os.path.realpath(below)}/")
    for path in ways:
        with contextlib.suppress(OSError):
            found = os.lstat(path)
            own = S_ISLNK(found.st_mode) or path.startswith(tops)
            if (own or found.st_ctime_ns != found.st_mtime_ns) and found.st_ctime_ns > moment_ns - _TICK_NS:
                return True
    return False


def _way(folder: str) -> Iterator[str]:
    while folder not in {"", "/"}:
        yield folder
        folder = os.path.dirname(folder)  # noqa: PTH120


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)  # noqa: PLR2004 - stamp and hash


class FileHashes:
    """SHA-256 of files, kept in a JSON file: a file whose stamp has not changed is not read again."""

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        entries = read_memory(memory, _FORM)
        self._known = {path: entry for path, entry in entries.items() if _is_entry(entry)}
        self._fresh: dict[str, str] = {}
        self._stamps: dict[str, Stamp] = {}
        self._changed = False

    def sha256(self, path: str) -> str | None:
        """The hash of a file's content, in hex; None where no regular file is."""
        if path in self._fresh:
            return self._fresh[path]
        now = stamp(path)
        if now is None:
            return None
        known = self._known.get(path)
        digest = str(known[1]) if known and known[0] == list(now) else self._hash(path, now)
        self._fresh[path] = digest
        self._stamps[path] = now
        return digest

    def _hash(self, path: str, before: Stamp) -> str:
        digest = hash_file(Path(path))
        self._changed = True
        if time.time_ns() - max(before[1], before[2]) > _SETTLED_NS and stamp(path) == before:
            self._known[path] = [list(before), digest]
        else:
            self._known.pop(path, None)
        return digest

    def looked_at(self) -> frozenset[str]:
        """The files whose content counted since the last `renew`."""
        return frozenset(self._fresh)

    def written(self, paths: Iterable[str] | None = None) -> set[str]:
        """Those of them, or of these, that were written, or went, since they were read."""
        known = self._stamps if paths is None else {path: self._stamps[path] for path in paths if path in self._stamps}
        return {path for path, before in known.items() if self._differs(path, before)}

    def _differs(self, path: str, before: Stamp) -> bool:
        """A new name or mode changes no content, and of the stamp one time alone."""
        now = stamp(path)
        if now is None or (now[0], now[1], now[3]) != (before[0], before[1], before[3]):
            return True
        return now != before and hash_file(Path(path)) != self._fresh[path]

    def renew(self) -> None:
        """Look at every file anew: what was read earlier in this run may have changed since."""
        self._fresh.clear()
        self._stamps.clear()

    def save(self) -> None:
        """Remember for the next run, but for files that are gone."""
        if self._changed:
            self._known = {path: known for path, known in self._known.items() if path in self._fresh or stamp(path)}
            write_memory(self.memory, _FORM, self._known)
            self._changed = False


def read_regular(path: str | Path) -> bytes:
    """The content of a file. Raises OSError for what is no regular file: a pipe would be waited for, for ever."""
    with open_regular(path) as file:
        return file.read()


def open_regular(path: str | Path) -> BinaryIO:
    """A file to read. Raises OSError for what is no regular one."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        file = os.fdopen(handle, "rb")
    except OSError:  # of a folder, whose handle is left open
        os.close(handle)
        raise
    if not S_ISREG(os.fstat(handle).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "is no regular file")
    return file


def follow(path: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The links on the way along a full path, each by its place without links, and last the place where it ends.

    known: what was found before, by path.
    """
    if path in known:
        return known[path]
    above, name = os.path.split(path)
    if above == path:
        return (path,)
    *links, folder = follow(above, known)
    if name in {"", os.curdir, os.pardir}:
        return (*links, os.path.dirname(folder) if name == os.pardir else folder)  # noqa: PTH120
    place = os.path.join(folder, name)  # noqa: PTH118 - thousands a call
    known[path] = (*links, place)  # also where a chain comes back to itself
    with contextlib.suppress(OSError, ValueError):
        target = os.readlink(place)  # noqa: PTH115
        known[path] = (*links, place, *follow(os.path.join(folder, target), known))  # noqa: PTH118
    return known[path]


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """SHA-256, or another hash, of a file's content, in hex."""
    digest = hashlib.new(algorithm)
    with read_errors(path), open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_memory(path: Path, form: int) -> dict[str, Any]:
    """What an earlier run remembered in this form; a file that is missing, damaged or of another form is as none."""
    found = read_json_object(path)
    entries = found.get("entries")
    return entries if found.get("form") == form and isinstance(entries, dict) else {}


def write_memory(path: Path, form: int, entries: dict[str, Any]) -> None:
    """Remember for the next run. Where nothing can be written, nothing is remembered."""
    with contextlib.suppress(EnvironmentLacksError):
        write_atomically(path, json.dumps({"form": form, "entries": entries}).encode())


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none."""
    try:
        return json_object(read_regular(path))
    except OSError:
        return {}


def json_object(content: bytes) -> dict[str, Any]:
    """The object that JSON is; empty where it is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_special(path: Path) -> bool:
    """Whether something is there that is no file to be replaced, or leads to it: a folder, a device, a pipe.

    Raises OSError where that cannot be told.
    """
    try:
        return not S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def place_to_write(path: Path) -> Path:
    """Where what is written to a path belongs: a link stays, and leads there. Raises OSError for what is no file."""
    _refuse_special(path)
    return Path(os.path.realpath(path))


def _refuse_special(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if is_special(path):
        raise OSError(errno.EINVAL, "is no regular file, and is not replaced")


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file under another name and rename it into place, over a file alone."""
    with disk_errors(path):
        _refuse_special(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def replace_folder(new: Path, target: Path, scratch: Path) -> None:
    """Move a finished folder into place; what stood there goes to ``scratch`` (same disk) and is deleted."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        old = scratch / f"{target.name}.{os.getpid()}.old"
        if os.path.lexists(target):
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if os.path.lexists(old):
                old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an operating-system error about a file that cannot be read into the user's."""
    try:
        yield
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {path}: {error.strerror or error}")) from error


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an operating-system error about a file into the user's: which path, which reason."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "free some space and run again: nothing half-written was kept" if is_full(error) else None
        raise DiskError(Problem(f"cannot write {path}: {reason}", hint=hint)) from error
