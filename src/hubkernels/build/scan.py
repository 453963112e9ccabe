"""What every source really reads: the compiler's own list of headers, by content, kept in the store.

The id of an artifact is the hash of all its inputs, and the binding is compiled with that id; so the inputs must be
known before the first object exists. The compiler lists them (``-M``); a list holds, in any checkout, until a file in
it changes or one appears that would be read in its stead, or that a file asks for (``__has_include``). Where what is
asked for cannot be told from the texts, a list holds for one build, and the preprocessed text is an input.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubkernels.build.asks import asked, code
from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.includes import Headers, Includes, keep, recall
from hubkernels.build.names import named_in
from hubkernels.build.once import depends_on_times
from hubkernels.build.search import PRECOMPILED, Around, Search, is_absent, search_folders
from hubkernels.build.sources import Source
from hubkernels.build.unseen import unseen
from hubkernels.host.cpu import cpu_identity
from hubkernels.host.files import FileHashes, came_since, changed_since, inode_of, read_errors, read_regular
from hubkernels.host.process import run
from hubkernels.host.store import Store
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain

ID_MACRO = b"TORCH_EXTENSION_NAME"
HEADERS = "<headers>"
"""Stands among the inputs of a source for all that the toolchain's folders give it."""

CPU = "<cpu>"
"""Stands among the inputs of a source that is compiled for the processor of this machine."""

TEXT = "<text>"
"""Stands among the inputs of a source for its preprocessed text, where more than the content of files decides it."""

_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")
_WORD = re.compile(r"(?:\\.|[^\\\s])+")


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
        own = {path for found in known for path in (*found.own, *found.named)}
        absent = {path for found in known for path in found.absent}
        folders = {path for path in absent if path.endswith("/")}  # where a file may come to be
        files = own | {path.rstrip("/") for path in folders}
        return Reads(frozenset(map(self._full, files)), frozenset(map(self._full, absent - folders)))

    def _key(self, source: Source) -> str:
        """What decides where the compiler looks, in words that every machine shares."""
        flags = [self.tools.portable(word) for word in self._flags(source)]
        # The compiler leaves out folders of its own that are not there: one that comes to be may hold what comes first.
        system = [self.tools.portable(str(folder)) for folder in self.tools.compiler.system]
        folders = (*search_folders(source.flags), *self._toolchain_folders())
        inodes = [inode_of(self._full(folder)) for folder in folders]
        one = [inodes.index(inode) for inode in inodes]  # the compiler looks once in folders that are one
        words = [source.path, self._sha256(source.path), self.tools.compiler.fingerprint, flags, system, one]
        return _hash(json.dumps(words))

    def _flags(self, source: Source) -> tuple[str, ...]:
        return (*self.tools.compile_flags(self.variant), *source.flags, *self.tools.search_path())

    def _recall(self, source: Source) -> Includes | None:
        return next(filter(self._holds, recall(self.store, self._key(source))), None)

    def _holds(self, found: Includes) -> bool:
        return (
            all(
                (self._sha256(path) or "") == digest
                for files in (found.own, found.named)
                for path, digest in files.items()
            )
            and all(is_absent(self._full(path)) for path in found.absent)
            and self.headers.hold(found.headers)
            and self.headers.lack(found.shadows)
        )

    def _ask_compiler(self, source: Source) -> Includes | Failure:
        """The list for one source, kept unless it may not hold for the next build.

        That is so when a file or a folder of the search changed meanwhile, when the texts do not tell what is asked
        for, and when times of files take part.
        """
        started = time.time_ns()
        try:
            paths = self._listed(source)
            own = [path for path in paths if not self.headers.owns(path)]
            texts = {path: self._text(path) for path in own}
            self._refuse_unseen(source, texts)
            search = Search(self.root, source.flags, self._toolchain_folders())
            roots = search.roots(own)
            near = search.near(roots, search.names(paths, roots))
            _refuse_precompiled(near)
            asked_for, clear = self._asked_for(source, search, roots, paths, own)
            codes = {path: code(text) for path, text in texts.items()}
            names = {(name, path) for path, text in codes.items() for name in named_in(text) if _is_name(name)}
            named_at = search.named(names, every=any(b"include_next" in text for text in codes.values()))
            named = sorted(path for path in named_at.there.difference(own) if not self.headers.owns(path))
            clear = clear and not depends_on_times(codes, named, self.root, self._sha256)
            text = "" if clear else self._preprocessed(source)
        except _RefusedError as refusal:
            return Failure(source.path, self.variant.tag, str(refusal))
        around = near | search.far(paths) | asked_for | named_at
        own += sorted(path for path in asked_for.there.difference(own) if not self.headers.owns(path))
        headers = self.headers.listed(path for path in {*paths, *asked_for.there} if self.headers.owns(path))
        shadows = self.headers.listed_absent(path for path in around.absent if self.headers.owns(path))
        found = Includes(
            {path: self._sha256(path) or "" for path in own},
            {path: self._sha256(path) or "" for path in named if path not in own},
            headers.digest,
            tuple(sorted(path for path in around.absent if not self.headers.owns(path))),
            shadows.digest,
            any(ID_MACRO in text for text in texts.values()) or any(ID_MACRO.decode() in flag for flag in source.flags),
            text and _hash(text),
        )
        files = {*map(self._full, (*paths, *asked_for.there, *named))}
        folders = {*map(self._full, around.folders)}
        moved = self.hashes.written(files) or any(changed_since(path, started) for path in files | folders)
        moved = moved or came_since(files | folders, str(self.root.absolute()), started)
        if clear and not moved:
            self.headers.keep(headers, shadows)
            keep(self.store, self._key(source), found)
        return found

    def _listed(self, source: Source) -> list[str]:
        """What the compiler says that it reads, the source first."""
        # A stand-in for the id: whether the macro is there can decide what is included, its value does not.
        words = (*self._flags(source), f"-D{ID_MACRO.decode()}=_id", "-M", source.path)
        done = run((*self.tools.compiler.command, *words), cwd=self.root, env=self.environment)
        if done.status:
            raise _RefusedError(done.errors)
        paths = list(dict.fromkeys(parse_make_rule(done.output)))
        if not paths or os.path.normpath(paths[0]) != os.path.normpath(source.path):
            flags = " ".join(source.flags)
            raise _RefusedError(f"the compiler does not list what it reads, with these flags: {flags}")
        return paths

    def _preprocessed(self, source: Source) -> str:
        """The text that is compiled, in words that every machine shares."""
        words = (*self._flags(source), f"-D{ID_MACRO.decode()}=_id", *self.tools.prefix_maps(), "-E", source.path)
        done = run((*self.tools.compiler.command, *words), cwd=self.root, env=self.environment)
        if done.status:
            raise _RefusedError(done.errors or "the compiler lists what it reads, but does not preprocess it")
        return self.tools.portable(done.output)

    def _refuse_unseen(self, source: Source, texts: Mapping[str, bytes]) -> None:
        whole = (f"{source.path}, preprocessed,", lambda: self._preprocessed(source))
        if why := unseen(texts, source.flags, self.tools.compiler, whole):
            raise _RefusedError(why)

    def _asked_for(
        self, source: Source, search: Search, roots: Iterable[str], paths: Sequence[str], own: Sequence[str]
    ) -> tuple[Around, bool]:
        """What lies where files ask for some, and whether that is all that they ask for."""
        wanted = asked(paths, self._text, self._flags(source), own, self.headers.silent)
        self.headers.silent.update(filter(self.headers.owns, wanted.silent))
        return search.asked(roots, wanted.names, wanted.nearby), wanted.clear

    def _toolchain_folders(self) -> tuple[str, ...]:
        """Where headers outside the project are looked for, in order."""
        return (*search_folders(self.tools.search_path()), *self.tools.compiler.system)

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
        if full.is_char_device():  # /dev/null
            return b""
        with read_errors(full):
            return read_regular(full)

    def _sha256(self, path: str) -> str | None:
        return self.hashes.sha256(self._full(path))


class _RefusedError(Exception):
    """Why a source cannot be scanned, in words."""


def _is_name(name: str) -> bool:
    """Whether a file may be looked for under it in folders."""
    return bool(name) and not name.startswith("/") and "\0" not in name


def _refuse_precompiled(near: Around) -> None:
    folders = (path.removesuffix("/") for path in near.absent if path.endswith("/"))  # of which any file will do
    if made := sorted(path for path in (*near.there, *folders) if path.endswith(PRECOMPILED)):
        why = "the compiler would read it in the header's stead, and does not list it; delete it"
        raise _RefusedError(f"{made[0]} is a precompiled header: {why}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parse_make_rule(text: str) -> list[str]:
    """The prerequisites of one rule of ``-M``: spaces and hashes are escaped, dollars doubled, lines continued."""
    _, _, rest = text.replace("\\\n", " ").partition(": ")
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in _WORD.findall(rest)]
