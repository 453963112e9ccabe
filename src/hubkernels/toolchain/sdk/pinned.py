"""The SDKs that a project's lock pins for one platform, and where they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hubkernels.errors import InputError, Problem
from hubkernels.model.sdk import LOCK, MENDS, LockedSdk, SdkName, Tree, tree_hash

if TYPE_CHECKING:
    from hubkernels.toolchain.sdk.make import Maker
    from hubkernels.toolchain.sdk.store import SdkStore


def damaged(path: Path, what: str) -> InputError:
    """What to say of a file of an SDK that is not as it was made."""
    return InputError(Problem(f"{path} {what}", hint=MENDS))


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

    def refuse_altered(self, name: SdkName, read: Mapping[str, str]) -> None:
        """Raises InputError where a file of an SDK, of those given with their SHA-256, is not as the lock pins it."""
        root, sdk = self.root(name), self._sdks.get(name)
        spellings = (f"{root}/", f"{os.path.realpath(root or '')}/")  # a compiler takes the shorter one
        mine = {path: digest for path, digest in read.items() if path.startswith(spellings)}
        if not mine or sdk is None or root is None or self._store is None:
            return
        stored = self._store.told(root)
        if stored.sdk.name != name or tree_hash(stored.tree) != sdk.tree:
            raise damaged(root.parent, f"is not {name}, though {LOCK} has it for that")
        for path, digest in mine.items():
            if _without_links(path, root, stored.tree) not in {f"f {digest}", f"x {digest}"}:
                raise damaged(Path(path), f"is not as {LOCK} pins it in {name}")

    @cached_property
    def _store(self) -> SdkStore | None:
        return self._open_store() if self._open_store else None

    @cached_property
    def _maker(self) -> Maker:
        if self._open_maker is None:
            raise TypeError("these SDKs are not fetched")
        return self._open_maker()


def _without_links(path: str, root: Path, tree: Tree) -> str | None:
    """What a tree has at a path in it, which may lead there by a link such as lib64, or by one above the tree."""
    own = path.removeprefix(f"{root}/")
    return tree.get(own) or tree.get(os.path.relpath(os.path.realpath(path), os.path.realpath(root)))
