"""The lines in which git's smart protocol talks over HTTP: how one is written, and the pack in an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

FLUSH = b"0000"
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_HEAD = 4
_DATA, _PROGRESS, _ERROR = 1, 2, 3  # the bands of side-band-64k


class NoPackError(ValueError):
    """The server said no, in git's own words."""


class LineError(ValueError):
    """What came is cut off, or not the protocol."""


def line(text: bytes) -> bytes:
    return b"%04x%s" % (len(text) + _HEAD, text)


def ask_for(commit: str, most_bytes: int, agent: str) -> bytes:
    """One request of protocol version 1 for a commit alone, its trees, and the files of at most so many bytes.

    Nothing is negotiated: who has no commit has no line but the wish, so that the advertisement need not be asked for.
    """
    words = f"want {commit} side-band-64k ofs-delta shallow filter no-progress agent={agent}\n"
    wish = (words.encode(), b"deepen 1\n", b"filter blob:limit=%d\n" % most_bytes)
    return b"".join(map(line, wish)) + FLUSH + line(b"done\n")


def frames(answer: bytes) -> Iterator[bytes | None]:
    """The lines of an answer; None for a flush. Raises LineError."""
    at = 0
    while at < len(answer):
        head = answer[at : at + _HEAD]
        if not _LENGTH.fullmatch(head):
            raise LineError(f"no length of a line at byte {at}")
        length = int(head, 16)
        if length < _HEAD:
            at += _HEAD
            yield None
            continue
        if at + length > len(answer):
            raise LineError(f"the answer ends within the line at byte {at}")
        yield answer[at + _HEAD : at + length]
        at += length


def pack_of(answer: bytes) -> bytes:
    """The pack in an answer to `ask_for`. Raises NoPackError where the server refuses, else LineError."""
    lines = frames(answer)
    for text in lines:
        if text is None or text.startswith(b"shallow "):
            continue
        if text.startswith(b"ERR "):
            raise NoPackError(_said(text[4:]))
        if text.rstrip(b"\n") != b"NAK":
            raise LineError(f"an unexpected line: {_said(text)}")
        return b"".join(_data(lines))
    raise LineError("the answer has no pack")


def _data(lines: Iterable[bytes | None]) -> Iterator[bytes]:
    """What is sent on the first band, to its end."""
    for text in lines:
        if text is None:
            return
        band = text[0] if text else 0
        if band == _ERROR:
            raise NoPackError(_said(text[1:]))
        if band not in {_DATA, _PROGRESS}:
            raise LineError(f"a line on no band: {_said(text)}")
        if band == _DATA:
            yield text[1:]
    raise LineError("the pack is cut off")


def _said(text: bytes) -> str:
    shown = text[:200].decode("utf-8", "replace").strip()
    return "".join(character if character.isprintable() else "?" for character in shown)
