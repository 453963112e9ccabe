"""Read members of a wheel, each held against the wheel's own list of hashes; what could reach beyond it is refused."""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from hubkernels.errors import InputError, Problem
from hubkernels.toolchain.sdk.ranges import RangedFile

_LARGEST = 4 << 30
"""All that is taken of one wheel, unpacked: ten times the largest there is."""

_LARGEST_RECORD = 64 << 20
"""Fifty times that of torch, which has ten thousand files."""

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How members of wheels are packed. Of the other ways zipfile unpacks more than it is asked for, without a bound."""

_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    struct.error,
    NotImplementedError,
    ValueError,
    RuntimeError,
    IndexError,
)
"""What zipfile raises for files that are none, or are cut off or overwritten."""

_ENCRYPTED = 0x1


class DamagedWheelError(InputError):
    """A wheel is not what it says that it is."""


class OpenWheel:
    """A wheel in a file that can be seeked in. record: SHA-256, in hex, of its RECORD."""

    def __init__(self, file: IO[bytes] | RangedFile, name: str) -> None:
        self.name = name
        self._file = file
        with self._damage():
            self._zip = zipfile.ZipFile(file)
        self._twice = set(_repeated([info.filename for info in self._zip.infolist()]))
        self._members = {info.filename: info for info in self._zip.infolist()}
        self._folders = set(_folders(self._members))
        text = self._content(self._record())
        self.record = hashlib.sha256(text).hexdigest()
        self._hashes = self._parse(text)

    @property
    def names(self) -> tuple[str, ...]:
        """Its files, in the order in which they lie in it."""
        infos = sorted(self._members.values(), key=lambda info: info.header_offset)
        return tuple(info.filename for info in infos if not info.is_dir())

    def packed(self, names: Sequence[str]) -> int:
        """Bytes that these members take in the wheel."""
        return sum(self._members[name].compress_size for name in names)

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Members and their content, in the order in which they lie. Raises DamagedWheelError that names the member."""
        infos = sorted((self._members[name] for name in names), key=lambda info: info.header_offset)
        for info in infos:
            self._refuse(info)
        if sum(info.file_size for info in infos) > _LARGEST:
            raise self._damaged("unpacked it is larger than any wheel that there is")
        if isinstance(self._file, RangedFile):
            self._file.expect(self._spans(infos))
        for info in infos:
            yield info.filename, self._checked(info)

    def _record(self) -> zipfile.ZipInfo:
        found = [name for name in self._members if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
        if len(found) != 1 or found[0] in self._twice:
            raise self._damaged(f"a wheel has one RECORD, this one has {len(found)}")
        record = self._members[found[0]]
        if record.file_size > _LARGEST_RECORD:
            raise self._damaged(f"{found[0]!r} is {record.file_size} bytes, more than any wheel has")
        return record

    def _parse(self, text: bytes) -> dict[str, tuple[str, str]]:
        with self._damage():
            rows = list(csv.reader(io.StringIO(text.decode(), newline="")))
            return {row[0]: (row[1], row[2]) for row in rows if row}

    def _spans(self, infos: Sequence[zipfile.ZipInfo]) -> Iterator[tuple[int, int]]:
        starts = sorted(info.header_offset for info in self._zip.infolist())
        ends = dict(zip(starts, [*starts[1:], self._zip.start_dir], strict=True))
        return ((info.header_offset, ends[info.header_offset]) for info in infos)

    def _refuse(self, info: zipfile.ZipInfo) -> None:
        if why := self._why_refused(info):
            raise self._damaged(f"{info.filename!r} {why}")

    def _why_refused(self, info: zipfile.ZipInfo) -> str | None:
        listed = self._hashes.get(info.filename, ("", ""))
        rules = (
            (not is_inside(info.filename), "leads out of the folder that it is unpacked to"),
            (info.filename in self._twice, "is in it twice"),
            (info.filename in self._folders, "is a file and a folder"),
            (stat.S_ISLNK(info.external_attr >> 16), "is a link"),
            (info.flag_bits & _ENCRYPTED, "is encrypted"),
            (not listed[0].startswith("sha256="), "is not in its RECORD with a sha256"),
            (listed[1] != str(info.file_size), f"is {info.file_size} bytes, its RECORD says {listed[1]}"),
        )
        return next((why for holds, why in rules if holds), None)

    def _checked(self, info: zipfile.ZipInfo) -> bytes:
        content = self._content(info)
        found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        expected = self._hashes[info.filename][0].removeprefix("sha256=").rstrip("=")
        if found != expected:
            raise self._damaged(f"{info.filename!r} has sha256 {found}, its RECORD says {expected}")
        return content

    def _content(self, info: zipfile.ZipInfo) -> bytes:
        if info.compress_type not in _METHODS:
            raise self._damaged(f"{info.filename!r} is packed by method {info.compress_type}, as no wheel is")
        with self._damage(info.filename), self._zip.open(info) as member:
            content = member.read(info.file_size + 1)
            if len(content) != info.file_size:
                raise zipfile.BadZipFile(f"{len(content)} bytes where {info.file_size} are declared")
            return content

    @contextlib.contextmanager
    def _damage(self, member: str = "") -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            where = f"{member!r} cannot be read" if member else "it cannot be read"
            raise self._damaged(f"{where}: {error}") from error

    def _damaged(self, why: str) -> DamagedWheelError:
        return DamagedWheelError(Problem(f"{self.name} is damaged: {why}", hint="nothing of it was kept"))


def is_inside(path: str) -> bool:
    """Whether a path of an archive stays below the folder that it is unpacked to, on any system."""
    return bool(path) and not set(path) & set("\\\0\n:") and not {"", ".", ".."} & set(path.split("/"))


def _repeated(names: Sequence[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _folders(names: Iterable[str]) -> Iterator[str]:
    """Each folder that a name lies in, once or oftener."""
    seen: set[str] = set()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in seen:
            seen.add(above)
            yield above
            above = above.rpartition("/")[0]
