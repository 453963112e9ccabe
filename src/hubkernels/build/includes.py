"""What sources include, kept in the store: by content and in names that every machine shares, so lists hold anywhere.

A list has two parts. The project's own files stand in it one by one. Those of the toolchain, thousands for a source
that includes all of torch, are an entry of their own that many lists share, checked line by line and each line once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hubkernels.build.search import is_absent
from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import FileHashes
from hubkernels.host.store import Store
from hubkernels.toolchain.cpu import Toolchain

_FORM = 6  # of lists and headers; other forms have other names in the store
_CANDIDATES = 8
"""Lists kept of one source: its headers differ between branches, and between releases of torch."""


@dataclass(frozen=True)
class Includes:
    """What one source reads.

    own: path as the compiler spells it, and SHA-256; the source first. named: in the same way, files that these name
    and that were not read, as they may be when they change. headers: hash of the list of all others. What is there and
    only asked for is among them.
    absent: what is not there (`search.is_absent`), and would be read instead of one of these if it were, or is asked
    for. shadows: hash of the list of such paths in the toolchain's folders.
    reads_id: whether the op id takes part in compiling the source.
    reads_torch: whether headers of torch do, or a macro that they are told by.
    text: hash of the preprocessed source where files alone do not decide it; such a list is not kept.
    """

    own: Mapping[str, str]
    named: Mapping[str, str]
    headers: str
    absent: tuple[str, ...]
    shadows: str
    reads_id: bool
    reads_torch: bool = True
    text: str = ""


@dataclass(frozen=True)
class Listing:
    """A list to be kept under its hash. name: that of the entry."""

    name: str
    digest: str
    content: bytes

    @classmethod
    def of(cls, kind: str, lines: Iterable[bytes]) -> Listing:
        """Lines in order, each once."""
        content = b"\n".join(sorted(set(lines)))
        digest = hashlib.sha256(content).hexdigest()
        return cls(_name_of(kind, digest), digest, content)


class Headers:
    """Lists of the toolchain's headers. What was looked at counts until the next one of these is made."""

    def __init__(self, store: Store, hashes: FileHashes, tools: Toolchain) -> None:
        self.store = store
        self.hashes = hashes
        self._places = [(str(folder), tools.portable(str(folder))) for folder in tools.sdk_folders()]
        self._standing: set[bytes] = set()
        self._found: dict[str, bool] = {}
        self._absent: set[bytes] = set()
        self._lacking: dict[str, bool] = {}
        self.silent: set[str] = set()
        """Headers, looked through, that ask for no file."""

    def owns(self, path: str) -> bool:
        """Whether a file is the toolchain's: of an SDK or of the system."""
        return path.startswith("/usr/") or any(path.startswith(f"{folder}/") for folder, _ in self._places)

    def listed(self, paths: Iterable[str]) -> Listing:
        """A list of headers as they are now."""
        return Listing.of("headers", map(self._line, paths))

    def listed_absent(self, paths: Iterable[str]) -> Listing:
        """A list of paths where nothing is."""
        return Listing.of("absent", (os.fsencode(self._name(path)) for path in paths))

    def keep(self, headers: Listing, absent: Listing) -> None:
        """Keep lists that were just made."""
        for listing in (headers, absent):
            put(self.store, listing.name, listing.content)
        self._standing.update(headers.content.split(b"\n"))
        self._found[headers.digest] = True
        self._lacking[absent.digest] = True

    def hold(self, digest: str) -> bool:
        """Whether every header of a list is as it was."""
        if digest not in self._found:
            self._found[digest] = self._look(digest)
        return self._found[digest]

    def lack(self, digest: str) -> bool:
        """Whether there still is nothing at any path of a list."""
        if digest not in self._lacking:
            content = self.store.get(_name_of("absent", digest))
            fresh = {line for line in (content or b"").split(b"\n") if line} - self._absent
            held = content is not None and all(map(is_absent, map(self._at, map(os.fsdecode, fresh))))
            self._absent |= fresh if held else set()
            self._lacking[digest] = held
        return self._lacking[digest]

    def _look(self, digest: str) -> bool:
        content = self.store.get(_name_of("headers", digest))
        if content is None:
            return False
        fresh = set(content.split(b"\n")) - self._standing if content else set()
        if not all(self._line(self._local(line)) == line for line in fresh):
            return False
        self._standing |= fresh
        return True

    def _line(self, path: str) -> bytes:
        return os.fsencode(f"{self.hashes.sha256(path)} {self._name(path)}")

    def _name(self, path: str) -> str:
        return next((name + path[len(at) :] for at, name in self._places if path.startswith(f"{at}/")), path)

    def _local(self, line: bytes) -> str:
        return self._at(os.fsdecode(line).partition(" ")[2])

    def _at(self, name: str) -> str:
        return next((at + name[len(word) :] for at, word in self._places if name.startswith(f"{word}/")), name)


def _name_of(kind: str, digest: str) -> str:
    return f"{digest[:32]}.{kind}"


def recall(store: Store, key: str) -> list[Includes]:
    """The lists of one source that were kept, newest first."""
    content = store.get(_list_name(key))
    try:
        found = json.loads(content or b"[]")
    except (ValueError, RecursionError):
        return []
    entries = filter(_is_entry, found) if isinstance(found, list) else ()
    return [Includes(**{**entry, "absent": tuple(entry["absent"])}) for entry in entries]


def _is_entry(entry: object) -> bool:
    """Whether it has the form of a list: what is damaged under a right checksum is as none."""
    if not isinstance(entry, dict) or entry.keys() != Includes.__dataclass_fields__.keys():
        return False
    own, named, absent = entry["own"], entry["named"], entry["absent"]
    if not (isinstance(own, dict) and isinstance(named, dict) and isinstance(absent, list)):
        return False
    texts = (*own, *own.values(), *named, *named.values(), *absent)
    hashes = (entry["headers"], entry["shadows"], entry["text"])
    return all(isinstance(text, str) for text in (*texts, *hashes)) and all(
        isinstance(entry[flag], bool) for flag in ("reads_id", "reads_torch")
    )


def keep(store: Store, key: str, newest: Includes) -> None:
    """Keep a list; of two processes that keep one at once, one loses its own and will ask the compiler again."""
    lists = [newest, *(older for older in recall(store, key) if older != newest)]
    put(store, _list_name(key), json.dumps([vars(entry) for entry in lists[:_CANDIDATES]]).encode())


def _list_name(key: str) -> str:
    return f"{hashlib.sha256(f'{_FORM} {key}'.encode()).hexdigest()[:32]}.includes"


def put(store: Store, name: str, content: bytes) -> None:
    """Lists only save time: where the store cannot be written they are not kept."""
    try:
        store.put(name, content)
    except EnvironmentLacksError:
        return
