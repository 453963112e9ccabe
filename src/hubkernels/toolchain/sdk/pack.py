"""SDKs in one file, for a place without a network: a zip with a hash of each of its files, like a wheel."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.host.files import disk_errors, json_object, read_errors, read_regular
from hubkernels.model.going import Going
from hubkernels.model.sdk import MENDS, LockedSdk, Tree, read_about, sdk_to_json, tree_hash
from hubkernels.toolchain.sdk.draft import Draft
from hubkernels.toolchain.sdk.ranges import Tell
from hubkernels.toolchain.sdk.store import SdkStore, Stored
from hubkernels.toolchain.sdk.wheel import OpenWheel, is_inside

_ABOUT = "sdk.json"
_RECORD = "hubkernels_sdks.dist-info/RECORD"
_TIME = (1980, 1, 1, 0, 0, 0)
_TOLD_S = 1.0


def pack(file: Path, sdks: Sequence[Stored], tell: Tell) -> None:
    """Write SDKs to a file, which appears whole or not at all. Raises CheckFailedError for what was altered."""
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as scratch:
            whole = Path(scratch, "whole")
            with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                lines = [line for stored in sdks for line in _add(archive, stored, tell)]
                _write(archive, _RECORD, "".join((*lines, f"{_RECORD},,\n")).encode())
            whole.replace(file)


def _add(archive: zipfile.ZipFile, stored: Stored, tell: Tell) -> Iterator[str]:
    """One SDK; yields the lines of the list."""
    folder, files = stored.sdk.tree, _files(stored.tree)
    tell(f"packing {stored.sdk.name}")
    told = time.monotonic()
    if tree_hash(stored.tree) != stored.sdk.tree:
        raise _altered(stored, "about.json")
    about = {"sdk": sdk_to_json(stored.sdk), "recipe": stored.form, "tree": stored.tree}
    yield _write(archive, f"{folder}/{_ABOUT}", json.dumps(about, sort_keys=True).encode())
    for number, path in enumerate(files):
        yield _write(archive, f"{folder}/root/{path}", _content(stored, path))
        if time.monotonic() - told > _TOLD_S:
            told = time.monotonic()
            tell(Going(f"packing {stored.sdk.name}: {number + 1} of {len(files)} files"))


def _content(stored: Stored, path: str) -> bytes:
    try:
        content = read_regular(stored.root / path)
    except OSError as error:
        raise _altered(stored, f"{path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != stored.tree[path].partition(" ")[2]:
        raise _altered(stored, path)
    return content


def _altered(stored: Stored, path: str) -> CheckFailedError:
    return CheckFailedError(Problem(f"{stored.sdk.name} was altered: {path}", str(stored.root), MENDS))


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> str:
    info = zipfile.ZipInfo(name, _TIME)
    info.external_attr = 0o644 << 16
    archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def unpack(file: Path, store: SdkStore, tell: Tell) -> tuple[LockedSdk, ...]:
    """Take the SDKs of a file into the store. Raises CheckFailedError that names what is damaged; then takes none."""
    with read_errors(file), file.open("rb") as opened, store.part(f"the SDKs of {file.name}", tell) as part:
        with _damage():
            archive = OpenWheel(opened, file.name)
        abouts = [name for name in archive.names if name.count("/") == 1 and name.endswith(f"/{_ABOUT}")]
        if not abouts:
            hint = "such a file is what `kernel-builder toolchain pack` writes"
            raise InputError(Problem(f"there is no SDK in {file}", hint=hint))
        drafts = []
        for number, name in enumerate(abouts):
            room = part / str(number)
            with disk_errors(room):
                (room / "root").mkdir(parents=True)
            with _damage():
                drafts.append(_read(archive, name, Draft(room / "root"), file, tell))
        for draft, sdk, form in drafts:
            if not store.find(sdk.tree):
                store.keep(draft, sdk, form)
        return tuple(sdk for _, sdk, _ in drafts)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Nobody wrote what is wrong in there: it came to harm on the way."""
    try:
        yield
    except InputError as error:
        hint = "nothing of it was kept: copy it again"
        raise CheckFailedError(*(replace(each, hint=hint) for each in error.problems)) from error


def _read(archive: OpenWheel, name: str, draft: Draft, file: Path, tell: Tell) -> tuple[Draft, LockedSdk, int]:
    ((_, text),) = archive.read((name,))
    sdk, form, tree = _about(json_object(text), f"{file}: {name}")
    tell(f"unpacking {sdk.name}")
    start = f"{sdk.tree}/root/"
    listed = [f"{start}{path}" for path in _files(tree)]
    if missing := set(listed) - set(archive.names):
        raise InputError(Problem(f"{file.name} is damaged: {min(missing)!r} is not in it"))
    told = time.monotonic()
    for number, (member, content) in enumerate(archive.read(listed)):
        path = member.removeprefix(start)
        draft.add(path, content, program=tree[path].startswith("x "))
        if time.monotonic() - told > _TOLD_S:
            told = time.monotonic()
            tell(Going(f"unpacking {sdk.name}: {number + 1} of {len(listed)} files"))
    for path, entry in tree.items():
        if entry.startswith("l "):
            draft.link(path, entry[2:])
    if tree_hash(draft.tree) != sdk.tree:
        raise InputError(
            Problem(f"{file.name} is damaged: {sdk.name} has the tree {tree_hash(draft.tree)}", str(sdk.tree))
        )
    return draft, sdk, form


def _about(found: Mapping[str, object], where: str) -> tuple[LockedSdk, int, Tree]:
    sdk, form, tree = read_about(found, where)
    for path, entry in tree.items():
        target = entry[2:] if entry.startswith("l ") else "inside"
        if not is_inside(path) or not is_inside(target):
            raise InputError(Problem(f"{path!r} leads out of the folder that it is unpacked to", where))
    return sdk, form, tree


def _files(tree: Mapping[str, str]) -> list[str]:
    return sorted(path for path, entry in tree.items() if not entry.startswith("l "))
