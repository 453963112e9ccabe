"""One repository: what its revisions hold, and the one way in which they change: a commit whose parent still is."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path

from dulwich.config import ConfigFile

from hubkernels.host.files import open_regular
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.change import Change, CommitInfo, Operation, new_commit, new_tag, read_commit
from hubkernels.hub.local.content import Content
from hubkernels.hub.local.durable import write_durably
from hubkernels.hub.local.kinds import out_of_place
from hubkernels.hub.local.names import check_ref, is_commit, is_ref
from hubkernels.hub.local.objects import Blob, DamagedFileError, ObjectStore, Staging
from hubkernels.hub.local.refs import Refs
from hubkernels.hub.local.tree import Entry, Folder, find

_LOG = logging.getLogger(__name__)

MAIN = "refs/heads/main"
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n"
_CONFIG_MOST = 64 << 10
_INCLUDES = frozenset({b"include", b"includeif"})
_SHORT = 7
"""As many characters of a parent's id are enough for clients."""


class Repository:
    """A bare git repository, with the content of its large files beside the objects."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.objects = ObjectStore(folder / "objects", scratch)
        self.refs = Refs(folder, scratch)
        self.content = Content(folder / "lfs" / "objects", scratch)
        self.lock = threading.Lock()
        """Held while refs change. Who reads takes none: objects never change, and a ref is read in one step."""
        self.deleted = False

    def insist_on_kinds(self) -> None:
        """Raises DamagedFileError where one of git's files is none, or one of its folders: before anything is read."""
        for path, what in out_of_place(self.folder):
            raise DamagedFileError(self.folder, path, what)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raises Refusal where the repository was deleted while somebody waited for the lock."""
        with self.lock:
            if self.deleted:
                raise Refusal(404, "the repository was deleted", "RepoNotFound")
            yield

    def commit_of(self, revision: str) -> str:
        """The commit that a branch, a tag, a full name or an id names. Raises Refusal."""
        names = (revision,) if revision.startswith("refs/") else (f"refs/heads/{revision}", f"refs/tags/{revision}")
        if not is_commit(revision):
            oid = next(filter(None, map(self.refs.get, names)), None)
            commit = oid and self.peel(oid)
            if not commit:
                raise unknown(revision)
            return commit
        try:
            kind = self.objects.kind(revision)  # asked first: of a large file nothing more is read
        except KeyError as error:
            raise unknown(revision) from error
        if kind != "commit":
            raise unknown(revision)
        return revision

    def peel(self, oid: str) -> str | None:
        """The commit of an annotated tag; of a commit, itself. None for what leads to none: a tag may be of a tree."""
        while (kind := self.objects.kind(oid)) == "tag":
            oid = self.objects[oid].object[1].decode()  # type: ignore[attr-defined]
        return oid if kind == "commit" else None

    def info(self, oid: str) -> CommitInfo:
        """Raises KeyError for what is no commit here."""
        return read_commit(oid, self.objects[oid])

    def has(self, commit: str) -> bool:
        try:
            self.info(commit)
        except KeyError:
            return False
        return True

    def log(self, oid: str) -> Iterator[CommitInfo]:
        """A commit and those before it, along first parents."""
        following: str | None = oid
        while following:
            info = self.info(following)
            yield info
            following = info.parents[0] if info.parents else None

    def find(self, commit: str, path: str) -> Entry | None:
        return find(self.objects, self.info(commit).tree, path)

    def blob(self, commit: str, path: str) -> Blob | None:
        """The content of a file; None where there is none."""
        entry = self.find(commit, path)
        return None if entry is None or entry.is_folder else self.objects.blob(entry.oid)

    def commit(self, revision: str, change: Change, staging: Staging) -> str:
        """Commit to a branch or a pull request; tells its head, which stays where nothing changed. Raises Refusal."""
        staging.sync()
        with self._writing():
            ref, head = self._branch(revision)
            self._check_parent(change.parent, head)
            return self._advance(ref, head, change, staging, empty=False)

    def propose(self, revision: str, change: Change, staging: Staging) -> tuple[str, int]:
        """Commit to a new pull request; tells its head and its number. Raises Refusal."""
        staging.sync()
        with self._writing():
            base = self.commit_of(change.parent if change.parent and is_commit(change.parent) else revision)
            number = max((int(name) for name in self.refs.below("refs/pr/") if name.isdecimal()), default=0) + 1
            return self._advance(f"refs/pr/{number}", base, change, staging, empty=True), number

    def _advance(self, ref: str, parent: str, change: Change, staging: Staging, *, empty: bool) -> str:
        before = self.info(parent).tree
        tree = self._changed_tree(before, change.operations, staging)
        if tree == before and not empty:
            return parent
        commit = staging.add_object(new_commit(tree, parent, change))
        staging.publish()
        self.refs.set(ref, commit)
        return commit

    def _changed_tree(self, before: str, operations: Sequence[Operation], staging: Staging) -> str:
        root = Folder(self.objects, before)
        for operation in operations:
            if operation.oid is None:
                root.remove(operation.path, folder=operation.folder)
            else:
                root.put(operation.path, operation.oid)
        return root.write(staging) or staging.add("tree", b"")

    def check_parent(self, revision: str, parent: str | None) -> None:
        """Raises Refusal for a commit that would be refused, before its files are received."""
        self._check_parent(parent, self._branch(revision)[1])

    def _check_parent(self, parent: str | None, head: str) -> None:
        if parent is None or (len(parent) >= _SHORT and head.startswith(parent)):
            return
        if is_commit(parent):
            self.commit_of(parent)  # or it never was
        raise Refusal(412, f"the parent {parent[:40]} is not the head any more, which is {head}: commit on top of that")

    def _branch(self, revision: str) -> tuple[str, str]:
        """The full name of what can be committed to, and its head. Raises Refusal."""
        ref = revision if revision.startswith(("refs/heads/", "refs/pr/")) else f"refs/heads/{revision}"
        head = self.refs.get(ref)
        if head is None:
            raise unknown(revision, "branch")
        return ref, head

    def create_branch(self, name: str, start: str | None) -> None:
        self._create(f"refs/heads/{check_ref(name, 'branch')}", self.commit_of(start or "main"))

    def create_tag(self, name: str, revision: str, message: str | None, author: str) -> None:
        """A tag with a message is an object of its own, as with git."""
        ref, commit = f"refs/tags/{check_ref(name, 'tag')}", self.commit_of(revision)
        if not message:
            self._create(ref, commit)
            return
        with closing(Staging(self.objects)) as staging:
            oid = staging.add_object(new_tag(name, commit, message, author))
            staging.publish()
        self._create(ref, oid)

    def _create(self, ref: str, oid: str) -> None:
        with self._writing():
            if self.refs.get(ref):
                raise Refusal(409, f"{ref} is there already")
            if self.refs.clashes(ref):
                raise Refusal(409, f"{ref} clashes with another ref: one is a folder of the other")
            self.refs.set(ref, oid)

    def delete_ref(self, ref: str) -> None:
        with self._writing():
            if not self.refs.get(ref):
                raise unknown(ref, "ref")
            if ref == MAIN:
                raise Refusal(403, "main is the branch that clients ask for by default, and stays")
            self.refs.delete(ref)


def unknown(revision: str, what: str = "revision") -> Refusal:
    return Refusal(404, f"there is no {what} {revision[:200]!r}", "RevisionNotFound")


def lay_out(folder: Path) -> None:
    """An empty bare repository, which has no branch yet. The folder is there, and nobody sees it."""
    for name in ("info", "objects/info", "objects/pack", "refs/heads", "refs/tags", "refs/pr"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text(f"ref: {MAIN}\n", encoding="ascii")
    (folder / "config").write_bytes(_CONFIG)
    # `git gc` then stores each file as it is, so that it can be read in pieces. Not core.bigFileThreshold: dulwich
    # takes that for the most that it may read.
    (folder / "info/attributes").write_text("* -delta\n", encoding="ascii")


def mend_config(folder: Path, scratch: Path) -> None:
    """Write the config of a repository anew where it is none: no clone would work, and the Hub keeps nothing there."""
    try:
        read_config(folder)
    except OSError:  # without one dulwich works; one that cannot be read is told by who opens it
        return
    except ValueError:
        _LOG.warning("%s is no config of git: it was written anew", folder / "config")
        write_durably(folder / "config", _CONFIG, scratch)


def read_config(folder: Path) -> ConfigFile:
    """The config of a repository. Raises OSError for what is no plain file of a few lines, ValueError for no config."""
    path = folder / "config"
    with open_regular(path) as file:
        text = file.read(_CONFIG_MOST + 1)
    if len(text) > _CONFIG_MOST:
        raise OSError(errno.EFBIG, f"it has more than {_CONFIG_MOST} bytes")
    found = ConfigFile.from_file(BytesIO(text), expand_includes=False)
    if any(section[0].lower() in _INCLUDES for section in found.sections()):
        raise OSError(errno.EINVAL, "it includes other files")
    return found


def mend_head(folder: Path, scratch: Path) -> None:
    """Write HEAD anew where it names nothing: no clone would work, and clients of the Hub ask for main."""
    path = folder / "HEAD"
    try:
        with open_regular(path) as file:
            text = file.read(_CONFIG_MOST).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    kind, _, name = text.partition(":")
    if not (is_commit(text) or (kind == "ref" and is_ref(name.strip()))):
        _LOG.warning("%s names neither a branch nor a commit: it was written anew", path)
        write_durably(path, f"ref: {MAIN}\n".encode(), scratch)


def initialize(folder: Path, files: dict[str, bytes], author: str, scratch: Path) -> Repository:
    """A new repository whose branch main has one commit with these files. The folder is there, and nobody sees it."""
    lay_out(folder)
    repository = Repository(folder, scratch)
    with closing(Staging(repository.objects)) as staging:
        root = Folder(repository.objects, None)
        for path, text in files.items():
            root.put(path, staging.add("blob", text))
        tree = root.write(staging) or staging.add("tree", b"")
        commit = staging.add_object(new_commit(tree, None, Change("initial commit", "", author, None, ())))
        staging.publish()
    repository.refs.set(MAIN, commit)
    return repository
