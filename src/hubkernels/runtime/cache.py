"""The client's cache: what it fetched is found here, and what is put here it finds.

Every file appears whole, by a rename: neither a kill nor a full disk leaves half of one, and processes that write the
same file write the same bytes. What is loaded is hashed each time, so that a damaged file is seen.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import BinaryIO

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import disk_errors, read_json_object, read_regular, write_atomically
from hubkernels.model.client import SHA1_COMMIT
from hubkernels.model.digest import uncovered
from hubkernels.runtime.gitpack import PackError, pack_objects, unpack_objects
from hubkernels.runtime.proof import BUILD, File, Hashes, Proven, Revision, Told, hash_path, wrong

Fill = Callable[[BinaryIO], None]

_OWN = "hubkernels"
"""A folder beside the client's: how what is here is proved, and files that are not whole yet."""

_ELSEWHERE = "KERNELS_CACHE names another cache; who may write into this one can `kernel-builder prefetch` it"

_OF_ANOTHER_KIND = {errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOTDIR}
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SHA256_DIGITS = 64
_IMPORTED = (*all_suffixes(), ".dll", ".dylib")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """What cannot be written into a cache may go into another one, but where something is in the way in this one."""
    try:
        with disk_errors(path):
            yield
    except EnvironmentLacksError as error:
        (problem,) = error.problems
        if problem.hint or not isinstance(error.__cause__, OSError):
            raise
        place = _in_the_way(error.__cause__)
        hint = f"delete {place}, which is in the way, and try again" if place else _ELSEWHERE
        raise EnvironmentLacksError(replace(problem, hint=hint)) from error.__cause__


def _in_the_way(error: OSError) -> Path | None:
    """What stands in the place of a folder of the cache, or of a file; None where that is not what is wrong."""
    if error.errno not in _OF_ANOTHER_KIND:
        return None
    place = Path(error.filename2 or error.filename)
    return next((path for path in reversed(place.parents) if os.path.lexists(path) and not path.is_dir()), place)


@dataclass(frozen=True)
class Cache:
    """One kernel in a cache, which need not be there."""

    folder: Path

    @classmethod
    def of(cls, cache: Path, repo_id: str) -> Cache:
        return cls(cache / "--".join(("kernels", *repo_id.split("/"))))

    def variant(self, commit: str, variant: str) -> Path:
        return self.folder / "snapshots" / commit / BUILD / variant

    def has(self, commit: str) -> bool:
        return (self.folder / "snapshots" / commit).is_dir()

    def ref(self, name: str) -> str | None:
        """The commit that a branch or a tag named when it was fetched."""
        try:
            found = read_regular(self.folder / "refs" / name).decode("ascii").strip()
        except (OSError, UnicodeError, ValueError):
            return None
        return found if SHA1_COMMIT.fullmatch(found) else None

    def versions(self) -> list[int]:
        with contextlib.suppress(OSError):
            names = [path.name for path in (self.folder / "refs").iterdir()]
            return sorted(int(name[1:]) for name in names if re.fullmatch(r"v[0-9]{1,18}", name))
        return []

    def name(self, ref: str, commit: str) -> None:
        """So that the same is found without a network."""
        if self.ref(ref) != commit:
            write_atomically(self.folder / "refs" / ref, commit.encode())

    def revision(self, commit: str) -> Revision | None:
        """What is known of a commit, by what was kept when it was fetched; proved again where it can be."""
        try:
            objects = unpack_objects(read_regular(self._own(commit, "objects")))
            if commit in objects:
                return Proven(commit, objects)
        except (OSError, PackError):
            pass
        listed = read_json_object(self._own(commit, "json")).get("files")
        if not isinstance(listed, dict):
            return None
        try:
            return Told(commit, {path: File(path, *told) for path, told in listed.items()})
        except TypeError:
            return None

    def keep(self, revision: Revision) -> None:
        """What proves the files of a commit, for a load without a request."""
        if isinstance(revision, Proven):
            place, text = self._own(revision.commit, "objects"), pack_objects(revision.evidence())
        elif isinstance(revision, Told):
            listed = {path: (file.oid, file.sha256, file.size) for path, file in revision.listed.items()}
            place, text = self._own(revision.commit, "json"), json.dumps({"files": listed}).encode()
        else:
            return
        if _read(place) != text:
            write_atomically(place, text)

    def _own(self, commit: str, kind: str) -> Path:
        return self.folder / _OWN / f"{commit}.{kind}"

    def found(self, commit: str) -> Revision:
        """What somebody else fetched, as the names of the client's blobs tell it: each is called by its hash."""
        top = self.folder / "snapshots" / commit / BUILD
        paths = (Path(folder, name) for folder, _, names in os.walk(top) for name in names)
        files = (_blob(path, f"{BUILD}/{path.relative_to(top).as_posix()}") for path in paths)
        return Told(commit, {file.path: file for file in files})

    def is_vouched_for(self, commit: str, endpoint: str) -> bool:
        """Whether this Hub vouched for the publisher when the commit was fetched."""
        return self._voucher(commit, endpoint).exists()

    def vouch(self, commit: str, endpoint: str) -> None:
        if not self.is_vouched_for(commit, endpoint):
            write_atomically(self._voucher(commit, endpoint), endpoint.encode())

    def _voucher(self, commit: str, endpoint: str) -> Path:
        return self._own(commit, f"{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}.vouched")

    def hashes(self, commit: str, variant: str, files: Iterable[File]) -> dict[str, Hashes | None]:
        """What each file's bytes are; None for one that is not there."""
        top = self.variant(commit, variant)
        return {file.path: _hashes(top / file.path) for file in files}

    @staticmethod
    def refuse_others(top: Path, known: Collection[str]) -> None:
        """Python would import a file that nobody published, before one that is called almost the same.

        What else a kernel writes beside itself is its own, and so is the bytecode of what it imports.
        """
        for folder, _, names in os.walk(top):
            for path in (Path(folder, name) for name in names if name.endswith(_IMPORTED)):
                own = "__pycache__" in path.relative_to(top).parts and path.suffix == ".pyc" and not path.is_symlink()
                if path.relative_to(top).as_posix() not in known and not own:
                    raise wrong(f"the cache has a file that is not of the kernel: {path}")
        for name in uncovered(top):
            raise wrong(
                f"the cache has a link to a folder, or what is no file, that is not of the kernel: {top / name}"
            )

    def put(self, commit: str, variant: str, file: File, fill: Fill) -> Hashes:
        """A file of a commit, written by ``fill`` and held against its hash before anybody sees it.

        Raises CheckFailedError where it has another, EnvironmentLacksError where it cannot be written.
        """
        blob, target = self.folder / "blobs" / str(file.blob), self.variant(commit, variant) / file.path
        with _writing(blob):
            found = _hashes(blob)
            if found is None or not found.are_of(file):
                found = self._write(blob, file, fill)
            self._link(blob, target)
        return found

    def _write(self, blob: Path, file: File, fill: Fill) -> Hashes:
        with self._scratch() as scratch:
            with scratch.open("w+b") as written:
                fill(written)
            found = hash_path(scratch)
            if not found.are_of(file):
                promised = f"SHA-256 {file.sha256}" if file.sha256 else f"git's id {file.oid}"
                what = f"{file.path} has SHA-256 {found.sha256} and {found.size} bytes, not {promised}"
                raise wrong(f"what the Hub sent is not what the commit names: {what}")
            blob.parent.mkdir(parents=True, exist_ok=True)
            scratch.replace(blob)
        return found

    def _link(self, blob: Path, target: Path) -> None:
        """As the client does: a relative link, and a copy where the disk has none."""
        where = os.path.relpath(blob, target.parent)
        if target.is_symlink() and os.readlink(target) == where:  # noqa: PTH115 - Path would make it another form
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._scratch() as scratch:
            try:
                scratch.symlink_to(where)
            except OSError:
                shutil.copyfile(blob, scratch)
            scratch.replace(target)

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A name on the cache's own disk that nobody else has; nothing is there in the end."""
        place = self.folder / _OWN
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"tmp-{os.getpid()}-{os.urandom(8).hex()}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except OSError:
        return None


def _hashes(path: Path) -> Hashes | None:
    try:
        return hash_path(path)
    except OSError:
        return None


def _blob(path: Path, name: str) -> File:
    """A file of a snapshot, with the hash that its blob is called by; without one where it is no link."""
    target = path.resolve().name if path.is_symlink() else ""
    if not _HASH.fullmatch(target):
        return File(name, None)
    return File(name, None, target) if len(target) == _SHA256_DIGITS else File(name, target)


def problem_of(path: str, hashes: Hashes | None, where: Path) -> Problem:
    """Why a file of the cache is not loaded."""
    what = "is not in the cache" if hashes is None else "is not what the commit holds: the cache is damaged"
    hint = "load it once with a network: what is wrong is fetched again"
    return Problem(f"{path} {what}", str(where), hint)
