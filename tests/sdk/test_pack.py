"""A file of SDKs for a place without a network: what comes out is what went in, or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import zipfile
from pathlib import Path

import pytest

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, InputError
from hubkernels.model.sdk import LockedSdk, tree_hash
from hubkernels.toolchain.sdk.draft import scan
from hubkernels.toolchain.sdk.pack import pack, unpack
from hubkernels.toolchain.sdk.store import SdkStore
from tests.sdk.conftest import TORCH, TORCH_FILE, Served, Told, torch_wheel, write_wheel
from tests.sdk.test_make import lock_cuda
from tests.sdk.test_store import SMALL


def silent(_: str) -> None:
    pass


@pytest.fixture
def packed(served: Served, told: Told, tmp_path: Path) -> tuple[Path, tuple[LockedSdk, ...]]:
    told.found["torch"] = (served.add(TORCH_FILE, torch_wheel(SMALL)),)
    sdks = (lock_cuda(served, told), told.maker.lock(TORCH))
    pack(tmp_path / "sdks.zip", list(told.store.stored()), silent)
    return tmp_path / "sdks.zip", sdks


def test_what_was_packed_is_unpacked(packed: tuple[Path, tuple[LockedSdk, ...]], tmp_path: Path) -> None:
    store = SdkStore(tmp_path / "far")
    assert set(unpack(packed[0], store, silent)) == set(packed[1])
    for sdk in packed[1]:
        root = store.find(sdk.tree)
        assert root
        assert tree_hash(scan(root)) == sdk.tree
    cuda = store.find(packed[1][0].tree)
    assert cuda
    assert os.access(cuda / "nvidia/cu13/bin/nvcc", os.X_OK)
    assert (cuda / "nvidia/cu13/lib64/libcudart.so").read_bytes() == b"cudart"


def test_what_is_there_already_stays(packed: tuple[Path, tuple[LockedSdk, ...]], tmp_path: Path) -> None:
    store = SdkStore(tmp_path / "far")
    unpack(packed[0], store, silent)
    before = {stored.sdk.tree: stored.root.stat().st_ino for stored in store.stored()}
    unpack(packed[0], store, silent)
    assert before == {stored.sdk.tree: stored.root.stat().st_ino for stored in store.stored()}


def test_a_flipped_byte_anywhere_brings_nothing_else_in(
    packed: tuple[Path, tuple[LockedSdk, ...]], tmp_path: Path
) -> None:
    """At random places: of a file that is refused nothing is kept, and what is kept is right."""
    whole, draw = packed[0].read_bytes(), random.Random(7)  # noqa: S311 - no secret
    refused = 0
    for at in sorted(draw.sample(range(len(whole)), 120)):
        packed[0].write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        store = SdkStore(tmp_path / "far" / str(at))
        with contextlib.suppress(CheckFailedError, InputError):
            unpack(packed[0], store, silent)
        refused += not list(store.stored())
        assert all(tree_hash(scan(stored.root)) == stored.sdk.tree for stored in store.stored())
    assert refused > 90, "the others are fields of the zip that nobody reads, as its times"


def test_a_flipped_byte_of_a_file_is_refused_by_its_name(
    packed: tuple[Path, tuple[LockedSdk, ...]], tmp_path: Path
) -> None:
    with zipfile.ZipFile(packed[0]) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith("torch/include/b/c.h"))
    content = bytearray(packed[0].read_bytes())
    content[info.header_offset + 30 + len(info.filename) + 3] ^= 0x10
    packed[0].write_bytes(content)
    with pytest.raises(CheckFailedError, match=r"sdks\.zip is damaged: '\w{64}/root/torch/include/b/c\.h'") as error:
        unpack(packed[0], SdkStore(tmp_path / "far"), silent)
    assert "hint: nothing of it was kept: copy it again" in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tree": {"../x": "f 0"}}, r"'\.\./x' leads out of the folder"),
        ({"tree": {"x": "l ../../x"}}, "'x' leads out of the folder"),
        ({"tree": {"x": 1}}, "this tells of no SDK"),
        ({"tree": {"x": "l \ud800"}}, "this tells of no SDK"),
        ({"tree": {"x": "f 0"}}, "'.*/root/x' is not in it"),
        ({"tree": {}}, "has the tree"),
        ({"recipe": "1"}, "this tells of no SDK"),
    ],
    ids=ascii,
)
def test_a_file_that_tells_of_another_tree_is_refused(
    packed: tuple[Path, tuple[LockedSdk, ...]], told: Told, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    stored = next(iter(told.store.stored()))
    about = stored.root.parent / "about.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), **change}))
    content = {k: v for k, v in json.loads(about.read_text()).items() if k != "form"}
    name = f"{stored.sdk.tree}/sdk.json"
    packed[0].write_bytes(write_wheel("hubkernels-sdks", "1", {name: json.dumps(content).encode()}))
    with pytest.raises(CheckFailedError, match=message):
        unpack(packed[0], SdkStore(tmp_path / "far"), silent)


@pytest.mark.parametrize("altered", ["root/torch/include/a.h", "about.json"])
def test_what_was_altered_is_named_and_not_packed(
    packed: tuple[Path, tuple[LockedSdk, ...]], told: Told, tmp_path: Path, altered: str
) -> None:
    """It used to be found out where it was unpacked, without the name of a file."""
    root = told.store.find(packed[1][1].tree)
    assert root
    path = root.parent / altered
    path.write_bytes(
        path.read_bytes().replace(b"torch/include/a.h", b"torch/include/z.h") + b"\n" * (path.suffix == ".h")
    )
    with pytest.raises(CheckFailedError, match=rf"torch 2\.12 for .* was altered: {altered.removeprefix('root/')}\n"):
        pack(tmp_path / "other.zip", [told.store.told(root)], silent)
    assert not (tmp_path / "other.zip").exists()


@pytest.mark.parametrize("kind", ["a pipe", "gone"])
def test_what_is_no_file_is_named_and_not_packed(
    packed: tuple[Path, tuple[LockedSdk, ...]], told: Told, tmp_path: Path, kind: str
) -> None:
    """A pipe used to be waited for, for ever."""
    root = told.store.find(packed[1][1].tree)
    assert root
    header = root / "torch/include/a.h"
    header.unlink()
    if kind == "a pipe":
        os.mkfifo(header)
    why = {"a pipe": "is no regular file", "gone": "No such file or directory"}[kind]
    with pytest.raises(
        CheckFailedError, match=rf"altered: torch/include/a\.h: {why}\n[^$]*`kernel-builder toolchain v"
    ):
        pack(tmp_path / "other.zip", [told.store.told(root)], silent)
    assert not (tmp_path / "other.zip").exists()


def test_what_does_not_tell_what_it_is_is_not_passed_over(
    packed: tuple[Path, tuple[LockedSdk, ...]], told: Told
) -> None:
    root = told.store.find(packed[1][1].tree)
    assert root
    about = root.parent / "about.json"
    about.write_text(about.read_text().replace('"tree": {', '"tree": [{'))
    with pytest.raises(EnvironmentLacksError, match=r"does not tell what it is[^$]*about\.json[^$]*toolchain verify"):
        told.store.told(root)


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"torch/version.py": b""}, InputError, "there is no SDK in .*other.zip[^$]*toolchain pack"),
        ({"0/sdk.json": b"{"}, CheckFailedError, "this tells of no SDK"),
        ({"0/sdk.json": b"[" * 100_000}, CheckFailedError, "this tells of no SDK"),
    ],
)
def test_a_file_that_was_not_packed_here_is_refused(
    tmp_path: Path, files: dict[str, bytes], error: type[Exception], message: str
) -> None:
    """A wheel used to be unpacked without a word, and broken JSON was a traceback."""
    (tmp_path / "other.zip").write_bytes(write_wheel("torch", "2.12.1", files))
    with pytest.raises(error, match=message):
        unpack(tmp_path / "other.zip", SdkStore(tmp_path / "far"), silent)
