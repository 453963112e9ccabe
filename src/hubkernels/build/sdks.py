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
    from hubkernels.toolchain.sdk.patience import Patience
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

    def maker(self, *, anew: bool = False, patience: Patience | None = None) -> Maker:
        from hubkernels.toolchain.sdk.index import Index  # noqa: PLC0415 - slow, and a build fetches once
        from hubkernels.toolchain.sdk.make import Maker  # noqa: PLC0415
        from hubkernels.toolchain.sdk.patience import PATIENT  # noqa: PLC0415
        from hubkernels.toolchain.sdk.transfer import Transfer, read_settings  # noqa: PLC0415

        store, patience = self.store(), patience or PATIENT
        index = Index(self.environment, store.answers, anew=anew, patience=patience)
        return Maker(store, index, lambda: Transfer(read_settings(self.environment), patience=patience), self.tell)

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
            write_atomically(Path(os.path.realpath(self.lock)), lock_text(found.values()).encode())  # a link stays one
        store.note(self.lock)
        return found

    def add(
        self, names: Sequence[SdkName], *, anew: bool = False, patience: Patience | None = None
    ) -> tuple[list[LockedSdk], list[str]]:
        """Those that the index has, made and kept, and why not the others. anew: ask for the newest once more."""
        from hubkernels.toolchain.sdk.index import NotOfferedError  # noqa: PLC0415 - slow, and a build fetches once

        maker, added, left_out = self.maker(anew=anew, patience=patience), [], []
        for name in names:
            self.tell(f"locking {name}")
            try:
                added.append(maker.lock(name))
            except NotOfferedError as error:
                left_out.append(f"{name}: {error.problems[0].what}")
        if patience is None:  # builds wait no more for what answers now
            from hubkernels.toolchain.sdk.unreached import Unreached  # noqa: PLC0415 - as above

            Unreached(self.environment, self.store().answers).forget()
        return added, left_out

    def add_soon(self, names: Sequence[SdkName]) -> tuple[list[LockedSdk], list[str]]:
        """As `add`, for a build that has another way: an index that fails is not asked again for some minutes.

        Raises EnvironmentLacksError also where that is so.
        """
        from hubkernels.toolchain.sdk.index import UnreachedError  # noqa: PLC0415 - as above
        from hubkernels.toolchain.sdk.patience import HURRIED  # noqa: PLC0415 - a build with a lock does without
        from hubkernels.toolchain.sdk.unreached import Unreached  # noqa: PLC0415

        unreached = Unreached(self.environment, self.store().answers)
        if why := unreached.why():
            raise EnvironmentLacksError(why)
        try:
            return self.add(names, patience=HURRIED)
        except UnreachedError as error:
            unreached.remember(error.problems[0].what)
            raise


def project_sdks(root: Path, cache: Cache, environment: Mapping[str, str], tell: Tell) -> ProjectSdks:
    """Those of the project in a folder. The user's own store is read, too, where the cache is another one."""
    own, used = cache_folder(environment), cache.folder
    others = () if used == own else (own / _STORE,)
    return ProjectSdks(root / LOCK, used / _STORE, others, environment, tell)
