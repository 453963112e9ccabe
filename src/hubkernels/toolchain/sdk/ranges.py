"""Wheels where they lie: a part of one over HTTP, a whole one over HTTP, or a file here; all can be seeked in."""

from __future__ import annotations

import hashlib
import http.client
import io
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import disk_errors
from hubkernels.model.going import Going
from hubkernels.model.size import size_text
from hubkernels.toolchain.sdk.index import without_secrets
from hubkernels.toolchain.sdk.transfer import AnswerError, Transfer

_BLOCK = 1 << 20
_GAP = 256 << 10
"""Two parts that are nearer than this are fetched as one: the bytes between cost less than another request."""

_LONGEST = 8 << 20
_TAIL = 256 << 10
_PARTIAL = 206
_PART = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_TOLD_S = 1.0

Tell = Callable[[str], None]


class NoRangesError(EnvironmentLacksError):
    """The server, or what stands before it, does not give parts of a file as it was asked to."""


class RangedFile(io.RawIOBase):
    """A file of a server, read in parts of a megabyte or more. requests, received: what it cost."""

    def __init__(self, url: str, transfer: Transfer) -> None:
        self.requests = self.received = 0
        self._url, self._transfer = url, transfer
        self._size: int | None = None
        self._mark: str | None = None
        self._at = 0
        self._spans: list[tuple[int, int]] = []
        self._start, self._block = 0, b""
        self._get(0, 1)
        self._fill(max(0, self.size - _TAIL), self.size)

    @property
    def size(self) -> int:
        return self._size or 0

    def expect(self, parts: Iterable[tuple[int, int]]) -> None:
        """Parts, from and to, that will be read in this order: neighbours are fetched together."""
        self._spans = list(_joined(parts))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        end = self.size if count < 0 else min(self._at + count, self.size)
        if end <= self._at:
            return b""
        if not self._start <= self._at <= end <= self._start + len(self._block):
            span = next((each for each in self._spans if each[0] <= self._at < each[1]), (self._at, self._at + _BLOCK))
            self._fill(self._at, min(max(span[1], end), self.size))
        found = self._block[self._at - self._start : end - self._start]
        self._at = end
        return found

    def _fill(self, start: int, end: int) -> None:
        self._start, self._block = start, self._get(start, end)

    def _get(self, start: int, end: int) -> bytes:
        for left in reversed(range(self._transfer.tries)):
            try:
                return self._request(start, end)
            except AnswerError as error:  # noqa: PERF203 - each try is a request
                raise NoRangesError(error.problems[0]) from error
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise NoRangesError(Problem(f"{without_secrets(self._url)} broke off: {error!r}")) from error
        raise AssertionError

    def _request(self, start: int, end: int) -> bytes:
        with self._transfer.open(self._url, {"Range": f"bytes={start}-{end - 1}"}) as response:
            self.requests += 1
            self._check(response, start, end)
            body = bytes(response.read(end - start + 1))
        self.received += len(body)
        if len(body) != end - start:
            raise http.client.IncompleteRead(b"", end - start - len(body))
        return body

    def _check(self, response: Any, start: int, end: int) -> None:  # noqa: ANN401 - urllib's response
        """That this is the part that was asked for, of the same file as before."""
        if response.status != _PARTIAL:
            raise NoRangesError(Problem(f"the server of {without_secrets(self._url)} gives no parts of it"))
        said = response.headers.get("Content-Range", "")
        found = _PART.fullmatch(said)
        encoding = _encoding(response)
        if encoding or not found or (int(found[1]), int(found[2])) != (start, end - 1):
            got = f"{said!r}{encoding and f' as {encoding!r}'}"
            raise NoRangesError(Problem(f"{without_secrets(self._url)}: asked for bytes {start}-{end - 1}, got {got}"))
        size, mark = int(found[3]), response.headers.get("ETag")
        if self._size is not None and (size, mark) != (self._size, self._mark):
            raise NoRangesError(Problem(f"{without_secrets(self._url)} changed while it was read"))
        self._size, self._mark = size, mark


def _joined(parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start = end = -1
    for begins, ends in sorted(parts):
        if start >= 0 and begins - end <= _GAP and ends - start <= _LONGEST:
            end = max(end, ends)
            continue
        if start >= 0:
            yield start, end
        start, end = begins, ends
    if start >= 0:
        yield start, end


def fetch_whole(url: str, target: Path, sha256: str, transfer: Transfer, tell: Tell) -> None:
    """Write a file of a server to disk, whole and with these bytes, or raise and leave none."""
    for left in reversed(range(transfer.tries)):
        try:
            digest, encoding = _stream(url, target, transfer, tell)
            break
        except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
            target.unlink(missing_ok=True)
            if not left:
                hint = "run again: nothing half-written was kept"
                raise EnvironmentLacksError(
                    Problem(f"{without_secrets(url)} broke off: {error!r}", hint=hint)
                ) from error
    if digest != sha256:
        target.unlink(missing_ok=True)
        raise other_bytes(target.name, sha256, digest, encoding)


def other_bytes(file: str, expected: str, found: str, encoding: str = "") -> InputError:
    """The error for a wheel that is not the one that was promised. encoding: how the server says that it sends it."""
    why = (
        f"the server sends it as {encoding!r}, and was asked not to: ask another index, or without what stands between"
        if encoding
        else "whoever serves this file altered it, or serves another one under its name"
    )
    what = f"{file} has other bytes than it must have\n  expected sha256 {expected}\n  found    sha256 {found}"
    return InputError(Problem(what, hint=f"{why}; nothing of it was kept"))


def _encoding(response: Any) -> str:  # noqa: ANN401 - urllib's response
    """What the server says that the bytes are beside themselves; nothing, as it was asked to."""
    said = str(response.headers.get("Content-Encoding", "")).strip()
    return "" if said == "identity" else said


def _length(response: Any) -> int:  # noqa: ANN401 - urllib's response
    """How many bytes will come; 0 where nothing sensible tells."""
    said = response.headers.get("Content-Length", "")
    return int(said) if re.fullmatch(r"[0-9]{1,18}", said) else 0


def _stream(url: str, target: Path, transfer: Transfer, tell: Tell) -> tuple[str, str]:
    """The SHA-256 of what came, and how the server says that it is encoded."""
    digest, received, told = hashlib.sha256(), 0, time.monotonic()
    with transfer.open(url, {}) as response, disk_errors(target), target.open("wb") as file:
        total, encoding = _length(response), _encoding(response)
        while block := _read(response):
            digest.update(block)
            file.write(block)
            received += len(block)
            if time.monotonic() - told > _TOLD_S:
                told = time.monotonic()
                whole = f" of {size_text(total)}" if total else ""
                tell(Going(f"fetching {target.name}: {size_text(received)}{whole}"))
    if total and received != total:
        raise http.client.IncompleteRead(b"", total - received)
    return digest.hexdigest(), encoding


def _read(response: Any) -> bytes:  # noqa: ANN401 - urllib's response
    """A block of the body. An error of the connection must not be taken for one of the disk."""
    try:
        return bytes(response.read(_BLOCK))
    except OSError as error:
        raise http.client.HTTPException(str(error)) from error
