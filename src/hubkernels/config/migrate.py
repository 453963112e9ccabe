"""An older build.toml as one of edition 5: edits of its text, so that comments, order and form stay as they are.

What the editions differ in: 4 lacks `edition`; 3 may lack `version` and `license`, and ships Python alone when it has
no framework table; 2 has no `backends` (its sections tell them, or `universal`: Python alone, for all) and bounds CUDA
in `general.cuda-minver` and `cuda-maxver`; 1 has `universal` under [torch], and the `language` of a section, CUDA when
it says none, where later ones have `backend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli

from hubkernels.config.document import Document, Problems
from hubkernels.config.edition import MIGRATE, NEWEST_EDITION, UNMARKED_EDITION, UPSTREAM, read_package
from hubkernels.config.editor import TomlEditor
from hubkernels.config.members import BUILD_TOML, find_members, subfolders
from hubkernels.config.older import FRAMEWORKS, old_edition
from hubkernels.config.positions import KeyPath, basic_string, format_path
from hubkernels.config.workspace import is_workspace, read_workspace
from hubkernels.errors import InputError, Problem
from hubkernels.model.backend import BACKENDS

UNIVERSAL_BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "xpu")
FIRST_VERSION = 1
"""The version of a package that says none, as upstream reads edition 3."""

_LANGUAGES = {"cuda": "cuda", "cuda-hipify": "cuda", "metal": "metal"}
_HIPIFY = "cuda-hipify"


@dataclass(frozen=True)
class Migration:
    """edition: the one that was found. old, text: the file as it is, and in edition 5."""

    path: Path
    edition: int
    old: str
    text: str


def migrate_all(root: Path, license_id: str | None = None) -> tuple[Migration, ...]:
    """Bring the build.toml of a folder to edition 5; of a workspace, and of a folder of projects, those of its members.

    Raises InputError with the problems of all files.
    """
    problems: list[Problem] = []
    found = [_attempt(path, license_id, problems) for path in upstream_files(root)]
    if problems:
        raise InputError(*problems)
    return tuple(migration for migration in found if migration)


def _attempt(path: Path, license_id: str | None, problems: list[Problem]) -> Migration | None:
    try:
        return migrate(path, license_id)
    except InputError as error:
        problems += error.problems
        return None


def upstream_files(root: Path) -> tuple[Path, ...]:
    """The files in upstream's form: the one of the folder, or those of its members."""
    path = root / BUILD_TOML
    if not path.exists() and (members := subfolders(root)):
        return tuple(root / member.folder / BUILD_TOML for member in members)
    document = Document.read(path)
    if not is_workspace(document.table):
        return (path,)
    _, patterns = read_workspace(document.table, Problems(document))
    members, _ = find_members(root, patterns)
    return tuple(root / member.folder / BUILD_TOML for member in members)


def migrate(path: Path, license_id: str | None = None) -> Migration:
    """Bring one file to edition 5. license_id: for a file of an edition that asked for none.

    Raises InputError for what edition 5 has no words for, and for a file that would still not be read.
    """
    document = Document.read(path)
    if is_workspace(document.table):
        raise InputError(Problem("a workspace cannot be a member of another", str(path), "drop the member"))
    general = document.table.get("general")
    if isinstance(general, dict) and "edition" in general:
        edition = NEWEST_EDITION
        text = document.text
    else:
        edition = old_edition(document.table) or UNMARKED_EDITION
        text = _Migrator(document, license_id).migrate(edition)
    _require_readable(document, text)
    return Migration(path, edition, document.text, text)


def _require_readable(old: Document, text: str) -> None:
    """Raises InputError for what edition 5 would refuse, each at its line of the old file, or of its table there."""
    problems = Problems(replace(old, table=tomli.loads(text)))
    read_package(problems.document.table, problems, old.path.parent, UPSTREAM)
    if problems.found:
        what = f"{old.path} stays as it is: in edition {NEWEST_EDITION} it would have these faults"
        raise InputError(Problem(what), *problems.found)


class _Migrator:
    """Collects the edits of one file, and makes them all at the end."""

    def __init__(self, document: Document, license_id: str | None) -> None:
        self.file = TomlEditor(document.text)
        self.table: Mapping[str, Any] = document.table
        self.problems = Problems(document)
        self.license_id = license_id
        self.adds_noarch = False

    def migrate(self, edition: int) -> str:
        for table in ("general", "torch", "kernel"):
            if table in self.table and not isinstance(self.table[table], dict):
                self.problems.add((table,), f"{table} must be a table")
        if ("general", "name") not in self.file.spans:
            self.problems.add(("general", "name"), "missing key name")
        self.problems.raise_if_any()
        if edition == 1:
            self._languages()
        if edition <= 2:  # noqa: PLR2004 - an edition is a number
            self._cuda_bounds()
        self._general(self._backends(edition))
        self.problems.raise_if_any()
        text, newline = self.file.edited(), self.file.newline
        return f"{text.rstrip()}{newline * 2}[torch-noarch]{newline}" if self.adds_noarch else text

    def _general(self, backends: Iterable[str] | None) -> None:
        """Say the edition, and what older ones left out, after the version."""
        general = self.table["general"]
        lines = [f"version = {FIRST_VERSION}"] if "version" not in general else []
        lines.append(f"edition = {NEWEST_EDITION}")
        if "license" not in general:
            if self.license_id is None:
                hint = f"say it here: `{MIGRATE} --license Apache-2.0`"
                self.problems.add(("general",), f"edition {NEWEST_EDITION} demands a license", hint)
            lines.append(f"license = {basic_string(self.license_id or '')}")
        if backends is not None:
            lines.append(f"backends = [{', '.join(map(basic_string, backends))}]")
        anchor = "version" if "version" in general else "name"
        self.file.insert_after(("general", anchor), lines)

    def _backends(self, edition: int) -> tuple[str, ...] | None:
        """The backends to say, where the file says none; and the framework table of Python alone."""
        if edition > 2:  # noqa: PLR2004
            if edition == 3 and not any(name in self.table for name in FRAMEWORKS):  # noqa: PLR2004
                self.adds_noarch = True
            return None
        home = ("general",) if edition == 2 else ("torch",)  # noqa: PLR2004
        universal = self.table.get(home[0], {}).get("universal")
        if universal is not None:
            self.file.remove((*home, "universal"))
        if universal is True:
            self._make_noarch()
            return UNIVERSAL_BACKENDS
        return self._backends_of_sections()

    def _backends_of_sections(self) -> tuple[str, ...]:
        if "torch" not in self.table:
            self.problems.add((), "missing table [torch], which this edition demands")
        found: set[str] = set()
        for section in self._sections().values():
            language = section.get("language", "cuda")
            found.add(str(section.get("backend", _LANGUAGES.get(language, language))))
            if language == _HIPIFY and "backend" not in section:
                found.add("rocm")
        if not found:
            hint = "add backends to [general]"
            self.problems.add(("general",), "no kernel section tells the backends", hint)
        return tuple(sorted(found))

    def _make_noarch(self) -> None:
        """Rename [torch], of which a package of Python alone has pyext only."""
        if self._sections():
            self.problems.add(("kernel",), "a universal package is of Python alone, and has no kernel sections")
        torch = self.table.get("torch")
        if torch is None:
            self.adds_noarch = True
            return
        for key, value in torch.items():
            if key == "src" and value == []:
                self.file.remove(("torch", "src"))
            elif key not in {"pyext", "universal"}:
                self.problems.add(("torch", key), f"{key} of a universal package has no place in [torch-noarch]")
        if ("torch",) in self.file.spans:
            self.file.rename(("torch",), "torch-noarch")
        else:
            self.problems.add(("torch",), "[torch] is spelled by dotted keys", "give it a header: [torch]")

    def _cuda_bounds(self) -> None:
        for old, new in (("cuda-minver", "cuda.minver"), ("cuda-maxver", "cuda.maxver")):
            if ("general", old) in self.file.spans:
                self.file.rename(("general", old), new)

    def _languages(self) -> None:
        for name, section in self._sections().items():
            path: KeyPath = ("kernel", name)
            language = section.get("language", "cuda")
            if not isinstance(language, str) or language not in _LANGUAGES:
                hint = f"edition 1 has {', '.join(_LANGUAGES)}"
                self.problems.add((*path, "language"), f"unknown language {language}", hint)
            elif language == _HIPIFY:
                self._hipify(path)
            else:
                self._say_backend(path, _LANGUAGES[language])
                for key in ("cuda-capabilities", "rocm-archs"):
                    if key != BACKENDS[_LANGUAGES[language]].archs_key:
                        self._drop(path, key)  # the edition allowed it in every section, to no effect

    def _hipify(self, path: KeyPath) -> None:
        """One section for CUDA, and a copy of it for ROCm."""
        span = self.file.spans.get(path)
        copy = f"{path[-1]}_rocm"
        if span is None or span.value is not None:
            hint = f"write it as [{format_path(path)}], then migrate again"
            self.problems.add(path, "a section for CUDA and ROCm must be a table with a header", hint)
            return
        if copy in self._sections():
            self.problems.add(("kernel", copy), f"{copy} is the name that the ROCm half of {path[-1]} gets")
        end = self.file.end_of_table(path)
        kept, self.file.edits = self.file.edits, []
        self.file.rename(path, format_path((copy,)))
        self._say_backend(path, "rocm")
        self._drop(path, "cuda-capabilities")
        twin = self.file.edited(span.start, end)
        self.file.edits = kept
        self._say_backend(path, "cuda")
        self._drop(path, "rocm-archs")
        self.file.insert_table(end, twin.rstrip())

    def _say_backend(self, path: KeyPath, backend: str) -> None:
        language = self.file.spans.get((*path, "language"))
        if language is not None and language.value is not None:
            self.file.replace(language.value, language.end, basic_string(backend))
            self.file.rename((*path, "language"), "backend")
            return
        first = min(
            (span for key, span in self.file.spans.items() if key[:-1] == path and span.value is not None),
            key=lambda span: span.start,
            default=None,
        )
        if first is None:
            self.problems.add(path, "the section is empty")
            return
        prefix, said = self.file.text[first.start : first.leaf], f"backend = {basic_string(backend)}"
        after = ", " if self.file.is_inline(first) else self.file.newline + self.file.indent(first)
        self.file.replace(first.start, first.start, f"{prefix}{said}{after}")

    def _drop(self, path: KeyPath, key: str) -> None:
        if (*path, key) in self.file.spans:
            self.file.remove((*path, key))

    def _sections(self) -> dict[str, Mapping[str, Any]]:
        sections = self.table.get("kernel", {})
        return {name: section for name, section in sections.items() if isinstance(section, dict)}
