"""The cache of a build: which folder, how large it may grow, and what to say where it is not the usual one."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.cache_folder import VARIABLE, cache_folder
from hubkernels.host.disk import is_full
from hubkernels.host.store import Store
from hubkernels.model.size import FORMS, parse_size

SIZE_VARIABLE = "HUBKERNELS_CACHE_SIZE"
DEFAULT_SIZE = 5 * 10**9
OBJECTS = "objects"


@dataclass(frozen=True)
class Cache:
    """note: why it is a folder of the project instead of the user's, in words. refusal: why no build can use it.

    named: whether the environment names it, so that no other may stand for it.
    """

    store: Store
    limit: int
    note: str | None = None
    refusal: HubkernelsError | None = None
    named: bool = False

    @property
    def folder(self) -> Path:
        """The folder of all that is kept, of which the store is one part."""
        return self.store.folder.parent

    def require(self) -> None:
        """Raises the error of a folder or a size that was asked for and is of no use."""
        if found := self.why_refused():
            raise found

    def why_refused(self) -> HubkernelsError | None:
        """The error of a folder or a size of no use. One that is named is tried: its mode does not tell all."""
        if self.refusal or not self.named:
            return self.refusal
        existing = _existing(self.store.folder)
        try:
            with tempfile.TemporaryDirectory(dir=existing, prefix="."):
                return None
        except OSError as error:
            if is_full(error):  # what is kept there is still of use
                return None
            return _refusal(f"no folder can be made in {existing}: {error.strerror}")

    def trim(self) -> None:
        """Bring the store below its limit, where this process has added to it."""
        if self.store.grown:
            self.store.trim(self.limit)
            self.store.grown = False


def find_cache(environment: Mapping[str, str], project: Path) -> Cache:
    """The cache that the environment names, else the user's, else one in the folder ``project``.

    Makes no folder and raises nothing, since not all that ask for it build. The user's own is not used where it belongs
    to another: under sudo, builds would litter it with root's files.
    """
    folder = cache_folder(environment)
    named, why = environment.get(VARIABLE), reason_against(folder)
    refusal: HubkernelsError | None = None
    if named and why:
        refusal = _refusal(why)
    try:
        limit = size_limit(environment)
    except InputError as error:
        limit, refusal = DEFAULT_SIZE, error
    why = None if named else why or _not_ours(folder)
    if why is None:
        return Cache(Store(folder / OBJECTS), limit, refusal=refusal, named=bool(named))
    note = f"{why}: objects are kept in {project}; {VARIABLE} can name a folder"
    return Cache(Store(project / OBJECTS), limit, note, refusal)


def _refusal(why: str) -> HubkernelsError:
    hint = "name a folder that you can write, or none for the usual one"
    return EnvironmentLacksError(Problem(why, f"environment: {VARIABLE}", hint))


def reason_against(folder: Path) -> str | None:
    """Why files cannot be made in a folder, or in one yet to be made; None where they can."""
    for path in (folder / OBJECTS, folder):
        if os.path.lexists(path) and not path.is_dir():
            return f"{path} is not a folder"
    for path in (folder / OBJECTS, folder):
        existing = _existing(path)
        if not existing.is_dir():
            return f"{existing} is not a folder"
        if not os.access(existing, os.W_OK | os.X_OK):
            whose = _not_ours(existing)
            return f"{existing} cannot be written" + (f": {whose}" if whose else "")
    return None


def _not_ours(folder: Path) -> str | None:
    existing = _existing(folder)
    owner = existing.stat().st_uid
    return None if owner == os.geteuid() else f"{existing} belongs to {_user(owner)}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - Path's raises where it may not look


def size_limit(environment: Mapping[str, str]) -> int:
    """``HUBKERNELS_CACHE_SIZE`` in bytes: ``800MB``, ``2GB``, ``1.5GiB``, ``0``. Raises InputError for other words."""
    text = environment.get(SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_SIZE
    size = parse_size(text)
    if size is None:
        raise InputError(Problem(f"not a size: {text!r}", f"environment: {SIZE_VARIABLE}", FORMS))
    return size
