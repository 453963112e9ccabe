"""One build.toml as read, and the list of what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import tomli

from hubkernels.config.positions import KeyPath, format_path, locate
from hubkernels.errors import EnvironmentLacksError, InputError, Problem

RawTable = Mapping[str, Any]
BYTE_ORDER_MARK = "\ufeff"
_TOML_HINTS = {"Unclosed array": "a comma or a bracket is missing here or before"}
START = "run in a folder with a build.toml, name one with --project, or start one with `init`"


@dataclass(frozen=True)
class Document:
    """The text of one build.toml and its tables."""

    path: Path
    text: str
    table: RawTable

    @classmethod
    def read(cls, path: Path, if_missing: str = START) -> Document:
        """Raises InputError when there is no such file, with a hint, or it is not TOML, naming line and column."""
        text = _read_text(path, if_missing)
        if text.startswith(BYTE_ORDER_MARK):
            problem = Problem("the file begins with a byte-order mark", f"{path}:1:1", "save it as UTF-8 without BOM")
            raise InputError(problem)
        try:
            return cls(path, text, tomli.loads(text))
        except tomli.TOMLDecodeError as error:
            where = f"{path}:{error.lineno}:{error.colno}"
            raise InputError(Problem(f"not valid TOML: {error.msg}", where, _TOML_HINTS.get(error.msg))) from error
        except (RecursionError, ValueError) as error:  # its limits: levels of nesting, digits of a number
            limit, _, _ = str(error).partition(";")  # what follows advises programmers
            raise InputError(Problem(f"not readable as TOML: {limit}", where=str(path))) from error

    @cached_property
    def lines(self) -> Mapping[KeyPath, int]:
        return locate(self.text)

    def line(self, path: KeyPath) -> int:
        """The line of a key; for a missing key, the line of its table."""
        known = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self.lines), ())
        return self.lines.get(known, 1)

    def where(self, path: KeyPath) -> str:
        """Spell a place as ``build.toml:12: general.licence``."""
        place = f"{self.path}:{self.line(path)}"
        return f"{place}: {format_path(path)}" if path else place


def _read_text(path: Path, if_missing: str) -> str:
    if path.is_fifo():
        raise InputError(Problem(f"{path} is a pipe", hint="a build.toml is a file"))
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(Problem(f"no build.toml in {os.path.realpath(path.parent)}", hint=if_missing)) from error
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"{path} is not UTF-8 text: {error}", hint="save it as UTF-8")) from error
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot read {path}: {error.strerror}")) from error


@dataclass
class Problems:
    """What is wrong with a document, collected so that one run reports all of it.

    origins maps paths of the edition-5 form to the user's own where the workspace form moved them.
    found: errors, in one list for all documents and packages of a load. warnings: what upstream builds all the same.
    noted: what of both is told already.
    """

    document: Document
    origins: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    found: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    noted: set[tuple[int, str, str | None]] = field(default_factory=set)

    def add(self, path: KeyPath, what: str, hint: str | None = None) -> None:
        """Note an error, once: several packages may inherit one wrong key."""
        self._note(0, self.found, path, what, hint)

    def warn(self, path: KeyPath, what: str, hint: str | None = None) -> None:
        """Note what is likely not meant, though a build can go on."""
        self._note(1, self.warnings, path, what, hint)

    def _note(self, kind: int, problems: list[Problem], path: KeyPath, what: str, hint: str | None) -> None:
        where = self.document.where(self.origin(path))
        if (kind, what, where) not in self.noted:
            self.noted.add((kind, what, where))
            problems.append(Problem(what, where, hint))

    def within(self, origins: Mapping[KeyPath, KeyPath]) -> Problems:
        """The same list, for a package whose keys the workspace form moved."""
        return replace(self, origins=origins)

    def origin(self, path: KeyPath) -> KeyPath:
        """The path in the file that a path of the edition-5 form came from."""
        for n in range(len(path), -1, -1):
            if path[:n] in self.origins:
                return (*self.origins[path[:n]], *path[n:])
        return path

    def raise_if_any(self) -> None:
        if self.found:
            raise InputError(*self.found)
