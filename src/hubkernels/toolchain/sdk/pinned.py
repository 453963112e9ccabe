"""The SDKs that a project's lock pins for one platform, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.model.sdk import LockedSdk, SdkName

if TYPE_CHECKING:
    from hubkernels.toolchain.sdk.make import Maker
    from hubkernels.toolchain.sdk.store import SdkStore


class Pinned:
    """SDKs by name. lacking: why another is not among them, in words that end a reason.

    store, maker: opened when first needed: a project without a lock needs neither.
    """

    def __init__(
        self,
        sdks: Iterable[LockedSdk] = (),
        store: Callable[[], SdkStore] | None = None,
        maker: Callable[[], Maker] | None = None,
        lacking: str = "",
    ) -> None:
        self.lacking = lacking
        self._sdks = {sdk.name: sdk for sdk in sdks}
        self._open_store = store
        self._open_maker = maker
        self._roots: dict[SdkName, Path] = {}

    def get(self, name: SdkName) -> LockedSdk | None:
        return self._sdks.get(name)

    def names(self) -> tuple[SdkName, ...]:
        return tuple(sorted(self._sdks))

    def root(self, name: SdkName) -> Path | None:
        """The folder of an SDK that is pinned and fetched."""
        sdk = self._sdks.get(name)
        if sdk and name not in self._roots and self._store and (found := self._store.find(sdk.tree)):
            self._roots[name] = found
        return self._roots.get(name)

    def waits(self, name: SdkName) -> bool:
        """Whether an SDK is pinned and not fetched yet, so that nothing but its name is known of it."""
        return name in self._sdks and self.root(name) is None

    def fetch(self, name: SdkName) -> Path:
        """The folder of a pinned SDK, fetched where it is not in the store. Raises as `Maker.fetch` does."""
        if place := self.root(name):
            return place
        self._roots[name] = self._maker.fetch(self._sdks[name])
        return self._roots[name]

    @cached_property
    def _store(self) -> SdkStore | None:
        return self._open_store() if self._open_store else None

    @cached_property
    def _maker(self) -> Maker:
        if self._open_maker is None:
            raise TypeError("these SDKs are not fetched")
        return self._open_maker()
