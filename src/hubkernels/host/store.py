"""A folder of entries named for what they are made of: each is whole or not there, whoever writes, kills or removes.

Many processes use one store at once and wait for none: readers copy, writers rename, and an entry that is missing is
made again. So anything in the folder may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.host.files import disk_errors, is_special, read_regular, write_atomically

_FORM = b"hubkernels entry 1"
_NAME = re.compile(r"[0-9a-f]{32}\.[a-z]+")
_PART = re.compile(r"\.[0-9a-f]{32}\.[a-z]+\..+")  # as write_atomically names what is not finished
_ABANDONED_S = 3600.0
_TOUCH_S = 600.0
"""Use is noted in the time of an entry, to this precision: a build that has nothing to do writes next to nothing."""

_ROOM = 0.9
"""Trimming goes below the limit by a tenth, so that it is not due again after the next build."""


@dataclass(frozen=True)
class Usage:
    """What a store holds. size: in bytes."""

    entries: int
    size: int


@dataclass(frozen=True)
class _Entry:
    path: Path
    used: float
    size: int


class Store:
    """Entries below ``folder``, which need not exist yet. Names: 32 hex digits, a dot, a kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.grown = False
        """Whether this process has put anything here."""

    def get(self, name: str) -> bytes | None:
        """The content of an entry; None where there is none. One that is not as it was written is removed."""
        path = self._path(name)
        try:
            header, line, content = read_regular(path).partition(b"\n")
            used = path.stat().st_mtime
        except OSError:
            return None
        if header + line != _header(name, content):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        if time.time() - used > _TOUCH_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def take(self, name: str, target: Path) -> bool:
        """Copy an entry to a file of the caller's own, so that nobody pulls it away; False where there is none."""
        content = self.get(name)
        if content is None:
            return False
        with disk_errors(target):
            target.write_bytes(content)
        return True

    def put(self, name: str, content: bytes) -> None:
        """Add an entry, or write it anew. Raises EnvironmentLacksError where that cannot be."""
        path = self._path(name)
        with contextlib.suppress(OSError):
            if is_special(path):  # the folder is ours: damage gives way
                path.unlink()
        write_atomically(path, _header(name, content) + content)
        self.grown = True

    def usage(self) -> Usage:
        entries = list(self._entries())
        return Usage(len(entries), sum(entry.size for entry in entries))

    def trim(self, limit: int) -> int:
        """Remove what was used least recently until the rest fits; tells the bytes freed.

        Does nothing while another process is at it, or where that cannot be known: a build never waits for this.
        """
        from filelock import FileLock, Timeout  # noqa: PLC0415 - a no-change build does without

        with contextlib.suppress(Timeout, OSError, NotImplementedError), FileLock(self.folder / "lock", timeout=0):
            self._remove_abandoned()
            return self._trim(limit)
        return 0

    def _trim(self, limit: int) -> int:
        entries = sorted(self._entries(), key=lambda entry: (entry.used, entry.path))
        size = total = sum(entry.size for entry in entries)
        if total <= limit:
            return 0
        for entry in entries:
            if size <= limit * _ROOM:
                break
            with contextlib.suppress(OSError):  # another user's, in a cache that several share
                entry.path.unlink(missing_ok=True)
                size -= entry.size
        return total - size

    def clear(self) -> Usage:
        """Remove all entries and what killed builds left of them, and nothing else; tells what there was."""
        found = self.usage()
        with disk_errors(self.folder):
            for entry in (*self._entries(), *self._parts()):
                entry.path.unlink(missing_ok=True)
            for folder in self._folders():
                with contextlib.suppress(OSError):  # something of others is in it
                    folder.rmdir()
        return found

    def _remove_abandoned(self) -> None:
        for part in self._parts():
            if time.time() - part.used > _ABANDONED_S:
                part.path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _entries(self) -> Iterator[_Entry]:
        return self._files(_NAME)

    def _parts(self) -> Iterator[_Entry]:
        return self._files(_PART)

    def _files(self, name: re.Pattern[str]) -> Iterator[_Entry]:
        """Files of the store's own; others may have put theirs beside them, and another process may remove some."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for file in os.scandir(folder):
                    if name.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):
                            found = file.stat(follow_symlinks=False)
                            yield _Entry(Path(file.path), found.st_mtime, found.st_size)

    def _folders(self) -> list[Path]:
        try:
            with os.scandir(self.folder) as found:
                names = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return [self.folder / name for name in names if re.fullmatch(r"[0-9a-f]{2}", name)]


def _header(name: str, content: bytes) -> bytes:
    """First line of an entry: a checksum over its content and its name, since a renamed entry is a wrong one."""
    digest = hashlib.sha256(name.encode() + b"\0")
    digest.update(content)
    return b"%s %s\n" % (_FORM, digest.hexdigest().encode())
