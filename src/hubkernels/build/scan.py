"""What every source really reads: the compiler's own list of headers, by content, kept in the store.

The id of an artifact is the hash of all its inputs, and the binding is compiled with that id; so the inputs must be
known before the first object exists. The compiler lists them (``-M``); a list holds, in any checkout, until a file in
it changes or one appears that would be read in its stead, or that a file asks for (``__has_include``). Where what is
asked for cannot be told from the texts, a list holds for one build, and the preprocessed text is an input.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from hubkernels.build.asks import asked, code, literals_joined
from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.includes import Headers, Includes, keep, missing_instead, recall
from hubkernels.build.names import named_in
from hubkernels.build.sources import Source
from hubkernels.host.cpu import cpu_identity
from hubkernels.host.files import FileHashes, changed_since, follow, read_errors
from hubkernels.host.process import run
from hubkernels.host.store import Store
from hubkernels.model.variant import Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.cpu import Toolchain

ID_MACRO = b"TORCH_EXTENSION_NAME"
HEADERS = "<headers>"
"""Stands among the inputs of a source for all that the toolchain's folders give it."""

CPU = "<cpu>"
"""Stands among the inputs of a source that is compiled for the processor of this machine."""

TEXT = "<text>"
"""Stands among the inputs of a source for its preprocessed text, where more than the content of files decides it."""

_READS_UNSEEN = re.compile(rb"\.(incbin|include)(?:\s|\\t)*\\*\"")
"""Directives of the assembler, with the quote that follows: a comment may speak of them."""
_ONCE = re.compile(rb"pragma\s+once|#\s*import|_Pragma")
_ASM = re.compile(rb"\b_*asm_*\b")
_STAMP = re.compile(rb"\b__TIMESTAMP__\b")
_CLOCK = re.compile(rb"\b__(?:TIMESTAMP|DATE|TIME)__\b")
_HEEDS_EPOCH = Version((16,))
"""The first clang that holds the day and the time fixed, as g++ does."""

_NOT_PREPROCESSED = "the compiler lists what it reads, but does not preprocess it"
_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_WORD = re.compile(r"(?:\\.|[^\\\s])+")
SEARCH_FLAGS = ("-I", "-isystem", "-iquote", "-idirafter")
_SEARCH_FLAG = re.compile(rf"(?:{'|'.join(SEARCH_FLAGS)})(.*)", re.DOTALL)


@dataclass(frozen=True)
class ScannedSource:
    """A source and everything it includes.

    inputs: (name that is the same on every machine, SHA-256), the source first, then the files of the project that it
    includes or asks for, then HEADERS, and CPU and TEXT where they count.
    reads_id: whether the op id takes part in compiling it.
    """

    source: Source
    inputs: tuple[tuple[str, str], ...]
    reads_id: bool


@dataclass(frozen=True)
class Reads:
    """Full paths of files that are read, and of what would be in their stead if it were there."""

    files: frozenset[str]
    absent: frozenset[str]


def merged(parts: Sequence[Reads | None]) -> Reads | None:
    """What several variants read together; None where it is not known of each, or there is none."""
    known = [part for part in parts if part]
    if not known or len(known) < len(parts):
        return None
    none = frozenset[str]()
    return Reads(none.union(*(part.files for part in known)), none.union(*(part.absent for part in known)))


@dataclass(frozen=True)
class Scanner:
    """Scans sources of one variant. root: the package's folder. store: keeps the lists between builds."""

    root: Path
    store: Store
    hashes: FileHashes
    headers: Headers
    variant: Variant
    tools: Toolchain
    environment: Mapping[str, str]

    def scan(self, sources: Sequence[Source], jobs: int) -> tuple[ScannedSource, ...]:
        """List the inputs of each source. Raises InputError for those that the compiler cannot read."""
        lists = {source: self._recall(source) for source in sources}
        if stale := [source for source, found in lists.items() if found is None]:
            lists |= self._ask_for_all(stale, jobs)
        return tuple(self._scanned(source, found) for source, found in lists.items() if found)

    def _ask_for_all(self, sources: Sequence[Source], jobs: int) -> dict[Source, Includes]:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - costs a no-change build 10 ms

        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            answers = dict(zip(sources, pool.map(self._ask_compiler, sources), strict=True))
        failures = [answer for answer in answers.values() if isinstance(answer, Failure)]
        if failures:
            raise explain_failures(failures)
        return {source: answer for source, answer in answers.items() if not isinstance(answer, Failure)}

    def remembered(self, sources: Sequence[Source]) -> Reads | None:
        """What these sources read by the lists of earlier builds; None where one does not hold. Asks no compiler."""
        lists = [self._recall(source) for source in sources]
        known = [found for found in lists if found]
        if len(known) < len(lists):
            return None
        return Reads(
            frozenset(self._full(path) for found in known for path in found.own),
            frozenset(self._full(path) for found in known for path in found.absent),
        )

    def _key(self, source: Source) -> str:
        """What decides where the compiler looks, in words that every machine shares."""
        flags = [self.tools.portable(word) for word in self._flags(source)]
        # The compiler leaves out folders of its own that are not there: one that comes to be may hold what comes first.
        system = [self.tools.portable(str(folder)) for folder in self.tools.compiler.system]
        words = [source.path, self._sha256(source.path), self.tools.compiler.fingerprint, flags, system]
        return _hash(json.dumps(words))

    def _flags(self, source: Source) -> tuple[str, ...]:
        return (*self.tools.compile_flags(self.variant), *source.flags, *self.tools.search_path())

    def _recall(self, source: Source) -> Includes | None:
        return next(filter(self._holds, recall(self.store, self._key(source))), None)

    def _holds(self, found: Includes) -> bool:
        return (
            all(self._sha256(path) == digest for path, digest in found.own.items())
            and not any(os.path.exists(self._full(path)) for path in found.absent)  # noqa: PTH110 - hundreds a source
            and self.headers.hold(found.headers)
            and self.headers.lack(found.shadows)
        )

    def _ask_compiler(self, source: Source) -> Includes | Failure:
        """The list for one source, kept unless it may not hold for the next build.

        That is so when a file changed meanwhile, and when what is asked for is not told by the texts.
        """
        started = time.time_ns()
        # A stand-in for the id: whether the macro is there can decide what is included, its value does not.
        words = (*self._flags(source), f"-D{ID_MACRO.decode()}=_id", "-M", source.path)
        done = run((*self.tools.compiler.command, *words), cwd=self.root, env=self.environment)
        if done.status:
            return Failure(source.path, self.variant.tag, done.errors)
        paths = list(dict.fromkeys(parse_make_rule(done.output)))
        if not paths or os.path.normpath(paths[0]) != os.path.normpath(source.path):
            what = f"the compiler does not list what it reads, with these flags: {' '.join(source.flags)}"
            return Failure(source.path, self.variant.tag, what)
        own = [path for path in paths if not self.headers.owns(path)]
        texts = {path: self._text(path) for path in paths}
        mine = {path: texts[path] for path in own}
        if unseen := self._unseen(source, mine):
            return Failure(source.path, self.variant.tag, unseen)
        twins = set(self._twins(source, mine))
        roots, names = self._searched(source, own, paths)
        if compiled := next((p for p in _precompiled(roots, names) if os.path.exists(self._full(p))), None):  # noqa: PTH110
            why = "the compiler would read it in the header's stead, and does not list it; delete it"
            return Failure(source.path, self.variant.tag, f"{compiled} is a precompiled header: {why}")
        absent, blocked = missing_instead(self.root, roots, {*names, *_precompiled([""], names)})
        shadows, also_blocked = self._shadows(source, paths)
        there, not_there, clear = self._asked(source, roots, texts)
        text = "" if clear else self._preprocessed(source)
        if text is None:
            return Failure(source.path, self.variant.tag, _NOT_PREPROCESSED)
        known = {os.path.normpath(path) for path in own}
        own += sorted(p for p in there if not self.headers.owns(p) and os.path.normpath(p) not in known)
        found = Includes(
            {path: self._sha256(path) or "" for path in (*own, *sorted(twins.difference(own)))},
            self.headers.note(path for path in {*paths, *there} if self.headers.owns(path)),
            tuple(sorted(absent | {path for path in not_there if not self.headers.owns(path)})),
            self.headers.note_absent(shadows | {path for path in not_there if self.headers.owns(path)}),
            any(ID_MACRO in text for text in mine.values()) or any(ID_MACRO.decode() in flag for flag in source.flags),
            text and _hash(text),
        )
        moved = any(changed_since(self._full(path), started) for path in {*paths, *there, *twins})
        if clear and not (moved or blocked or also_blocked):
            keep(self.store, self._key(source), found)
        return found

    def _twins(self, source: Source, own: Mapping[str, bytes]) -> Iterator[str]:
        """Files that are named, and passed over for one of ``own`` that is as they are: so goes ``#pragma once``.

        g++ goes by content and time, so that two files count as one until one of them changes, or a link to it.
        """
        once = {self._sha256(path) for path, text in own.items() if _ONCE.search(text)}
        if not once:
            return
        known: dict[str, tuple[str, ...]] = {}
        listed = {place for path in own for place in follow(self._full(path), known)}
        folders = tuple(search_folders(source.flags))
        for path, text in own.items():
            around = (os.path.dirname(path), *folders)  # noqa: PTH120 - keeps the spelling
            for name, places in product(filter(None, named_in(text)), (around, folders)):
                twin = next(filter(self._is_file, (os.path.join(place, name) for place in places)), None)  # noqa: PTH118
                if twin and self._sha256(twin) in once and not listed.issuperset(follow(self._full(twin), known)):
                    yield twin

    def _is_file(self, path: str) -> bool:
        return os.path.isfile(self._full(path))  # noqa: PTH113 - hundreds a source

    def _unseen(self, source: Source, texts: Mapping[str, bytes]) -> str | None:
        """What makes other bytes of a source when no file that the compiler lists has changed, if anything does."""
        compiler = self.tools.compiler
        times = _CLOCK if compiler.family == "clang" and compiler.version < _HEEDS_EPOCH else _STAMP
        codes = {path: code(text) for path, text in texts.items()}
        codes["a flag"] = " ".join(source.flags).encode(errors="surrogateescape")
        for path, text in codes.items():
            if time_of := times.search(text):
                word = time_of[0].decode()
                return f"{path} has {word}: what is built would not be the same at another time; leave it out"
        read = {path: literals_joined(text) for path, text in codes.items()}
        if any(_ASM.search(text) for text in codes.values()):  # its strings can be made by macros
            whole = self._preprocessed(source)
            if whole is None:
                return _NOT_PREPROCESSED
            read[source.path + ", preprocessed,"] = literals_joined(whole.encode(errors="surrogateescape"))
        for path, text in read.items():
            if unseen := _READS_UNSEEN.search(text):
                why = "no compiler lists what that reads, and changes of it would go unseen"
                return f"{path} has .{unseen[1].decode()}: {why}"
        return None

    def _preprocessed(self, source: Source) -> str | None:
        """The text that is compiled, in words that every machine shares; None where there is none."""
        words = (*self._flags(source), f"-D{ID_MACRO.decode()}=_id", *self.tools.prefix_maps(), "-E", "-P", source.path)
        done = run((*self.tools.compiler.command, *words), cwd=self.root, env=self.environment)
        return None if done.status else self.tools.portable(done.output)

    def _asked(
        self, source: Source, roots: Iterable[str], texts: Mapping[str, bytes]
    ) -> tuple[set[str], set[str], bool]:
        """Paths that files ask for: those that are there, and those that are not; and whether these are all.

        Each folder of the search counts, the last too: which of them answers depends on who asks.
        """
        wanted = asked(texts, self._flags(source))
        folders = (*roots, *self._toolchain_folders())
        places = {*itertools.product(folders, wanted.names)}
        places |= {(os.path.dirname(path) or ".", name) for name, path in wanted.nearby}  # noqa: PTH120 - as it is spelled
        there: set[str] = set()
        absent: set[str] = set()
        blocked = False
        for folder, name in places:
            missing, taken = missing_instead(self.root, (folder,), (name,))
            absent |= missing
            blocked |= taken
            path = name if folder == "." else f"{folder}/{name}"
            if not missing and not taken:
                there.add(path)
        return there, absent, wanted.clear and not blocked

    def _searched(self, source: Source, own: Sequence[str], paths: Sequence[str]) -> tuple[set[str], set[str]]:
        """Folders where a new file could come before one of ``paths``, and the names it could have there.

        A header found as ``<root>/hk/x.h`` would be found earlier in ``hk`` below another root: every folder named in
        the flags is one, and every folder of an own file, where quoted names are looked for first.
        """
        roots = {os.path.dirname(path) or "." for path in own} | set(search_folders(source.flags))  # noqa: PTH120 - keeps the spelling
        if any(flag.startswith(("-include", "-imacros")) for flag in source.flags):
            roots.add(".")  # where the compiler runs: it looks there first for what flags include
        known = self._spellings((*roots, *self._toolchain_folders()))
        return roots, {os.path.relpath(path, root) for path in paths for root in _above(path, known)}

    def _toolchain_folders(self) -> tuple[str, ...]:
        """Where headers outside the project are looked for, in order."""
        return (*search_folders(self.tools.search_path()), *self.tools.compiler.system)

    def _spellings(self, folders: Iterable[str]) -> dict[str, None]:
        """Folders, and where links lead: g++ tells a header of the system by either, whichever is shorter."""
        return dict.fromkeys(each for folder in folders for each in (folder, os.path.realpath(self._full(folder))))

    def _shadows(self, source: Source, paths: Sequence[str]) -> tuple[set[str], bool]:
        """What would come first in a folder of the toolchain if it were there, as `missing_instead` tells it.

        What is found below a folder that flags name may have been looked for in all of them: flags can put it last.
        """
        folders = self._toolchain_folders()
        given = {folder: len(folders) for folder in self._spellings(search_folders(source.flags))}
        places = given | {
            spelling: place for place, folder in enumerate(folders) for spelling in self._spellings([folder])
        }
        names: dict[str, int] = {}
        for path in paths:
            for root in _above(path, places):
                name = os.path.relpath(path, root)
                names[name] = max(names.get(name, 0), places[root])
        absent: set[str] = set()
        blocked = False
        for place, folder in enumerate(folders):
            later = [name for name, found in names.items() if found > place]
            missing, taken = missing_instead(self.root, (folder,), later)
            absent |= missing
            blocked |= taken
        return absent, blocked

    def _scanned(self, source: Source, found: Includes) -> ScannedSource:
        own = ((self.tools.portable(path), digest) for path, digest in found.own.items())
        native = [(CPU, _hash(cpu_identity()))] if any(map(_NATIVE.fullmatch, source.flags)) else []
        text = [(TEXT, found.text)] if found.text else []
        return ScannedSource(source, (*own, (HEADERS, found.headers), *native, *text), found.reads_id)

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - thousands a build

    def _text(self, path: str) -> bytes:
        """Raises EnvironmentLacksError for a file that went since it was listed, or whose name is no text."""
        full = Path(self._full(path))
        with read_errors(full):
            return full.read_bytes()

    def _sha256(self, path: str) -> str | None:
        return self.hashes.sha256(self._full(path))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _precompiled(roots: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    return (os.path.join(root, f"{name}{end}") for root in roots for name in names for end in (".gch", ".pch"))  # noqa: PTH118 - thousands a source


def _above(path: str, roots: Iterable[str]) -> Iterator[str]:
    return (root for root in roots if (root == "." and not path.startswith(("/", ".."))) or path.startswith(f"{root}/"))


def search_folders(flags: Sequence[str]) -> Iterator[str]:
    """The folders that flags name for headers, in either spelling: ``-Ia``, ``-isystem b``."""
    words = iter(flags)
    for word in words:
        found = _SEARCH_FLAG.fullmatch(word)
        if found and (folder := found[1] or next(words, "")):
            yield folder.rstrip("/") or "/"


def parse_make_rule(text: str) -> list[str]:
    """The prerequisites of one rule of ``-M``: spaces and hashes are escaped, dollars doubled, lines continued."""
    _, _, rest = text.replace("\\\n", " ").partition(": ")
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rest)]
