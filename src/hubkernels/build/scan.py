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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hubkernels.build.failure import Failure, explain_failures
from hubkernels.build.includes import Headers, Includes, keep, recall
from hubkernels.build.inquiry import Inquiry, RefusedError
from hubkernels.build.search import is_absent, search_folders
from hubkernels.build.sources import Source
from hubkernels.host.cpu import cpu_identity
from hubkernels.host.files import FileHashes, inode_of
from hubkernels.host.store import Store
from hubkernels.model.variant import Variant
from hubkernels.toolchain.cpu import Toolchain

HEADERS = "<headers>"
"""Stands among the inputs of a source for all that the toolchain's folders give it."""

CPU = "<cpu>"
"""Stands among the inputs of a source that is compiled for the processor of this machine."""

TEXT = "<text>"
"""Stands among the inputs of a source for its preprocessed text, where more than the content of files decides it."""

_NATIVE = re.compile(r"-m(?:arch|cpu|tune)=native")


@dataclass(frozen=True)
class ScannedSource:
    """A source and everything it includes.

    inputs: (name that is the same on every machine, SHA-256), the source first, then the files of the project that it
    includes or asks for, then HEADERS, and CPU and TEXT where they count.
    reads_id: whether the op id takes part in compiling it. reads_torch: whether torch's headers or macros do.
    """

    source: Source
    inputs: tuple[tuple[str, str], ...]
    reads_id: bool
    reads_torch: bool = True


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
    """Scans sources of one variant. root: the package's folder. store: keeps the lists between builds.

    absent: paths where nothing is, as was seen before: nearly all that one source looks for, others do, too.
    """

    root: Path
    store: Store
    hashes: FileHashes
    headers: Headers
    variant: Variant
    tools: Toolchain
    environment: Mapping[str, str]
    absent: set[str] = field(default_factory=set)

    def scan(self, sources: Sequence[Source], jobs: int) -> tuple[ScannedSource, ...]:
        """List the inputs of each source. Raises InputError for those that the compiler cannot read."""
        lists = dict(zip(sources, self._recall(sources), strict=True))
        if stale := [source for source, found in lists.items() if found is None]:
            lists |= self._ask_for_all(stale, jobs)
        return tuple(self._scanned(source, found) for source, found in lists.items() if found)

    def _ask_for_all(self, sources: Sequence[Source], jobs: int) -> dict[Source, Includes]:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - costs a no-change build 10 ms

        with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
            answers = dict(zip(sources, pool.map(self._ask, sources), strict=True))
        failures = [answer for answer in answers.values() if isinstance(answer, Failure)]
        if failures:
            raise explain_failures(failures)
        return {source: answer for source, answer in answers.items() if not isinstance(answer, Failure)}

    def remembered(self, sources: Sequence[Source]) -> Reads | None:
        """What these sources read by the lists of earlier builds; None where one does not hold. Asks no compiler."""
        lists = list(self._recall(sources))
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
        own = self.tools.device.system if source.of_device else ()
        system = [self.tools.portable(str(folder)) for folder in (*self.tools.compiler.system, *own)]
        folders = (*search_folders(source.flags), *self._toolchain_folders(source))
        inodes = [inode_of(self._full(folder)) for folder in folders]
        one = [inodes.index(inode) for inode in inodes]  # the compiler looks once in folders that are one
        cuda = [self.tools.cuda.fingerprint] if self.tools.cuda and source.of_device else []
        words = [source.path, self._sha256(source.path), self.tools.compiler.fingerprint, flags, system, one, *cuda]
        return _hash(json.dumps(words))

    def _flags(self, source: Source) -> tuple[str, ...]:
        if source.of_device:
            flags = (*self.tools.device_flags(self.variant, torch=True), *self.tools.device.archs(source.archs))
            return (*flags, *source.flags, *self.tools.device_search_path())
        return (*self.tools.compile_flags(self.variant), *source.flags, *self.tools.search_path())

    def _recall(self, sources: Sequence[Source]) -> Iterator[Includes | None]:
        for source in sources:
            kept = recall(self.store, self._key(source))
            yield next((found for found in kept if self._holds(found)), None)

    def _holds(self, found: Includes) -> bool:
        held = (
            all(
                (self._sha256(path) or "") == digest
                for files in (found.own, found.named)
                for path, digest in files.items()
            )
            and all(is_absent(self._full(path)) for path in set(found.absent) - self.absent)
            and self.headers.hold(found.headers)
            and self.headers.lack(found.shadows)
        )
        if held:
            self.absent.update(found.absent)
        return held

    def _ask(self, source: Source) -> Includes | Failure:
        inquiry = Inquiry(
            source,
            self.root,
            self._flags(source),
            self._toolchain_folders(source),
            self.tools,
            self.environment,
            self.headers,
        )
        try:
            answer = inquiry.answer()
        except RefusedError as refusal:
            return Failure("compile", source.path, self.variant.tag, str(refusal))
        if answer.holds:
            self.headers.keep(*answer.lists)
            keep(self.store, self._key(source), answer.found)
        return answer.found

    def _toolchain_folders(self, source: Source) -> tuple[str, ...]:
        """Where headers outside the project are looked for, in order."""
        named, system = tuple(search_folders(self.tools.search_path())), self.tools.compiler.system
        if not source.of_device or self.tools.cuda is None:
            return (*named, *system)
        return self.tools.device.folders(named, system, self.tools.cuda.include)

    def _scanned(self, source: Source, found: Includes) -> ScannedSource:
        own = ((self.tools.portable(path), digest) for path, digest in found.own.items())
        native = [(CPU, _hash(cpu_identity()))] if any(map(_NATIVE.fullmatch, source.flags)) else []
        text = [(TEXT, found.text)] if found.text else []
        return ScannedSource(
            source, (*own, (HEADERS, found.headers), *native, *text), found.reads_id, found.reads_torch
        )

    def _full(self, path: str) -> str:
        return os.path.join(self.root, path)  # noqa: PTH118 - thousands a build

    def _sha256(self, path: str) -> str | None:
        return self.hashes.sha256(self._full(path))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
