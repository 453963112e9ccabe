"""What a commit holds, proved: the commit by its id, its trees by theirs, and each file by what they say of it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.host.files import open_regular
from hubkernels.model.digest import is_bytecode
from hubkernels.runtime.gitpack import Object

BUILD = "build"
_FILES_MOST = 10_000
_DEPTH_MOST = 32
_POINTER_MOST = 1024
_PIECE = 1 << 20
_OID = 20
_FOLDER = b"40000"
_FILES = frozenset({b"100644", b"100755", b"100664"})
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ [^\n]*\n)*?"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n(?:[a-z0-9.-]+ [^\n]*\n)*"
)
_TREE = re.compile(rb"tree ([0-9a-f]{40})\n")
_SHORT_NAME = re.compile(r"git~[0-9]+", re.IGNORECASE)


@dataclass(frozen=True)
class File:
    """A file of a variant. path: from the variant's folder. oid: of its blob in git.

    sha256, size: of a large file, whose blob is a pointer alone; a size may be told of others, too.
    """

    path: str
    oid: str | None
    sha256: str | None = None
    size: int | None = None

    @property
    def blob(self) -> str | None:
        """Its name among the blobs of the client's cache."""
        return self.sha256 or self.oid


@dataclass(frozen=True)
class Hashes:
    """What a file's bytes are."""

    size: int
    sha256: str
    oid: str

    def are_of(self, file: File) -> bool:
        if file.sha256 is not None:
            return self.sha256 == file.sha256 and file.size in {None, self.size}
        return file.oid in {None, self.oid}


def hash_path(path: Path) -> Hashes:
    """Raises OSError, for what is no regular file, too."""
    sha256 = hashlib.sha256()
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        sha1 = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        while piece := file.read(_PIECE):
            sha256.update(piece)
            sha1.update(piece)
    return Hashes(size, sha256.hexdigest(), sha1.hexdigest())


class Revision(Protocol):
    """What a commit holds, as far as somebody told: the variants, the files of one, and those that are here already."""

    @property
    def commit(self) -> str: ...

    def variants(self) -> tuple[str, ...]: ...

    def files(self, variant: str) -> tuple[File, ...]: ...

    def content(self, file: File) -> bytes | None: ...


@dataclass(frozen=True)
class Told:
    """A commit as a Hub lists it: files by their paths in the repository."""

    commit: str
    listed: Mapping[str, File]

    def variants(self) -> tuple[str, ...]:
        parts = (path.split("/") for path in self.listed)
        return tuple(sorted({part[1] for part in parts if len(part) > 2 and part[0] == BUILD}))  # noqa: PLR2004 - build/<variant>/<file>

    def files(self, variant: str) -> tuple[File, ...]:
        top = f"{BUILD}/{variant}/"
        found = ((path.removeprefix(top), file) for path, file in self.listed.items() if path.startswith(top))
        return tuple(
            File(check_path(path, variant), file.oid, file.sha256, file.size)
            for path, file in found
            if not is_bytecode(PurePosixPath(path))
        )

    def content(self, file: File) -> None:
        """Nothing came along."""


class Proven:
    """A commit whose objects are here, each found by the hash of its bytes. Raises CheckFailedError for what is not."""

    def __init__(self, commit: str, objects: Mapping[str, Object]) -> None:
        self.commit = commit
        self._objects = objects

    def variants(self) -> tuple[str, ...]:
        entries = self._build()
        return tuple(sorted(name for name, (mode, _) in entries.items() if mode == _FOLDER))

    def files(self, variant: str) -> tuple[File, ...]:
        """Of the variant, without bytecode. Raises CheckFailedError for a name or a kind that no kernel may have."""
        oid = self._build()[variant][1]
        return tuple(map(self._file, _counted(self._walk(variant, oid, "", _DEPTH_MOST), variant)))

    def content(self, file: File) -> bytes | None:
        """The bytes of a file that came along; of a large one only the pointer did."""
        found = self._objects.get(file.oid or "")
        return found.content if found and file.sha256 is None else None

    def evidence(self) -> dict[str, Object]:
        """The objects by which what is in the cache is proved again: all but the files' contents."""
        commit = self._get(self.commit, "commit")
        kept = {self.commit: commit}
        trees = [self._root()]
        while trees:
            oid = trees.pop()
            found = self._objects.get(oid)
            if found is None or oid in kept:
                continue
            if found.kind == "tree":
                kept[oid] = found
                trees += [entry for _, _, entry in _entries(found.content)]
            elif _pointer(found):
                kept[oid] = found
        return kept

    def _root(self) -> str:
        match = _TREE.match(self._get(self.commit, "commit").content)
        if match is None:
            raise wrong(f"the commit {self.commit} names no tree")
        return match[1].decode()

    def _build(self) -> dict[str, tuple[bytes, str]]:
        """What is in the folder of builds; nothing where there is none."""
        mode, oid = self._tree(self._root()).get(BUILD, (b"", ""))
        return self._tree(oid) if mode == _FOLDER else {}

    def _get(self, oid: str, kind: str) -> Object:
        found = self._objects.get(oid)
        if found is None or found.kind != kind:
            raise wrong(f"the Hub's answer lacks the {kind} {oid} of the commit {self.commit}")
        return found

    def _tree(self, oid: str) -> dict[str, tuple[bytes, str]]:
        entries: dict[str, tuple[bytes, str]] = {}
        for mode, name, target in _entries(self._get(oid, "tree").content):
            if name in entries:
                raise wrong(f"the tree {oid} has two files of one name: {name!r}")
            entries[name] = (mode, target)
        return entries

    def _walk(self, variant: str, oid: str, prefix: str, depth: int) -> Iterator[tuple[str, str] | None]:
        """Path and blob of each file; None for a folder and for bytecode, so that those count, too."""
        if not depth:
            raise wrong(f"the folders of variant {variant} are more than {_DEPTH_MOST} deep")
        for name, (mode, target) in self._tree(oid).items():
            path = prefix + check_path(name.replace("/", "\\"), variant)  # git's own names have no slash
            if mode == _FOLDER:
                yield None
                yield from self._walk(variant, target, f"{path}/", depth - 1)
            elif mode not in _FILES:
                raise wrong(f"variant {variant} has what is no file: {path!r}, of git's mode {mode!r}")
            else:
                yield None if is_bytecode(PurePosixPath(path)) else (path, target)

    def _file(self, found: tuple[str, str]) -> File:
        path, oid = found
        blob = self._objects.get(oid)
        pointer = _pointer(blob) if blob else None
        return File(path, oid, *pointer) if pointer else File(path, oid)


def _pointer(found: Object) -> tuple[str, int] | None:
    """SHA-256 and size of the large file that a blob stands for."""
    if found.kind != "blob" or len(found.content) > _POINTER_MOST:
        return None
    match = _POINTER.fullmatch(found.content)
    return (match[1].decode(), int(match[2])) if match else None


def _counted(found: Iterable[tuple[str, str] | None], variant: str) -> Iterator[tuple[str, str]]:
    for number, each in enumerate(found):
        if number >= _FILES_MOST:
            raise wrong(f"variant {variant} has more than {_FILES_MOST} files and folders")
        if each is not None:
            yield each


def _entries(tree: bytes) -> Iterator[tuple[bytes, str, str]]:
    """Mode, name and id of each entry of a tree. Raises CheckFailedError."""
    place = 0
    while place < len(tree):
        end = tree.find(b"\0", place)
        mode, space, name = tree[place:end].partition(b" ")
        if end < 0 or not space or end + 1 + _OID > len(tree):
            raise wrong("a tree of the commit is malformed")
        place = end + 1 + _OID
        yield mode.lstrip(b"0"), name.decode("utf-8", "surrogateescape"), tree[end + 1 : place].hex()


def check_path(path: str, variant: str) -> str:
    """A path below a variant, which somebody else wrote. Raises CheckFailedError for one that leads elsewhere."""
    for part in path.split("/"):
        if not part.isprintable() or part in {"", ".", ".."} or set(part) & set('\\:*?"<>|') or _is_gits(part):
            raise wrong(f"variant {variant} has a file that no kernel may have: {path[:200]!r}")
    return path


def _is_gits(part: str) -> bool:
    return part.rstrip(". ").lower() == ".git" or _SHORT_NAME.fullmatch(part) is not None


def wrong(what: str) -> CheckFailedError:
    hint = "nothing of it was loaded; whoever runs the Hub, or what stands before it, changed the kernel"
    return CheckFailedError(Problem(what, hint=hint))
