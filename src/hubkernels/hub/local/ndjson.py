"""Lines of JSON that arrive in pieces, where a long string, a file in base64, goes to a file on its way."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.durable import scratch_file

LONG = 1 << 16
"""A longer string goes to a file."""

LINE_MOST = 1 << 20
"""So many bytes a line may have beside files."""

_OUTSIDE = re.compile(rb'["\n]')
_INSIDE = re.compile(rb'["\\]')


class _File:
    """A string of base64 that goes to a file."""

    def __init__(self, scratch: Path, most: int) -> None:
        self.file, self._path = scratch_file(scratch)
        self._most = most
        self._rest = b""
        self._padded = False
        self._size = 0

    def write(self, text: bytes) -> None:
        if self._padded and text:
            raise Refusal(400, "the content of a file goes on behind the end of its base64")
        text = self._rest + text
        whole = len(text) // 4 * 4
        self._rest = text[whole:]
        content = _decoded(text[:whole])
        self._padded = len(content) < whole // 4 * 3
        self._size += len(content)
        if self._size > self._most:
            raise Refusal(
                413, f"a file has more than {self._most} bytes, which is what this Hub takes in one commit line"
            )
        self.file.write(content)

    def end(self) -> None:
        if self._rest:
            raise Refusal(400, "the content of a file is cut off: it is no whole base64")

    def close(self) -> None:
        self.file.close()
        self._path.unlink(missing_ok=True)


class Lines:
    """Cuts what arrives into lines. A long string stands in its line as a word that names its file.

    The word cannot be guessed, so that no client can name another's file.
    """

    def __init__(self, scratch: Path, most: int) -> None:
        self._scratch = scratch
        self._most = most
        self._line = bytearray()
        self._string: int | None = None  # where the string begins that is being read
        self._escaped = False
        self._plain = True  # no backslash in it so far
        self._current: _File | None = None
        self._files: dict[str, _File] = {}

    def feed(self, data: bytes) -> Iterator[Any]:
        """The values of the lines that end in this piece. Raises Refusal."""
        at = 0
        while at < len(data):
            if self._escaped:
                self._line += data[at : at + 1]
                self._escaped = False
                at += 1
                continue
            match = (_OUTSIDE if self._string is None else _INSIDE).search(data, at)
            end = match.start() if match else len(data)
            self._take(data[at:end])
            at = end + 1
            if match:
                yield from self._mark(match.group())

    def finish(self) -> Iterator[Any]:
        """The value of a last line without an end."""
        if self._string is not None:
            raise Refusal(400, "the last line is cut off")
        if self._line.strip():
            yield self._value()

    def file(self, word: object) -> BinaryIO | None:
        """The file of a long string; None for what is none."""
        found = self._files.get(word) if isinstance(word, str) else None
        return found.file if found else None

    def has_long(self) -> bool:
        """Whether a string of the line went to a file."""
        return bool(self._files)

    def forget_files(self) -> None:
        """Delete the files of lines that are done."""
        while self._files:
            self._files.popitem()[1].close()

    def close(self) -> None:
        self.forget_files()
        if self._current:
            self._current.close()

    def _take(self, text: bytes) -> None:
        if self._current:
            self._current.write(text)
            return
        self._line += text
        if self._string is not None and self._plain and len(self._line) - self._string > LONG:
            if self._files:  # each is open until the line ends
                raise Refusal(400, f"a line has one text of more than {LONG} bytes: the content of its file")
            self._current = _File(self._scratch, self._most)
            self._current.write(bytes(self._line[self._string :]))
            del self._line[self._string :]
        if len(self._line) > LINE_MOST:
            raise Refusal(413, f"a line has more than {LINE_MOST} bytes beside a file in base64")

    def _mark(self, mark: bytes) -> Iterator[Any]:
        if mark == b"\n":
            if self._line.strip():
                yield self._value()
            self._line.clear()
        elif mark == b"\\":
            if self._current:
                raise Refusal(400, "the content of a long file is not base64")
            self._line += mark
            self._escaped, self._plain = True, False
        elif self._string is None:
            self._line += mark
            self._string, self._plain = len(self._line), True
        else:
            if self._current:
                self._current.end()
                word = secrets.token_hex(16)
                self._files[word], self._current = self._current, None
                self._line += word.encode()
            self._line += mark
            self._string = None

    def _value(self) -> Any:  # noqa: ANN401 - any JSON
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(self._line)
        raise Refusal(400, f"this line is no JSON: {bytes(self._line[:80]).decode(errors='replace')}")


def decoded(text: str) -> bytes:
    """What a short string of base64 says. Raises Refusal."""
    try:
        return _decoded(text.encode("ascii"))
    except UnicodeEncodeError as error:
        raise Refusal(400, "the content of a file is no base64") from error


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Refusal(400, "the content of a file is no base64") from error
