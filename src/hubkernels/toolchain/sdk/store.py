"""A folder of SDKs, each named by the hash of its tree: each is whole or not there, whoever writes, kills or removes.

A tree is made below ``parts``, under a lock that the system releases when its holder dies, and then renamed. Readers
use it where it stands, so it is removed only by `prune` and `verify`, never to make room.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import disk_errors, read_json_object, read_regular, write_atomically
from hubkernels.model.sdk import MENDS, LockedSdk, Tree, read_about, read_lock, sdk_to_json, tree_hash
from hubkernels.toolchain.sdk.draft import Draft, scan

if TYPE_CHECKING:
    from hubkernels.toolchain.sdk.ranges import Tell

_FORM = 1
_ABOUT, _ROOT = "about.json", "root"
_TREE = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"[^\0\ud800-\udc7f\udd00-\udfff]+")
"""What a file can be called: bytes that are no UTF-8 stand in Python's text as U+DC80 to U+DCFF."""
_TOUCH_S = 600.0
_RECENT_S = 3600.0
"""What was used within this time may be in use by a build, or be made for a lock that is not written yet."""


@dataclass(frozen=True)
class Stored:
    """An SDK in the store. root: its folder. used: when it was last asked for. form: of the recipe that made it."""

    sdk: LockedSdk
    root: Path
    used: float
    form: int
    tree: Tree

    def size(self) -> int:
        """Bytes of its files now."""
        found = 0
        for path in self.tree:
            with contextlib.suppress(OSError):  # `verify` tells of what is gone
                found += (self.root / path).lstat().st_size
        return found


class SdkStore:
    """SDKs below ``folder``, which need not exist yet. others: stores that are read alone, and first.

    lock: what names the SDKs that are asked for; it is noted where one is used, so that `prune` keeps them.
    """

    def __init__(self, folder: Path, others: Sequence[Path] = (), lock: Path | None = None) -> None:
        self.folder = folder
        self._all = (*others, folder)
        self._unnoted = lock

    @property
    def answers(self) -> Path:
        return self.folder / "answers"

    def find(self, tree: str) -> Path | None:
        """The root of an SDK; None where it is not kept, or does not tell what it is. Notes its use."""
        for folder in self._all:
            place = folder / "trees" / tree
            if _tells(place):
                with contextlib.suppress(OSError):  # a store that cannot be written
                    if time.time() - (place / _ABOUT).stat().st_mtime > _TOUCH_S:
                        os.utime(place / _ABOUT)
                if folder == self.folder:
                    self._note_use()
                return place / _ROOT
        return None

    def own(self) -> SdkStore:
        """The one that is written, alone."""
        return SdkStore(self.folder)

    def owns(self, root: Path) -> bool:
        """Whether an SDK is in the store that is written."""
        return root.parent.parent.parent == self.folder

    def stored(self) -> Iterator[Stored]:
        """All that is kept, but for what does not tell what it is."""
        return (found for place in self._trees() if (found := _stored(place)))

    def told(self, root: Path) -> Stored:
        """The SDK of a root. Raises EnvironmentLacksError where it does not tell what it is."""
        if found := _stored(root.parent):
            return found
        raise EnvironmentLacksError(Problem("this SDK does not tell what it is", str(root.parent / _ABOUT), MENDS))

    def untold(self) -> tuple[Path, ...]:
        """The roots of what does not tell what it is, and is named as a tree; from the own store it is removed."""
        found = [place for place in self._trees() if _TREE.fullmatch(place.name) and not _stored(place)]
        for place in found:
            if self.owns(place / _ROOT):
                self._remove(place)
        return tuple(place / _ROOT for place in found)

    def _trees(self) -> Iterator[Path]:
        for folder in self._all:
            with contextlib.suppress(OSError):
                yield from sorted((folder / "trees").iterdir())

    @contextlib.contextmanager
    def part(self, key: str, tell: Tell) -> Iterator[Path]:
        """An empty folder to work in, of this process alone as long as it lives. key: what two would make twice."""
        from filelock import FileLock, Timeout  # noqa: PLC0415 - a build that finds all in the store does without

        place = self.folder / "parts" / hashlib.sha256(key.encode()).hexdigest()[:32]
        with disk_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(place.with_suffix(".lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                tell(f"another process is fetching {key}: waiting for it")
                lock.acquire()
        try:
            with disk_errors(place):
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            lock.release()

    def keep(self, draft: Draft, sdk: LockedSdk, form: int) -> Path:
        """Take a finished tree from below `part`; its folder is named root. Tells where it is then."""
        about = {"form": _FORM, "recipe": form, "sdk": sdk_to_json(sdk), "tree": draft.tree}
        place, whole = self.folder / "trees" / sdk.tree, draft.folder.parent / "whole"
        with disk_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            whole.mkdir()
            draft.folder.rename(whole / _ROOT)
            (whole / _ABOUT).write_text(json.dumps(about), encoding="utf-8")
            try:
                whole.rename(place)
            except OSError:
                if not _tells(place):  # else another process was first, with the same tree
                    self._remove(place)
                    whole.rename(place)
        self._note_use()
        return place / _ROOT

    def damage(self, stored: Stored) -> tuple[str, ...]:
        """Files that are not as they were made; a tree with any is removed from the own store, to be fetched again."""
        now, listed = scan(stored.root), tree_hash(stored.tree)
        if tree_hash(now) == listed == stored.sdk.tree:
            return ()
        if self.owns(stored.root):
            self._remove(stored.root.parent)
        if listed != stored.sdk.tree:
            return (_ABOUT,)
        return tuple(sorted(path for path in {*now, *stored.tree} if now.get(path) != stored.tree.get(path)))

    def note(self, lock: Path) -> None:
        """Remember a lock that there is, so that `prune` keeps what it names."""
        place = self._note_of(lock)
        if not place.is_file() and lock.is_file():
            with contextlib.suppress(EnvironmentLacksError):  # a store that cannot be written has nobody who prunes it
                write_atomically(place, json.dumps({"lock": os.path.realpath(lock)}).encode())

    def _note_use(self) -> None:
        """Once: a build with nothing to do has no more time for it than to see that there is a note."""
        lock, self._unnoted = self._unnoted, None
        if lock:
            self.note(lock)

    def _note_of(self, lock: Path) -> Path:
        """One for all spellings of a lock."""
        return self.folder / "locks" / f"{hashlib.sha256(os.fsencode(os.path.realpath(lock))).hexdigest()[:32]}.json"

    @contextlib.contextmanager
    def changing(self, lock: Path) -> Iterator[None]:
        """One process at a time changes a lock, as far as this store can be written."""
        from filelock import FileLock  # noqa: PLC0415 - as in `part`

        place = self._note_of(lock).with_suffix(".lock")
        held = FileLock(place)
        with contextlib.suppress(OSError, NotImplementedError):
            place.parent.mkdir(parents=True, exist_ok=True)
            held.acquire()
        try:
            yield
        finally:
            held.release()

    def prune(self, days: float) -> tuple[LockedSdk, ...]:
        """Remove what no lock names and what nobody used for so many days; and what killed processes left.

        Raises InputError, and removes no SDK, while a lock that was noted cannot be read: it may name any.
        """
        self._sweep()
        self._note_use()
        named, removed = {sdk.tree for sdk in self._named()}, []
        for each in list(self.own().stored()):
            if _is_past(each.used, days, named=each.sdk.tree in named):
                self._remove(each.root.parent)
                removed.append(each.sdk)
        return tuple(removed)

    def prune_answers(self, days: float) -> int:
        """Remove answers of the index by the same rule, and tell how many.

        One is named by its wheels: those of a lock, or of an SDK that is kept. Raises as `prune` does.
        """
        sdks = (*self._named(), *(each.sdk for each in self.own().stored()))
        named = {wheel.sha256 for sdk in sdks for wheel in sdk.wheels}
        removed = 0
        for place in sorted(self.answers.glob("*")):
            with contextlib.suppress(OSError):
                if _is_past(place.stat().st_mtime, days, named=not named.isdisjoint(_wheels(place))):
                    place.unlink()
                    removed += 1
        return removed

    def _named(self) -> tuple[LockedSdk, ...]:
        """SDKs of all locks that were noted and are still there. Raises InputError for those that cannot be read."""
        named: list[LockedSdk] = []
        problems: list[Problem] = []
        for place in sorted((self.folder / "locks").glob("*.json")):
            lock = _lock_of(place)
            try:
                named.extend(read_lock(read_regular(lock), str(lock)))
            except (FileNotFoundError, NotADirectoryError):
                place.unlink(missing_ok=True)
            except OSError as error:
                problems.append(_unread(str(error.strerror), str(lock)))
            except InputError as error:
                problems.append(_unread(error.problems[0].what, error.problems[0].where))
        if problems:
            raise InputError(*problems)
        return tuple(named)

    def _sweep(self) -> None:
        from filelock import FileLock, Timeout  # noqa: PLC0415 - as in `part`

        for place in list((self.folder / "parts").glob("*[0-9a-f]")):
            with contextlib.suppress(Timeout, OSError), FileLock(place.with_suffix(".lock"), timeout=0):
                shutil.rmtree(place, ignore_errors=True)
        for place in list(self.folder.glob(".pip-*")):  # of a newer pip that was not installed to its end
            with contextlib.suppress(OSError):
                if time.time() - place.stat().st_mtime > _RECENT_S:
                    shutil.rmtree(place, ignore_errors=True)

    def _remove(self, place: Path) -> None:
        """Take an entry away at once, then delete it: no reader finds half of one."""
        grave = self.folder / "parts" / f"{os.getpid()}.{place.name[:16]}"
        with disk_errors(place):
            grave.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(grave, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):  # another process was first
                place.rename(grave)
        shutil.rmtree(grave, ignore_errors=True)


def _is_past(used: float, days: float, *, named: bool) -> bool:
    """Whether what was used last then may go."""
    idle_s = time.time() - used
    return idle_s > max(days * 86400, _RECENT_S) or (idle_s > _RECENT_S and not named)


def _wheels(answer: Path) -> frozenset[str]:
    """The SHA-256 of what a kept answer tells of; none of one that is damaged, or tells that there was none."""
    try:
        return frozenset(str(each["sha256"]) for each in read_json_object(answer)["found"])
    except (KeyError, TypeError):
        return frozenset()


def _lock_of(note: Path) -> Path:
    """The lock that a note is of. One that is damaged is its own, and refused as no lock."""
    lock = read_json_object(note).get("lock")
    return Path(lock) if isinstance(lock, str) and _PATH.fullmatch(lock) else note


def _unread(why: str, where: str | None) -> Problem:
    hint = "mend it, or delete it if nothing is built by it any more"
    return Problem(f"no SDK is removed while a lock that may name it cannot be read: {why}", where, hint)


def _tells(place: Path) -> bool:
    """Whether a tree tells what it is. Every build asks, so its ten thousand hashes are looked at, and not parsed."""
    try:
        content = read_regular(place / _ABOUT)
    except OSError:
        return False
    whole = content.startswith(b"{") and content.endswith(b"}}") and b"\0" not in content
    return whole and place.name.encode() in content


def _stored(place: Path) -> Stored | None:
    try:
        sdk, form, tree = read_about(read_json_object(place / _ABOUT), str(place))
        used = (place / _ABOUT).stat().st_mtime
    except (OSError, InputError):
        return None
    return Stored(sdk, place / _ROOT, used, form, tree) if sdk.tree == place.name else None
