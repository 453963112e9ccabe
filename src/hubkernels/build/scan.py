"""What every source really reads: the compiler's own list of headers, by content, remembered between runs.

The id of an artifact is the hash of all its inputs, and the binding is compiled with that id; so the inputs must be
known before the first object exists. The compiler lists them (``-M``); a list holds until a file in it changes, or a
folder where one of its names is looked for; of a source that asks ``__has_include`` it holds for one build.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.sources import Source
from hubkernels.host.files import FileHashes, changed_since, read_memory, write_memory
from hubkernels.host.process import run
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain

ID_MACRO = b"TORCH_EXTENSION_NAME"
_ASKS_FOR_FILES = b"__has_include"
_FORM = 3  # of the remembered lists; another form is forgotten
_WORD = re.compile(r"(?:\\.|[^\\\s])+")
_SEARCH_FLAG = re.compile(r"-(?:I|isystem|iquote|idirafter)(.*)", re.DOTALL)
_SYSTEM = "/usr/"


@dataclass(frozen=True)
class ScannedSource:
    """A source and everything it includes.

    inputs: (name that is the same on every machine, SHA-256), the source first.
    reads_id: whether the op id takes part in compiling it.
    """

    source: Source
    inputs: tuple[tuple[str, str], ...]
    reads_id: bool


@dataclass(frozen=True)
class Scanner:
    """Scans sources of one variant. root: the package's folder. memory: the file that keeps the lists between runs."""

    root: Path
    memory: Path
    hashes: FileHashes
    variant: Variant
    tools: Toolchain
    environment: Mapping[str, str]

    def scan(self, sources: Sequence[Source], jobs: int) -> tuple[ScannedSource, ...]:
        """List the inputs of each source. Raises InputError for those that the compiler cannot read."""
        known = self._known()
        keys = {source: self._key(source) for source in sources}
        stale = [source for source, key in keys.items() if not self._holds(known.get(key))]
        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            answers = dict(zip(stale, pool.map(self._ask_compiler, stale), strict=True))
        failures = [answer for answer in answers.values() if isinstance(answer, Failure)]
        if failures:
            raise explain_failures(failures)
        listed = {source: answer for source, answer in answers.items() if not isinstance(answer, Failure)}
        lists = {source: listed.get(source) or known[key] for source, key in keys.items()}
        if stale:
            others = {key: entry for key, entry in known.items() if entry["variant"] != self.variant.tag}
            settled = {keys[source]: entry for source, entry in lists.items() if not entry["unsettled"]}
            write_memory(self.memory, _FORM, others | settled)
        return tuple(self._scanned(source, entry) for source, entry in lists.items())

    def remembered(self, sources: Sequence[Source]) -> frozenset[str] | None:
        """The project's files that these sources read, by the lists of earlier builds; None where one does not hold."""
        known = self._known()
        entries = [known.get(self._key(source)) for source in sources]
        listed = [entry["files"] for entry in entries if entry and self._holds(entry)]
        if len(listed) < len(entries):
            return None
        return frozenset(self._full(path) for files in listed for path in self._own(files))

    def _known(self) -> dict[str, dict[str, Any]]:
        return {key: entry for key, entry in read_memory(self.memory, _FORM).items() if _is_entry(entry)}

    def _key(self, source: Source) -> str:
        words = (source.path, *self._flags(source), self.tools.compiler.fingerprint)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()

    def _flags(self, source: Source) -> tuple[str, ...]:
        return (*self.tools.compile_flags(self.variant), *source.flags, *self.tools.search_path())

    def _holds(self, entry: Mapping[str, Any] | None) -> bool:
        if entry is None:
            return False
        files = all(self._sha256(path) == digest for path, digest in entry["files"].items())
        return files and all(self._folder_stamp(folder) == mtime for folder, mtime in entry["folders"].items())

    def _ask_compiler(self, source: Source) -> dict[str, Any] | Failure:
        """The list for one source; unsettled when it may not hold for the next build.

        That is so when a file or folder changed meanwhile, and when one asks for files that are not in the list.
        """
        started = time.time_ns()
        # A stand-in for the id: whether the macro is there can decide what is included, its value does not.
        words = (*self._flags(source), f"-D{ID_MACRO.decode()}=_id", "-M", source.path)
        done = run((*self.tools.compiler.command, *words), cwd=self.root, env=self.environment)
        if done.status:
            return Failure(source.path, self.variant.tag, done.errors)
        paths = list(dict.fromkeys(parse_make_rule(done.output)))
        if not paths or paths[0] != source.path:
            what = f"the compiler does not list what it reads, with these flags: {' '.join(source.flags)}"
            return Failure(source.path, self.variant.tag, what)
        files = {path: self._sha256(path) for path in paths}
        folders = {folder: self._folder_stamp(folder) for folder in sorted(self._searched(source, paths))}
        there = (folder for folder, mtime in folders.items() if mtime is not None)
        moved = any(changed_since(self._full(path), started) for path in (*paths, *there))
        own = [(self.root / path).read_bytes() for path in self._own(paths)]
        return {
            "variant": self.variant.tag,
            "files": files,
            "folders": folders,
            "reads_id": any(ID_MACRO in text for text in own),
            "unsettled": moved or any(_ASKS_FOR_FILES in text for text in own),
        }

    def _searched(self, source: Source, paths: Sequence[str]) -> set[str]:
        """Folders where a new file could come before one of ``paths``.

        A header found as ``<root>/hk/x.h`` would be found earlier in ``hk`` below another root: every folder named in
        the flags is one, and every folder of an own file, where quoted names are looked for first.
        """
        own = {os.path.dirname(path) or "." for path in self._own(paths)}  # noqa: PTH120 - keeps the spelling
        roots = own | set(search_folders(source.flags))
        known = (*roots, *search_folders(self.tools.search_path()))
        below = {os.path.dirname(os.path.relpath(path, root)) for path in paths for root in _above(path, known)}  # noqa: PTH120
        return {os.path.normpath(os.path.join(root, folder)) for root in roots for folder in below}  # noqa: PTH118

    def _own(self, paths: Iterable[str]) -> Iterator[str]:
        """Files of the project: neither the system's nor an SDK's."""
        foreign = (_SYSTEM, *(str(folder) for folder in self.tools.sdk_folders()))
        return (path for path in paths if not path.startswith(foreign))

    def _scanned(self, source: Source, entry: Mapping[str, Any]) -> ScannedSource:
        named = ((self.tools.portable(os.path.normpath(path)), digest) for path, digest in entry["files"].items())
        return ScannedSource(source, tuple((name, str(digest)) for name, digest in named), entry["reads_id"])

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - thousands a build

    def _sha256(self, path: str) -> str | None:
        return self.hashes.sha256(self._full(path))

    def _folder_stamp(self, folder: str) -> int | None:
        """Changes when a file appears in the folder; None where there is no folder yet."""
        try:
            return (self.root / folder).stat().st_mtime_ns
        except (OSError, ValueError):
            return None


def _is_entry(entry: object) -> bool:
    kinds = {"variant": str, "files": dict, "folders": dict, "reads_id": bool, "unsettled": bool}
    return (
        isinstance(entry, dict)
        and bool(entry.get("files"))
        and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
    )


def _above(path: str, roots: Iterable[str]) -> Iterator[str]:
    return (root for root in roots if (root == "." and not path.startswith(("/", ".."))) or path.startswith(f"{root}/"))


def search_folders(flags: Sequence[str]) -> Iterator[str]:
    """The folders that flags name for headers, in either spelling: ``-Ia``, ``-isystem b``."""
    words = iter(flags)
    for word in words:
        found = _SEARCH_FLAG.fullmatch(word)
        if found and (folder := found[1] or next(words, "")):
            yield folder


def parse_make_rule(text: str) -> list[str]:
    """The prerequisites of one rule of ``-M``: spaces and hashes are escaped, dollars doubled, lines continued."""
    _, _, rest = text.replace("\\\n", " ").partition(": ")
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rest)]
