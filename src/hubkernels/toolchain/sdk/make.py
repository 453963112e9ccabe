"""From wheels to an SDK in the store: what the index has for a new lock, or the very bytes of one that there is."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.files import DiskError, disk_errors, hash_file, read_errors
from hubkernels.model.going import Going
from hubkernels.model.sdk import LockedSdk, SdkName, Wheel, tree_hash
from hubkernels.model.size import size_text
from hubkernels.toolchain.sdk.draft import Draft
from hubkernels.toolchain.sdk.index import Found, Index
from hubkernels.toolchain.sdk.patience import told_while
from hubkernels.toolchain.sdk.ranges import NoRangesError, RangedFile, Tell, fetch_whole, other_bytes
from hubkernels.toolchain.sdk.recipes import Recipe, recipe_of
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Transfer
from hubkernels.toolchain.sdk.wheel import DamagedWheelError, OpenWheel

_TOLD_S = 1.0
Made = TypeVar("Made")


class Maker:
    """Makes SDKs. connect: what to fetch with; asked for when something is fetched."""

    def __init__(self, store: SdkStore, index: Index, connect: Callable[[], Transfer], tell: Tell) -> None:
        self._store = store
        self._index = index
        self._connect = connect
        self._tell = tell

    @cached_property
    def _transfer(self) -> Transfer:
        return self._connect()

    def lock(self, name: SdkName) -> LockedSdk:
        """The newest SDK of this name that the index has, made and kept. Raises NotOfferedError where it has none."""
        recipe = recipe_of(name)
        with self._store.part(str(name), self._tell) as part:
            return self._by_answer(
                name,
                lambda index: recipe.wheels(name, index),
                lambda found: self._known(name, found, recipe) or self._make(name, found, part)[0],
            )

    def fetch(self, sdk: LockedSdk) -> Path:
        """The root of a locked SDK, made where it is not kept. Raises InputError where the bytes are others."""
        if place := self._store.find(sdk.tree):
            return place
        with self._store.part(str(sdk.name), self._tell) as part:
            if place := self._store.find(sdk.tree):
                return place
            return self._fetch(sdk, part)

    def _fetch(self, sdk: LockedSdk, part: Path) -> Path:
        asked = tuple(f"{wheel.project}==={wheel.release}" for wheel in sdk.wheels)
        return self._by_answer(
            sdk.name,
            lambda index: index.ask(asked, sdk.name.platform),
            lambda found: self._make(sdk.name, tuple(map(_matching, sdk.wheels, found)), part, sdk)[1],
        )

    def _by_answer(
        self, name: SdkName, ask: Callable[[Index], Sequence[Found]], make: Callable[[Sequence[Found]], Made]
    ) -> Made:
        """What is made by an answer of the index. One that is kept may have been true long ago: it is asked again."""
        before = self._index.from_memory
        with told_while(f"asking the package index for {name}", self._tell):
            found = renewed = ask(self._index)
        kept = self._index.from_memory > before
        try:
            return make(found)
        except DiskError:
            raise
        except (EnvironmentLacksError, InputError):
            if kept:
                again = told_while(f"asking the package index for {name} anew", self._tell)
                with contextlib.suppress(EnvironmentLacksError), again:  # then the first error is the one to tell
                    renewed = ask(self._index.renewed())
            if renewed == found:
                raise
        return make(renewed)

    def _known(self, name: SdkName, found: Sequence[Found], recipe: Recipe) -> LockedSdk | None:
        """What is kept and was made of these wheels by this recipe."""
        wanted = [(each.file, each.sha256) for each in found]
        for stored in self._store.stored():
            wheels = [(wheel.file, wheel.sha256) for wheel in stored.sdk.wheels]
            if stored.sdk.name == name and stored.form == recipe.form and wheels == wanted:
                self._store.find(stored.sdk.tree)  # this is a use
                return stored.sdk
        return None

    def _make(
        self, name: SdkName, found: Sequence[Found], part: Path, locked: LockedSdk | None = None
    ) -> tuple[LockedSdk, Path]:
        recipe, root = recipe_of(name), part / "root"
        for left in (root, part / "whole"):  # of an answer that led nowhere
            shutil.rmtree(left, ignore_errors=True)
        with disk_errors(root):
            root.mkdir()
        draft = Draft(root)
        wheels: list[Wheel] = []
        names: list[str] = []
        for each in found:
            wheel, members = self._take(each, recipe, draft, part)
            wheels.append(wheel)
            names += members
        if locked:
            _hold_against(locked, wheels)
        recipe.finish(draft, names, name.platform.partition("-")[0])
        made = locked or LockedSdk(name, tuple(wheels), tree_hash(draft.tree))
        if made.tree != (tree := tree_hash(draft.tree)):
            raise _other_tree(made, tree)
        return made, self._store.keep(draft, made, recipe.form)

    def _take(self, found: Found, recipe: Recipe, draft: Draft, part: Path) -> tuple[Wheel, tuple[str, ...]]:
        """The files of one wheel, by parts of it where that works, else of the whole."""
        parts = urlsplit(found.url)
        if parts.scheme == "file":
            local = Path(url2pathname(parts.path))
            if (digest := hash_file(local)) != found.sha256:
                raise other_bytes(found.file, found.sha256, digest)
            return self._take_local(found, local, recipe, draft)
        if recipe.parts:
            before = len(draft.tree)
            try:
                file = RangedFile(found.url, self._transfer)
                return self._unpack(OpenWheel(file, found.file), file.size, found, recipe, draft)
            except (NoRangesError, DamagedWheelError) as error:
                self._tell(f"fetching all of {found.file}: {error.problems[0].what}")
                draft.take_back(before)
        whole = part / found.file
        fetch_whole(found.url, whole, found.sha256, self._transfer, self._tell)
        try:
            return self._take_local(found, whole, recipe, draft)
        finally:
            whole.unlink(missing_ok=True)

    def _take_local(self, found: Found, path: Path, recipe: Recipe, draft: Draft) -> tuple[Wheel, tuple[str, ...]]:
        with read_errors(path), path.open("rb") as file:
            return self._unpack(OpenWheel(file, found.file), path.stat().st_size, found, recipe, draft)

    def _unpack(
        self, wheel: OpenWheel, size: int, found: Found, recipe: Recipe, draft: Draft
    ) -> tuple[Wheel, tuple[str, ...]]:
        places = {name: place for name in wheel.names if (place := recipe.place(name))}
        taken = tuple(places)
        if not taken:
            raise EnvironmentLacksError(Problem(f"{found.file} has none of the files that an SDK is made of"))
        self._tell(f"{found.file}: {len(taken)} files, {size_text(wheel.packed(taken))} of {size_text(size)}")
        told = time.monotonic()
        for number, (name, content) in enumerate(wheel.read(taken)):
            draft.add(places[name], content, program=recipe.is_program(places[name]))
            if time.monotonic() - told > _TOLD_S:
                told = time.monotonic()
                self._tell(Going(f"unpacking {found.file}: {number + 1} of {len(taken)} files"))
        return Wheel(found.file, found.path, found.sha256, size, wheel.record), wheel.names


def _matching(wheel: Wheel, found: Found) -> Found:
    """Where to fetch a locked wheel: the index may offer a newer build of the same release, beside the locked one."""
    if found.file != wheel.file:
        return Found(found.project, wheel.release, found.beside(wheel.path), wheel.sha256)
    if found.sha256 != wheel.sha256:
        raise other_bytes(wheel.file, wheel.sha256, found.sha256)
    return found


def _hold_against(locked: LockedSdk, wheels: Sequence[Wheel]) -> None:
    for expected, found in zip(locked.wheels, wheels, strict=True):
        if (found.record, found.size) != (expected.record, expected.size):
            raise InputError(
                Problem(
                    f"{expected.file} has other files than it had when it was locked\n"
                    f"  expected {expected.size} bytes, RECORD sha256 {expected.record}\n"
                    f"  found    {found.size} bytes, RECORD sha256 {found.record}",
                    hint="whoever serves this file altered it; nothing of it was kept",
                )
            )


def _other_tree(locked: LockedSdk, tree: str) -> InputError:
    return InputError(
        Problem(
            f"{locked.name}: the same wheels give another tree than when it was locked\n"
            f"  expected {locked.tree}\n  found    {tree}",
            hint="another release of hubkernels wrote the lock: use it, or `kernel-builder toolchain lock --update`",
        )
    )
