"""Typed access to one table of build.toml; what does not fit is noted, and reading goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.flags import why_refused, why_suspicious, why_unfinished
from hubkernels.config.positions import KeyPath
from hubkernels.errors import did_you_mean, nearest, similar
from hubkernels.model.version import Version

_TOML_NAMES = {str: "a string", int: "an integer", bool: "a boolean", float: "a float", list: "a list", dict: "a table"}
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")
_INTEGER_BITS = 63  # beside the sign: what TOML promises to read

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ELSEWHERE = dict.fromkeys(("isa", "parity"), "a key of packages in a [workspace]: docs/build-toml.md")
"""Keys that are known, but not in every form of build.toml."""


class Reader:
    """Hands out the values of one table.

    allowed: all keys that it may have; others are noted and dropped. newer: keys that a newer edition would allow.
    """

    def __init__(
        self, table: RawTable, path: KeyPath, problems: Problems, allowed: Iterable[str], newer: Iterable[str] = ()
    ) -> None:
        known = frozenset(allowed)
        later = frozenset(newer) - known
        self.table: RawTable = {key: value for key, value in table.items() if key in known}
        self.path = path
        self.problems = problems
        unknown = [key for key in table if key not in known]
        self.meant = {similar(key, known) for key in unknown} - {None}
        for key in unknown:
            hint = "say edition = 5, which has it" if key in later else _ELSEWHERE.get(key)
            self.complain(
                f"unknown key {key}", key, hint=hint or nearest(key, known | later) or did_you_mean(key, known)
            )

    def complain(self, what: str, *keys: str | int, hint: str | None = None) -> None:
        self.problems.add((*self.path, *keys), what, hint)

    def warn(self, what: str, *keys: str | int, hint: str | None = None) -> None:
        """Note what is likely not meant, though a build can go on."""
        self.problems.warn((*self.path, *keys), what, hint)

    def miss(self, what: str, *keys: str | int, hint: str | None = None) -> None:
        """Complain that the table is not whole."""
        self.complain(what, *keys, hint=hint)

    def lacks(self, *keys: str) -> bool:
        """Whether none of the keys is there, as it is or misspelled: that is one fault, not two."""
        return not {*self.table, *self.meant}.intersection(keys)

    def require(self, key: str, hint: str | None = None) -> None:
        if self.lacks(key):
            self.miss(f"missing key {key}", key, hint=hint)

    def text(self, key: str) -> str | None:
        value = self._typed(key, str)
        return value if isinstance(value, str) else None

    def required_text(self, key: str) -> str:
        self.require(key)
        return self.text(key) or ""

    def count(self, key: str) -> int | None:
        """A whole number that is not negative."""
        value = self._typed(key, int)
        if not isinstance(value, int):
            return None
        if value.bit_length() > _INTEGER_BITS:
            self.complain(f"{key} has more than 64 bits, which TOML has no room for", key)
        elif value < 0:
            self.complain(f"{key} must not be negative, found {value}", key)
        else:
            return value
        return None

    def required_count(self, key: str) -> int | None:
        self.require(key)
        return self.count(key)

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(text for _, text in self.numbered_texts(key))

    def required_texts(self, key: str) -> tuple[str, ...]:
        self.require(key)
        return self.texts(key)

    def numbered_texts(self, key: str) -> list[tuple[int, str]]:
        """The strings of a list, each with its index, but for those that no path or flag can be."""
        found: list[tuple[int, str]] = self._items(key, str, "strings")
        return [(index, text) for index, text in found if not self._refuse_control(text, key, index)]

    def flags(self, key: str) -> tuple[str, ...]:
        """Words of a command line."""
        words = self.numbered_texts(key)
        before = ("", *(word for _, word in words))
        for (index, word), previous in zip(words, before, strict=False):
            last = index == words[-1][0]
            if refused := why_refused(word, previous) or (why_unfinished(word) if last else None):
                self.complain(f"{key} {refused[0]}", key, index, hint=refused[1])
            elif suspicious := why_suspicious(word):
                self.warn(f"{key} {suspicious[0]}", key, index, hint=suspicious[1])
        return tuple(word for _, word in words)

    def tables(self, key: str) -> list[tuple[int, RawTable]]:
        """The tables of a list of tables, each with its index."""
        return self._items(key, dict, "tables")

    def version(self, key: str) -> Version | None:
        if isinstance(number := self.table.get(key), float):
            self.complain(f"{key} must be a string", key, hint=f'quote it: "{number}0" and "{number}" are two versions')
            return None
        value = self.text(key)
        if value is None:
            return None
        if not _VERSION.fullmatch(value):
            self.complain(f"{key} must be a version number, found {_shown(value)}", key, hint='such as "2.10"')
            return None
        return Version.parse(value)

    def below(self, key: str, allowed: Iterable[str], newer: Iterable[str] = ()) -> Reader | None:
        """The reader of a table below this one, or None where there is no such table."""
        value = self._typed(key, dict)
        return None if value is None else type(self)(value, (*self.path, key), self.problems, allowed, newer)

    def named(self, key: str) -> Reader:
        """The reader of a table below this one whose keys are the user's to choose; it may be empty."""
        value = self._typed(key, dict) or {}
        return type(self)(value, (*self.path, key), self.problems, value)

    def _items(self, key: str, kind: type, plural: str) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        for index, item in enumerate(self._typed(key, list) or []):
            if isinstance(item, kind):
                found.append((index, item))
            else:
                hint = f'quote it: ["{item}"]' if kind is str and isinstance(item, float) else None
                self.complain(f"{key} holds {plural}, found {_shown(item)}", key, index, hint=hint)
        return found

    def _refuse_control(self, text: str, *keys: str | int) -> bool:
        """No path or flag of a build has control characters; in commands and messages they would mislead."""
        if found := _CONTROL.search(text):
            self.complain(f"{keys[0]} has a control character: {text!r}", *keys)
        return bool(found)

    def _typed(self, key: str, kind: type) -> Any:  # noqa: ANN401 - the caller names the type it asked for
        value = self.table.get(key)
        if value is None or type(value) is kind:
            return value
        hint = f"write [{json.dumps(str(value))}]" if kind is list and isinstance(value, str | float) else None
        self.complain(f"{key} must be {_TOML_NAMES[kind]}, found {_shown(value)}", key, hint=hint)
        return None


class Defaults(Reader):
    """A table that others fill from: what it has is checked, and it need not be whole."""

    def miss(self, what: str, *keys: str | int, hint: str | None = None) -> None:
        pass


def _shown(value: object) -> str:
    """What was found, on one short line."""
    if isinstance(value, str):
        return f'"{value}"'
    kind = _TOML_NAMES.get(type(value), "a date")
    too_long = isinstance(value, list | dict) or (isinstance(value, int) and value.bit_length() > _INTEGER_BITS)
    return kind if too_long else f"{kind}: {value}"
