"""Typed access to one table of build.toml; what does not fit is noted, and reading goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hubkernels.config.document import Problems, RawTable
from hubkernels.config.positions import KeyPath
from hubkernels.errors import did_you_mean
from hubkernels.model.version import Version

_TOML_NAMES = {str: "a string", int: "an integer", bool: "a boolean", float: "a float", list: "a list", dict: "a table"}


class Reader:
    """Hands out the values of one table. ``allowed`` are all keys that it may have."""

    def __init__(self, table: RawTable, path: KeyPath, problems: Problems, allowed: Iterable[str]) -> None:
        self.table = table
        self.path = path
        self.problems = problems
        known = frozenset(allowed)
        for key in table:
            if key not in known:
                self.complain(f"unknown key {key}", key, hint=did_you_mean(key, known))

    def complain(self, what: str, *keys: str | int, hint: str | None = None) -> None:
        self.problems.add((*self.path, *keys), what, hint)

    def text(self, key: str) -> str | None:
        value = self._typed(key, str)
        return value if isinstance(value, str) else None

    def required_text(self, key: str) -> str:
        self._require(key)
        return self.text(key) or ""

    def required_count(self, key: str) -> int:
        """A whole number that is not negative."""
        self._require(key)
        value = self._typed(key, int)
        if isinstance(value, int) and value < 0:
            self.complain(f"{key} must not be negative, found {value}", key)
        return value if isinstance(value, int) else 0

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._typed(key, list) or []
        for index, item in enumerate(items):
            if not isinstance(item, str):
                self.complain(f"{key} holds strings, found {_shown(item)}", key, index)
        return tuple(item for item in items if isinstance(item, str))

    def required_texts(self, key: str) -> tuple[str, ...]:
        self._require(key)
        return self.texts(key)

    def version(self, key: str) -> Version | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            return Version.parse(value)
        except ValueError:
            self.complain(f"{key} must be a version number, found {_shown(value)}", key, hint='such as "2.10"')
            return None

    def below(self, key: str, allowed: Iterable[str]) -> Reader | None:
        """The reader of a table below this one, or None where there is no such table."""
        value = self._typed(key, dict)
        return None if value is None else Reader(value, (*self.path, key), self.problems, allowed)

    def tables(self, key: str) -> list[tuple[int, RawTable]]:
        """The tables of a list of tables, each with its index."""
        found: list[tuple[int, RawTable]] = []
        for index, item in enumerate(self._typed(key, list) or []):
            if isinstance(item, dict):
                found.append((index, item))
            else:
                self.complain(f"{key} holds tables, found {_shown(item)}", key, index)
        return found

    def _require(self, key: str) -> None:
        if key not in self.table:
            self.complain(f"missing key {key}", key)

    def _typed(self, key: str, kind: type) -> Any:  # noqa: ANN401 - the caller names the type it asked for
        value = self.table.get(key)
        if value is None or type(value) is kind:
            return value
        self.complain(f"{key} must be {_TOML_NAMES[kind]}, found {_shown(value)}", key)
        return None


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return f"{_TOML_NAMES.get(type(value), 'a date')}: {value}"
