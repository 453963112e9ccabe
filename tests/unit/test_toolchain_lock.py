"""toolchain.lock: one text for one set of SDKs, and an error with its place for what is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hubkernels.errors import InputError
from hubkernels.model.sdk import LockedSdk, SdkName, Wheel, lock_text, read_lock, tree_hash
from hubkernels.model.version import Version

FILE = "torch-2.10.0-3-cp313-cp313-manylinux_2_28_x86_64.whl"
WHEEL = Wheel(FILE, f"packages/aa/{FILE}", "a" * 64, 9, "b" * 64)
NVCC = "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux_2_28_x86_64.whl"


def wheel(file: str) -> Wheel:
    return replace(WHEEL, file=file, path=f"packages/aa/{file}")


TORCH = LockedSdk(SdkName("torch", Version((2, 10)), "x86_64-linux"), (WHEEL,), "c" * 64)
LATER = LockedSdk(SdkName("torch", Version((2, 9)), "x86_64-linux"), (wheel(FILE.replace("2.10", "2.9")),), "d" * 64)
CUDA = LockedSdk(SdkName("cuda", Version((13, 0)), "x86_64-linux"), (wheel(NVCC),), "e" * 64)


def test_the_order_is_that_of_kinds_and_versions_whatever_came_first() -> None:
    text = lock_text([TORCH, LATER, CUDA])
    assert text == lock_text([CUDA, TORCH, LATER])
    assert [entry["version"] for entry in json.loads(text)["sdks"]] == ["13.0", "2.9", "2.10"]
    assert set(read_lock(text.encode(), "x")) == {TORCH, LATER, CUDA}


def test_a_wheel_knows_its_project_and_release_with_a_build_tag_and_a_local_part() -> None:
    assert (WHEEL.project, WHEEL.release) == ("torch", "2.10.0")
    local = Wheel("nvidia_cuda_nvcc-13.0.88+x-py3-none-any.whl", "", "", 0, "")
    assert (local.project, local.release) == ("nvidia-cuda-nvcc", "13.0.88+x")


def test_a_tree_has_one_hash_that_every_part_of_it_decides() -> None:
    tree = {"a": "f 1", "b/c": "x 2", "l": "l a"}
    assert tree_hash(tree) == tree_hash(dict(reversed(tree.items())))
    others = [{**tree, "a": "x 1"}, {**tree, "l": "l b"}, {**tree, "d": "f 1"}, {"a": "f 1", "b/c": "x 2"}]
    assert len({tree_hash(other) for other in (tree, *others)}) == 5


def changed(**change: object) -> dict[str, Any]:
    return {**json.loads(lock_text([TORCH]))["sdks"][0], **change}


def with_wheel(**change: object) -> dict[str, Any]:
    return changed(wheels=[{**vars(WHEEL), **change}])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (1, r"sdks\[0\]"),
        (changed(wheels=[]), "an SDK has"),
        (changed(kind="rocm"), r"'rocm' is no kind of SDK[^$]*sdks\[0\]\.kind"),
        (changed(version="new"), r"not a version number[^$]*sdks\[0\]\.version"),
        (changed(version=2.1), r"2\.1 cannot stand here"),
        (changed(platform="../x"), r"sdks\[0\]\.platform"),
        (changed(tree="../../etc"), r"sdks\[0\]\.tree"),
        (with_wheel(file="../x.whl"), r"wheels\[0\]\.file"),
        (with_wheel(file="x.whl"), r"wheels\[0\]\.file"),
        (with_wheel(path=f"https://u:p@host/{FILE}"), r"no path of torch\S+ below an index"),
        (with_wheel(path=f"/opt/{FILE}"), r"below an index"),
        (with_wheel(path="packages/other.whl"), r"below an index"),
        (with_wheel(path=f"a\0b/{FILE}"), r"wheels\[0\]\.path"),
        (with_wheel(path=f"a\ud800b/{FILE}"), r"wheels\[0\]\.path"),
        (with_wheel(size=-1), "-1 is no size"),
        (with_wheel(size=True), "True is no size"),
        (with_wheel(sha256="A" * 64), r"wheels\[0\]\.sha256"),
        (with_wheel(record=None), r"wheels\[0\]\.record"),
        (changed(wheels=[1]), r"a wheel has a file"),
        (changed(version="2.11"), r"torch-2\.10\.0\S+ makes no torch 2\.11[^$]*sdks\[0\]\.version"),
        (changed(kind="cuda", version="13.0"), r"torch-2\.10\.0\S+ makes no SDK of cuda"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_the_way_out(entry: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_lock(json.dumps({"form": 1, "sdks": [entry]}).encode(), "toolchain.lock")
    assert "toolchain lock --update" in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", '{"form": 2, "sdks": []}', '{"form": 1}', "[" * 10_000])
def test_what_is_no_lock_is_told(text: str) -> None:
    with pytest.raises(InputError, match="lock"):
        read_lock(text.encode(), "toolchain.lock")


def test_the_way_out_of_a_newer_form_is_no_older_lock() -> None:
    with pytest.raises(InputError, match="this lock has the form 2, and this hubkernels knows 1") as error:
        read_lock(b'{"form": 2, "sdks": []}', "toolchain.lock")
    assert "a newer hubkernels wrote it" in str(error.value)
    assert "--update" not in str(error.value)


def test_one_sdk_twice_is_refused() -> None:
    twice = json.dumps({"form": 1, "sdks": [changed(), changed(tree="f" * 64)]})
    with pytest.raises(InputError, match=r"torch 2\.10 for x86_64-linux is locked twice"):
        read_lock(twice.encode(), "toolchain.lock")
