"""Where each key of a TOML text stands.

No TOML library that is fast enough for a no-change build tells line numbers, so a text that tomli has already accepted
is scanned once more, when there is something to report. That the text is valid is what keeps this short.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BASIC_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_LITERAL_STRING = re.compile(r"'''.*?'{3,5}|'[^'\n]*'", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\n]*")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b"}


def locate(text: str) -> dict[KeyPath, int]:
    """Map every key path of a valid TOML text to its line, counted from 1; list items have their own lines."""
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.lines


@dataclass
class Span:
    """A header or an assignment, by offsets into the text.

    start, end: all of it. leaf, leaf_end: its last key. value: where an assignment's value begins, None for a header.
    """

    start: int
    leaf: int
    leaf_end: int
    value: int | None = None
    end: int = 0


def locate_spans(text: str) -> dict[KeyPath, Span]:
    """Map the key path of every header and every assignment of a valid TOML text to its offsets."""
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.spans


def format_path(path: KeyPath) -> str:
    """Spell a key path as TOML does, list items by index: ``package.rms-norm.kernel.cuda.src[0]``."""
    spelled = ""
    for part in path:
        if isinstance(part, int):
            spelled += f"[{part}]"
            continue
        key = part if _BARE_KEY.fullmatch(part) else basic_string(part)
        spelled += f".{key}" if spelled else key
    return spelled


def basic_string(text: str) -> str:
    """Spell a text as a string of TOML, on one line."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON lets DEL stand, TOML does not


@dataclass
class _Container:
    """An array or inline table that is open. length: the items met so far."""

    path: KeyPath
    closing: str
    length: int = 0


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.breaks = [found.start() for found in re.finditer("\n", text)]
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self.spans: dict[KeyPath, Span] = {}
        self.leaf = self.leaf_end = 0
        self.array_lengths: dict[KeyPath, int] = {}

    def scan(self) -> None:
        table: KeyPath = ()
        self._skip_blank()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._value(self._assigned(table))
            self._skip_blank()

    def _header(self) -> KeyPath:
        array = self.text.startswith("[[", self.at)
        start = self.at
        self.at += 2 if array else 1
        keys = self._dotted_key()
        self.at += 2 if array else 1
        path = (*self._parent(keys[:-1], start), keys[-1])
        if array:
            self._note(path, start)
            index = self.array_lengths.get(path, 0)
            self.array_lengths[path] = index + 1
            path = (*path, index)
        self.lines[path] = self._line(start)  # a table below may have implied this one before
        self.spans[path] = Span(start, self.leaf, self.leaf_end, end=self.at)
        return path

    def _parent(self, keys: KeyPath, start: int) -> KeyPath:
        """The table that a header stands in: below ``[[x]]`` that is the last item of x."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            self._note(path, start)
            if path in self.array_lengths:
                path = (*path, self.array_lengths[path] - 1)
        return path

    def _assigned(self, table: KeyPath) -> KeyPath:
        """Step over a key and its equals sign, up to the value."""
        start = self.at
        path = table
        for key in self._dotted_key():
            path = (*path, key)
            self._note(path, start)
        self.at += 1  # "="
        self._skip_blank()
        self.spans[path] = Span(start, self.leaf, self.leaf_end, self.at)
        return path

    def _value(self, path: KeyPath) -> None:
        """Step over one value and what is in it: a loop, since tomli nests deeper than Python recurses."""
        around: list[_Container] = []
        self._begin(path, around)
        while around:
            inner = around[-1]
            if not self._next_is_not(inner.closing):
                self._end(around.pop().path)
            elif inner.closing == "]":
                item = (*inner.path, inner.length)
                inner.length += 1
                self._note(item, self.at)
                self._begin(item, around)
            else:
                self._begin(self._assigned(inner.path), around)

    def _begin(self, path: KeyPath, around: list[_Container]) -> None:
        """Step over a value without parts, or over the bracket that opens one with parts."""
        match self.text[self.at]:
            case "[" | "{" as bracket:
                self.at += 1
                around.append(_Container(path, "]" if bracket == "[" else "}"))
            case '"':
                self._match(_BASIC_STRING)
                self._end(path)
            case "'":
                self._match(_LITERAL_STRING)
                self._end(path)
            case _:
                scalar = self._match(_SCALAR)
                self.at -= len(scalar) - len(scalar.rstrip())
                self._end(path)

    def _end(self, path: KeyPath) -> None:
        if path in self.spans:  # items of lists have none
            self.spans[path].end = self.at

    def _next_is_not(self, closing: str) -> bool:
        """Step over blanks and one comma; consume the closing bracket when it comes."""
        self._skip_blank()
        if self.text[self.at] == ",":
            self.at += 1
            self._skip_blank()
        if self.text[self.at] == closing:
            self.at += 1
            return False
        return True

    def _dotted_key(self) -> KeyPath:
        keys: list[str] = []
        while True:
            self._skip_blank()
            self.leaf = self.at
            keys.append(self._key())
            self.leaf_end = self.at
            self._skip_blank()
            if self.text[self.at] != ".":
                return tuple(keys)
            self.at += 1

    def _key(self) -> str:
        match self.text[self.at]:
            case '"':
                return _ESCAPE.sub(_unescape, self._match(_BASIC_STRING)[1:-1])
            case "'":
                return self._match(_LITERAL_STRING)[1:-1]
            case _:
                return self._match(_BARE_KEY)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise AssertionError(f"the TOML scanner lost its way at {self.text[self.at : self.at + 40]!r}")
        self.at = found.end()
        return found.group()

    def _skip_blank(self) -> None:
        self._match(_BLANK)

    def _note(self, path: KeyPath, at: int) -> None:
        self.lines.setdefault(path, self._line(at))

    def _line(self, at: int) -> int:
        return bisect_left(self.breaks, at) + 1


def _unescape(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)
