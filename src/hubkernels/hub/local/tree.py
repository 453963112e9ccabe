"""A repository's folders while a commit changes them: read where it looks, written anew where it changed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from stat import S_ISREG
from typing import NamedTuple

from dulwich.objects import S_ISGITLINK, ObjectID, Tree

from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.objects import DamagedObjectError, ObjectStore, Staging

FILE, FOLDER = 0o100644, 0o040000
MODES = frozenset({FILE, FOLDER, 0o100755, 0o120000, 0o160000})
"""Those that git gives: of files, folders, programs, links and submodules."""


class Entry(NamedTuple):
    """A file or a folder in a commit."""

    path: str
    mode: int
    oid: str

    @property
    def is_folder(self) -> bool:
        return self.mode == FOLDER


def entries(store: ObjectStore, tree: str, prefix: str = "") -> list[Entry]:
    """The files and folders of one folder, sorted by name. A submodule is none: its content is elsewhere."""
    return [entry for entry in all_entries(store, tree, prefix) if not S_ISGITLINK(entry.mode)]


def all_entries(store: ObjectStore, tree: str, prefix: str = "") -> list[Entry]:
    """As `entries`, and the submodules."""
    found = store[tree]
    if not isinstance(found, Tree):
        raise DamagedObjectError(tree, store, "is no folder")
    return [
        Entry(f"{prefix}{item.path.decode('utf-8', 'surrogateescape')}", item.mode, item.sha.decode())
        for item in found.items()
    ]


def walk(store: ObjectStore, tree: str, prefix: str = "") -> Iterator[Entry]:
    """Everything below a folder, each folder before what is in it."""
    for entry in entries(store, tree, prefix):
        yield entry
        if entry.is_folder:
            yield from walk(store, entry.oid, f"{entry.path}/")


def find(store: ObjectStore, tree: str, path: str) -> Entry | None:
    """The entry of a path; of an empty one, the whole tree."""
    found = Entry("", FOLDER, tree)
    for part in path.split("/") if path else ():
        if not found.is_folder:
            return None
        prefix = f"{found.path}/" if found.path else ""
        match = next((entry for entry in entries(store, found.oid, prefix) if entry.path == f"{prefix}{part}"), None)
        if match is None:
            return None
        found = match
    return found


Parts = tuple[str, ...]
"""A path, cut at its slashes."""


def differing(store: ObjectStore, now: str, before: str | None, paths: Sequence[Parts]) -> Iterator[Parts]:
    """Of some paths of a tree, those that are something else, or nothing, in another one. An empty one is the tree.

    Both are read together from their top, each folder once, and none below one that is the same in both.
    """
    if before is None:
        yield from paths
    elif now != before:
        yield from (parts for parts in paths if not parts)
        names = {parts[0] for parts in paths if parts}
        here, there = (_named(store, tree, names) if names else {} for tree in (now, before))
        for name, mine in here.items():
            other = there.get(name)
            then = other.oid if other and other.is_folder == mine.is_folder else None
            below = [parts[1:] for parts in paths if parts and parts[0] == name]
            yield from ((name, *parts) for parts in differing(store, mine.oid, then, below))


def _named(store: ObjectStore, tree: str, names: Container[str]) -> dict[str, Entry]:
    return {entry.path: entry for entry in entries(store, tree) if entry.path in names}


class Folder:
    """A folder that is being changed."""

    def __init__(self, store: ObjectStore, tree: str | None) -> None:
        self._store = store
        self._tree = tree
        self._changed: dict[str, Entry | Folder] | None = None

    def put(self, path: str, oid: str) -> None:
        """Set a file. Raises Refusal where a folder stands, or a file stands where one of its folders would."""
        *above, name = path.split("/")
        folder = self
        for depth, part in enumerate(above, 1):
            folder = folder.enter(part, "/".join(above[:depth]))
        there = folder.items().get(name)
        if isinstance(there, Folder) or (there and there.is_folder):
            raise Refusal(400, f"{path} is a folder and cannot become a file: delete the folder in the same commit")
        mode = there.mode if isinstance(there, Entry) and S_ISREG(there.mode) else FILE
        folder.items()[name] = Entry(name, mode, oid)

    def enter(self, name: str, path: str) -> Folder:
        """A folder in this one, made where there is none."""
        there = self.items().get(name)
        if isinstance(there, Entry) and not there.is_folder:
            raise Refusal(400, f"{path} is a file and cannot become a folder: delete the file in the same commit")
        below = there if isinstance(there, Folder) else Folder(self._store, there.oid if there else None)
        self.items()[name] = below
        return below

    def remove(self, path: str, *, folder: bool) -> None:
        """Delete a file, or a folder with all that is in it. Raises Refusal where none is."""
        *above, name = path.split("/")
        place = self
        for part in above:
            there = place.items().get(part)
            if there is None or (isinstance(there, Entry) and not there.is_folder):
                raise _nothing(path, folder=folder)
            place = place.enter(part, "")
        there = place.items().get(name)
        if there is None or (isinstance(there, Folder) or there.is_folder) != folder:
            raise _nothing(path, folder=folder)
        del place.items()[name]

    def write(self, staging: Staging) -> str | None:
        """The tree's id; None for a folder without a file, which git does not have."""
        if self._changed is None:
            return self._tree
        tree = Tree()
        for name, item in self._changed.items():
            oid = item.write(staging) if isinstance(item, Folder) else item.oid
            if oid:
                mode = FOLDER if isinstance(item, Folder) else item.mode
                tree.add(name.encode("utf-8", "surrogateescape"), mode, ObjectID(oid.encode()))
        return staging.add_object(tree) if len(tree) else None

    def items(self) -> dict[str, Entry | Folder]:
        if self._changed is None:
            found = all_entries(self._store, self._tree) if self._tree else ()
            self._changed = {entry.path: entry for entry in found}
        return self._changed


def _nothing(path: str, *, folder: bool) -> Refusal:
    return Refusal(404, f"there is no {'folder' if folder else 'file'} {path} to delete", "EntryNotFound")
