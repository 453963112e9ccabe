"""The SDKs of one project: what its toolchain.lock pins, the store that they are kept in, and what makes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.build.cache import Cache
from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.cache_folder import cache_folder
from hubkernels.host.files import read_regular, write_atomically
from hubkernels.model.sdk import LOCK, LockedSdk, SdkName, lock_text, read_lock
from hubkernels.toolchain.sdk.pinned import Pinned

if TYPE_CHECKING:
    from hubkernels.toolchain.sdk.make import Maker
    from hubkernels.toolchain.sdk.store import SdkStore

Tell = Callable[[str], None]
Sdks = Mapping[SdkName, LockedSdk]
Change = Callable[[Sdks], Sdks]
_STORE = "sdk"


@dataclass(frozen=True)
class ProjectSdks:
    """lock: the file. folder: of the store. others: stores that are read alone. environment: what pip is asked in."""

    lock: Path
    folder: Path
    others: tuple[Path, ...]
    environment: Mapping[str, str]
    tell: Tell

    @property
    def locked(self) -> bool:
        """Whether there is a lock, be it one that cannot be read."""
        return os.path.lexists(self.lock)

    def store(self) -> SdkStore:
        from hubkernels.toolchain.sdk.store import SdkStore  # noqa: PLC0415 - builds without a lock do without

        return SdkStore(self.folder, self.others, self.lock)

    def maker(self, *, anew: bool = False) -> Maker:
        from hubkernels.toolchain.sdk.index import Index  # noqa: PLC0415 - slow, and a build fetches once
        from hubkernels.toolchain.sdk.make import Maker  # noqa: PLC0415
        from hubkernels.toolchain.sdk.transfer import Transfer, read_settings  # noqa: PLC0415

        store = self.store()
        index = Index(self.environment, store.answers, anew=anew)
        return Maker(store, index, lambda: Transfer(read_settings(self.environment)), self.tell)

    def read(self) -> tuple[LockedSdk, ...]:
        """What the lock pins. Raises InputError where there is none or it cannot be read."""
        try:
            return read_lock(read_regular(self.lock), str(self.lock))
        except OSError as error:
            raise self._why_unread(error) from error

    def _why_unread(self, error: OSError) -> HubkernelsError:
        if not self.locked:
            hint = "`kernel-builder toolchain lock` writes one"
            return InputError(Problem(f"there is no {self.lock.name}", str(self.lock.parent), hint))
        hint = "restore it, or remove it to have one written anew"
        return EnvironmentLacksError(Problem(f"cannot read {self.lock}: {error.strerror}", hint=hint))

    def pinned(self) -> Pinned:
        """What the lock pins, to build with; nothing where there is none."""
        if not self.locked:
            return Pinned(lacking=f", and there is no {LOCK}: `kernel-builder toolchain lock` writes one")
        lacking = f", and {LOCK} pins none: `kernel-builder toolchain lock` adds what the index has"
        return Pinned(self.read(), self.store, self.maker, lacking)

    def there(self, *, anew: bool = False) -> dict[SdkName, LockedSdk]:
        """What is locked; nothing where there is no lock, or where one that cannot be read is to be written anew."""
        if not self.lock.is_file():
            return {}
        try:
            return {sdk.name: sdk for sdk in self.read()}
        except InputError:
            if not anew:
                raise
            return {}

    def write(self, changed: Change, *, anew: bool = False) -> Sdks:
        """Write what is to be pinned, of what is pinned by now: fetching takes long, and others write meanwhile."""
        store = self.store()
        with store.changing(self.lock):
            found = changed(self.there(anew=anew))
            write_atomically(self.lock, lock_text(found.values()).encode())
        store.note(self.lock)
        return found

    def add(self, names: Sequence[SdkName], *, anew: bool = False) -> tuple[list[LockedSdk], list[str]]:
        """Those that the index has, made and kept, and why not the others. anew: ask for the newest once more."""
        from hubkernels.toolchain.sdk.index import NotOfferedError  # noqa: PLC0415 - slow, and a build fetches once

        maker, added, left_out = self.maker(anew=anew), [], []
        for name in names:
            self.tell(f"locking {name}")
            try:
                added.append(maker.lock(name))
            except NotOfferedError as error:
                left_out.append(f"{name}: {error.problems[0].what}")
        return added, left_out


def project_sdks(root: Path, cache: Cache, environment: Mapping[str, str], tell: Tell) -> ProjectSdks:
    """Those of the project in a folder. The user's own store is read, too, where the cache is another one."""
    own, used = cache_folder(environment), cache.folder
    others = () if used == own else (own / _STORE,)
    return ProjectSdks(root / LOCK, used / _STORE, others, environment, tell)
