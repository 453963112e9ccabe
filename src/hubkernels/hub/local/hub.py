"""The folder of a Hub: its repositories, by any spelling of their names, and its one server."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import disk_errors, read_json_object
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.durable import sync_all, sync_file, write_durably
from hubkernels.hub.local.lfs_rules import first_attributes
from hubkernels.hub.local.names import KINDS, RepoId, check_new
from hubkernels.hub.local.repository import Repository, initialize, mend_config

_LOG = logging.getLogger(__name__)

_SETTINGS = "hub.json"
_OWN = ".hubkernels-hub"
"""What is in a Hub's folder beside repositories. By its name it is no folder of somebody else: it is emptied."""


class TakenError(EnvironmentLacksError):
    """Another process has the folder."""


def repositories(folder: Path) -> Iterator[Path]:
    """The folders of the repositories of a Hub."""
    for kind in KINDS:
        yield from sorted((folder / kind).glob("*/*.git"))


def repo_in(folder: Path, place: Path) -> RepoId:
    """What the repository in one of those folders is called."""
    kind, owner, name = place.relative_to(folder).parts
    return RepoId(kind, owner, name.removesuffix(".git"))


def refuse_twins(repos: Iterable[RepoId], where: str, hint: str | None = None) -> None:
    """A Hub has one repository for every spelling of a name. Raises CheckFailedError: one would hide the other."""
    found: dict[tuple[str, str, str], RepoId] = {}
    for repo in repos:
        twin = found.setdefault(repo.key, repo)
        if twin != repo:
            raise CheckFailedError(Problem(f"{repo.kind}: {twin} and {repo} are one repository for a Hub", where, hint))


@dataclass(frozen=True)
class Stored:
    """A repository and what the Hub knows of it."""

    repo: RepoId
    git: Repository
    private: bool
    created: datetime

    def settings(self) -> bytes:
        found = {"id": str(self.repo), "private": self.private, "created": self.created.isoformat()}
        return json.dumps(found, indent=1).encode() + b"\n"


@dataclass
class Hub:
    """Every repository of a folder.

    lfs: whether files that are large or no text go to the store for large files, as on the Hub. Without, every client
    can upload, also one that would send such files to a Xet server only.
    """

    folder: Path
    lfs: bool = False
    _found: dict[tuple[str, str, str], Stored] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _only_server: FileLock | None = None
    _made: tuple[Path, ...] = ()

    @property
    def scratch(self) -> Path:
        return self.folder / _OWN / "tmp"

    def open(self) -> None:
        """Take the folder and read what is there.

        Raises TakenError where another server has it, InputError for a folder of something else, CheckFailedError where
        two repositories are one name.
        """
        with disk_errors(self.folder):
            if self.folder.exists() and not self.folder.is_dir():
                raise InputError(Problem(f"{self.folder} is no folder", hint="name a new one for it"))
            lacking = tuple(path for path in (self.folder, *self.folder.parents) if not path.exists())
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / _OWN).is_dir() and any(self.folder.iterdir()):
                raise InputError(Problem(f"{self.folder} is no Hub, and not empty", hint="name a new folder for it"))
            new = not (self.folder / _OWN).is_dir()
            (self.folder / _OWN).mkdir(exist_ok=True)
            self._take()
            self._made = (*(self.folder / kind for kind in KINDS), *lacking) if new else ()
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.scratch.mkdir(exist_ok=True)
            for kind in KINDS:
                (self.folder / kind).mkdir(exist_ok=True)
            if new:
                sync_all({self.folder, *(path.parent for path in lacking)})
            places = tuple(repositories(self.folder))
            hint = "two Hubs may have been merged, or a repository copied: move one of them elsewhere"
            refuse_twins((repo_in(self.folder, place) for place in places), str(self.folder), hint)
            for place in places:
                if (place / _SETTINGS).exists():
                    self._remember(place / _SETTINGS)
            for stored in self:
                stored.git.refs.clear_locks()

    def close(self) -> None:
        """Leave nothing half done. The lock goes last: from then on the folder is another's."""
        for stored in self:
            stored.git.objects.close()
        if self._only_server and self._only_server.is_locked:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self._only_server.release()

    def leave_nothing(self) -> None:
        """Take away what `open` made, where it made a Hub and nothing came into it. Before `close`: it is ours."""
        if self._made and not self._found:
            shutil.rmtree(self.folder / _OWN, ignore_errors=True)
            for folder in self._made:
                with suppress(OSError):  # somebody put something there
                    folder.rmdir()

    def _take(self) -> None:
        self._only_server = FileLock(self.folder / _OWN / "lock", timeout=0, thread_local=False)
        try:
            self._only_server.acquire()
        except Timeout as error:
            hint = "stop it, or serve another folder"
            raise TakenError(Problem(f"another server has {self.folder}", hint=hint)) from error

    def _remember(self, path: Path) -> None:
        settings = read_json_object(path)
        if not isinstance(settings.get("private"), bool):
            _LOG.warning("%s is damaged, it does not say who may see the repository: it is private", path)
        mend_config(path.parent, self.scratch)
        repo = repo_in(self.folder, path.parent)
        try:
            created = datetime.fromisoformat(str(settings.get("created")))
        except ValueError:
            created = datetime.now(timezone.utc)
        # What cannot be read is nobody's to see.
        private = settings.get("private") is not False
        self._found[repo.key] = Stored(repo, Repository(path.parent, self.scratch), private, created)

    def find(self, repo: RepoId) -> Stored | None:
        return self._found.get(repo.key)

    def __iter__(self) -> Iterator[Stored]:
        return iter(sorted(self._found.values(), key=lambda stored: stored.repo))

    def create(self, repo: RepoId, user: str, *, private: bool) -> tuple[Stored, bool]:
        """The repository, and whether it is new. Raises Refusal for a name that none may have."""
        check_new(repo)
        with self._lock:
            there = self.find(repo)
            if there:
                return there, False
            new = Path(tempfile.mkdtemp(dir=self.scratch))
            try:
                initialize(new, first_attributes(lfs=self.lfs), user, self.scratch)
                sync_all(new.rglob("*"))
                return self._place(repo, new, private=private), True
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise

    def adopt(self, repo: RepoId, new: Path, *, private: bool) -> Stored:
        """Place a whole repository of the scratch folder, which is on the disk. Raises Refusal where one is there."""
        check_new(repo)
        with self._lock:
            if self.find(repo):
                raise Refusal(409, f"{repo} is there already")
            return self._place(repo, new, private=private)

    def _place(self, repo: RepoId, new: Path, *, private: bool) -> Stored:
        target = self.folder / repo.kind / self._owner_folder(repo) / f"{repo.name}.git"
        stored = Stored(repo, Repository(target, self.scratch), private, datetime.now(timezone.utc))
        write_durably(new / _SETTINGS, stored.settings(), self.scratch)
        new.chmod(0o755)
        target.parent.mkdir(exist_ok=True)
        new.rename(target)
        self._found[repo.key] = stored
        for folder in (target.parent, target.parent.parent):
            sync_file(folder)
        return stored

    def _owner_folder(self, repo: RepoId) -> str:
        """Owners are one whatever the spelling, too: the first one stays."""
        return next((s.repo.owner for key, s in self._found.items() if key[:2] == repo.key[:2]), repo.owner)

    def set_private(self, stored: Stored, *, private: bool) -> None:
        with self._lock:
            if self.find(stored.repo) is not stored:
                raise Refusal(409, f"{stored.repo} was changed by somebody else: try again")
            changed = replace(stored, private=private)
            write_durably(stored.git.folder / _SETTINGS, changed.settings(), self.scratch)
            self._found[stored.repo.key] = changed

    def delete(self, stored: Stored) -> None:
        """Out of sight in one step; then its files go. Where that step fails, it is as it was."""
        with ExitStack() as last, self._lock, stored.git.lock:
            if stored.git.deleted:
                return
            gone = Path(tempfile.mkdtemp(dir=self.scratch))
            last.callback(shutil.rmtree, gone, ignore_errors=True)  # when the locks are free: it takes long
            stored.git.folder.rename(gone / "repository")
            stored.git.deleted = True
            self._found.pop(stored.repo.key, None)
            stored.git.objects.close()
            sync_file(stored.git.folder.parent)
