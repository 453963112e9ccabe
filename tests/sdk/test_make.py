"""Wheels by parts, or whole, become SDKs: the right bytes or an error that names them, whatever the server does."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from hubkernels.errors import EnvironmentLacksError, HubkernelsError, InputError
from hubkernels.model.going import Going
from hubkernels.model.sdk import LockedSdk, tree_hash
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk import patience, ranges
from hubkernels.toolchain.sdk.draft import scan
from hubkernels.toolchain.sdk.fatbinary import PROGRAM, translator
from hubkernels.toolchain.sdk.index import Found, Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.recipes import RECIPES
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Settings, Transfer
from tests.sdk.conftest import (
    CUDA,
    CUDA_12_FILES,
    CUDA_FILES,
    PLATFORM,
    TORCH,
    TORCH_FILE,
    TORCH_FILES,
    Served,
    Told,
    digest,
    torch_wheel,
    write_wheel,
)

HEADERS = {path: content for path, content in TORCH_FILES.items() if path.startswith("torch/include/")}


def lock_torch(told: Told, found: Found) -> LockedSdk:
    told.found["torch"] = (found,)
    return told.maker.lock(TORCH)


def root_of(told: Told, sdk: LockedSdk) -> Path:
    root = told.store.find(sdk.tree)
    assert root
    return root


def test_a_torch_sdk_is_its_headers_its_version_and_stubs_of_its_libraries(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    root = root_of(told, sdk)
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert files == {*HEADERS, "torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libc10.so"}
    assert all((root / path).read_bytes() == content for path, content in HEADERS.items())
    assert b"libtorch_cpu.so\0" in (root / "torch/lib/libtorch_cpu.so").read_bytes()
    assert (root / "torch/lib/libtorch_cpu.so").stat().st_size < 1000
    assert tree_hash(scan(root)) == sdk.tree


def test_the_lock_names_the_wheel_and_no_host(served: Served, told: Told) -> None:
    content = torch_wheel()
    (wheel,) = lock_torch(told, served.add(TORCH_FILE, content)).wheels
    assert wheel.file == TORCH_FILE
    assert re.fullmatch(rf"packages/\w{{4}}/{re.escape(TORCH_FILE)}", wheel.path)
    assert (wheel.sha256, wheel.size) == (hashlib.sha256(content).hexdigest(), len(content))


def test_only_the_parts_that_are_needed_are_fetched_and_neighbours_together(
    served: Served, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_TAIL", 4096)
    monkeypatch.setattr(ranges, "_GAP", 1024)
    monkeypatch.setattr(ranges, "_BLOCK", 4096)
    files = dict(TORCH_FILES) | {"torch/lib/libtorch_cpu.so": os.urandom(3_000_000)}
    lock_torch(told, served.add(TORCH_FILE, torch_wheel(files)))
    parts = served.parts_of(TORCH_FILE)
    received = sum(int(b) - int(a) + 1 for a, b in (re.findall(r"\d+", part) for part in parts))
    assert received < 60_000
    assert len(parts) <= 5  # one byte, the end, perhaps the directory, the headers, what lies behind the library


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("no ranges", "gives no parts of it"),
        ("another part", r"asked for bytes \d+-\d+, got 'bytes"),
        ("no word of it", r"asked for bytes \d+-\d+, got ''"),
        ("too little", "broke off"),
        ("other bytes", "is damaged"),
        ("grows", "changed while it was read"),
        ("changes", "changed while it was read"),
        ("416", "the server answers 416"),
        ("501", "the server answers 501"),
    ],
)
def test_a_server_without_honest_ranges_is_asked_for_the_whole_and_says_why(
    served: Served, told: Told, way: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_TAIL", 4096)
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel(), way))
    assert sdk.tree == tree_hash(scan(root_of(told, sdk)))
    (said,) = [line for line in told.said if line.startswith(f"fetching all of {TORCH_FILE}: ")]
    assert re.search(why, said)
    assert [part for path, part, _ in served.asked if path.endswith(".whl")][-1] is None


def test_nothing_stays_of_parts_that_turn_out_to_be_of_another_wheel(
    served: Served, told: Told, tmp_path: Path
) -> None:
    honest = lock_torch(Told(type(told.store)(tmp_path / "honest")), served.add(TORCH_FILE, torch_wheel()))
    evil = {"torch/include/0.h": b"evil", **TORCH_FILES}
    last = "torch/include/c10/last.h"
    parts = write_wheel("torch", "2.12.1", evil, listed={last: f"{last},{digest(b'')},{len(evil[last])}"})
    served.parts[next(iter(served.files))] = parts
    assert lock_torch(told, served.add(TORCH_FILE, torch_wheel())).tree == honest.tree
    assert any("its RECORD says" in line for line in told.said)


@pytest.mark.parametrize("kind", ["altered", "gone"])
def test_a_wheel_of_a_folder_that_is_not_what_pip_said_is_refused(told: Told, tmp_path: Path, kind: str) -> None:
    path = tmp_path / TORCH_FILE
    found = Found("torch", "2.12.1", path.as_uri(), "0" * 64)
    if kind == "altered":
        path.write_bytes(torch_wheel())
    with pytest.raises(
        HubkernelsError, match={"altered": "has other bytes", "gone": "cannot read .*No such file"}[kind]
    ):
        lock_torch(told, found)


def test_every_way_gives_the_same_sdk(served: Served, told: Told, tmp_path: Path) -> None:
    content, sdks = torch_wheel(), []
    (tmp_path / TORCH_FILE).write_bytes(content)
    local = Found("torch", "2.12.1", (tmp_path / TORCH_FILE).as_uri(), hashlib.sha256(content).hexdigest())
    for number, found in enumerate(
        (served.add(TORCH_FILE, content), served.add(TORCH_FILE, content, "no ranges"), local)
    ):
        own = Told(type(told.store)(tmp_path / str(number)))
        sdks.append(lock_torch(own, found))
    assert len({sdk.tree for sdk in sdks}) == 1
    assert sdks[2].wheels[0].path == TORCH_FILE, "no folder of a machine"


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (
            "altered",
            "has other bytes than it must have\n  expected sha256 [0-9a-f]{64}\n  found    sha256 [0-9a-f]{64}",
        ),
        ("whole altered", "has other bytes than it must have"),
    ],
)
def test_a_whole_wheel_of_other_bytes_is_refused_with_both_hashes(
    served: Served, told: Told, way: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        lock_torch(told, served.add(TORCH_FILE, torch_wheel(), way))
    assert list(told.store.stored()) == []


def test_a_download_that_breaks_off_is_tried_again_once(served: Served, told: Told) -> None:
    lock_torch(told, served.add(TORCH_FILE, torch_wheel(), "broken once"))


def test_a_download_that_breaks_off_twice_is_an_error_that_leaves_nothing(served: Served, told: Told) -> None:
    with pytest.raises(EnvironmentLacksError, match=rf"{re.escape(TORCH_FILE)} broke off"):
        lock_torch(told, served.add(TORCH_FILE, torch_wheel(), "broken off"))
    assert [path for path in told.store.folder.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_redirect_is_followed_and_its_server_gets_no_credentials_of_the_first(
    served: Served, another: Served, told: Told
) -> None:
    served.user = "me:secret"
    elsewhere = another.add(TORCH_FILE, torch_wheel())
    found = dataclasses.replace(served.add(TORCH_FILE, b"", f"to {elsewhere.url}"), sha256=elsewhere.sha256)
    told.settings = Settings(credentials={served.url.removeprefix("http://"): "me:secret"})
    lock_torch(told, found)
    assert {user for _, _, user in another.asked} == {None}
    assert None not in {user for _, _, user in served.asked}


def test_without_credentials_the_error_says_where_they_are_looked_for(served: Served, told: Told) -> None:
    served.user = "me:secret"
    found = served.add(TORCH_FILE, torch_wheel())
    url = found.url.replace("http://", "http://me:wrong@") + "?signature=hidden"
    with pytest.raises(EnvironmentLacksError, match=r"the server answers 401[^$]*netrc") as error:
        lock_torch(told, dataclasses.replace(found, url=url))
    assert "wrong" not in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_server_that_is_not_there_is_told(served: Served, told: Told) -> None:
    found = dataclasses.replace(served.add(TORCH_FILE, torch_wheel()), url=f"http://127.0.0.1:9/{TORCH_FILE}")
    with pytest.raises(EnvironmentLacksError, match="cannot fetch http://127.0.0.1:9/torch"):
        lock_torch(told, found)


def test_a_cuda_toolkit_is_one_tree_with_programs_and_links(served: Served, told: Told) -> None:
    sdk = lock_cuda(served, told)
    cuda = root_of(told, sdk) / "nvidia/cu13"
    assert os.access(cuda / "bin/nvcc", os.X_OK)
    assert os.access(cuda / "nvvm/bin/cicc", os.X_OK)
    assert not os.access(cuda / "include/crt/host_config.h", os.X_OK)
    assert (cuda / "lib64/libcudart.so").read_bytes() == b"cudart"
    assert (cuda / "lib64").readlink() == Path("lib")
    assert not (cuda.parent / "__init__.py").exists()


def test_a_toolkit_of_cuda_12_is_one_tree_of_what_clang_takes(served: Served, told: Told) -> None:
    kit = served.add("cuda_toolkit-12.6.3-py2.py3-none-any.whl", write_wheel("cuda-toolkit", "12.6.3", {}))
    pins = tuple(f"{project}==12.6.*; extra == 'all'" for project in CUDA_12_FILES)
    told.found["cuda-toolkit"] = (dataclasses.replace(kit, requires=pins),)
    for project, content in CUDA_12_FILES.items():
        file = f"{project.replace('-', '_')}-12.6.77-py3-none-manylinux2014_x86_64.whl"
        told.found[project] = (served.add(file, write_wheel(project, "12.6.77", content)),)
    sdk = told.maker.lock(dataclasses.replace(CUDA, version=Version((12, 6))))
    root = root_of(told, sdk) / "nvidia/cu12"
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    headers = {"crt/mma.h", "cuda.h", "cuda/std/array", "curand_mtgp32_kernel.h"}
    programs = {"bin/ptxas", "bin/fatbinary", f"bin/{PROGRAM}"}
    libraries = {"lib/libcudart.so", "lib/libcudart.so.12"}
    assert files == {*programs, "nvvm/libdevice/libdevice.10.bc", *(f"include/{path}" for path in headers), *libraries}
    assert all(os.access(root / program, os.X_OK) for program in programs)
    assert (root / "lib64/libcudart.so").read_bytes() == b"cudart"
    assert (root / "bin/fatbinary").read_bytes() == translator()
    assert tree_hash(scan(root_of(told, sdk))) == sdk.tree


def lock_cuda(served: Served, told: Told, files: dict[str, dict[str, bytes]] = CUDA_FILES) -> LockedSdk:
    for project, content in files.items():
        file = f"{project.replace('-', '_')}-13.0.88-py3-none-manylinux2014_x86_64.whl"
        told.found[project] = (served.add(file, write_wheel(project, "13.0.88", content)),)
    return told.maker.lock(CUDA)


def test_two_wheels_that_bring_one_path_with_different_bytes_are_refused(served: Served, told: Told) -> None:
    files = {**CUDA_FILES, "nvidia-nvvm": {"nvidia/cu13/LICENSE": b"another\n"}}
    with pytest.raises(InputError, match=r"two wheels of one SDK bring nvidia/cu13/LICENSE"):
        lock_cuda(served, told, files)


@pytest.mark.parametrize("path", ["nvidia/cu13/bin", "nvidia/cu13/bin/nvcc/x", "nvidia/cu13/bin/nvcc/x/y"])
def test_a_file_of_one_wheel_where_another_has_a_folder_is_refused_by_name(
    served: Served, told: Told, path: str
) -> None:
    """It used to be told as a disk that cannot be written."""
    files = {**CUDA_FILES, "nvidia-nvvm": {path: b"another\n"}}
    with pytest.raises(InputError, match=rf"of one SDK do not go together at {path}: one has a file"):
        lock_cuda(served, told, files)


def test_what_is_kept_is_not_fetched_again(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    served.asked.clear()
    assert told.maker.lock(TORCH) == sdk
    told.found.clear()
    assert told.maker.fetch(sdk) == root_of(told, sdk)
    assert served.asked == []


def forget_all(told: Told) -> None:
    for stored in list(told.store.stored()):
        told.store._remove(stored.root.parent)


def test_a_locked_sdk_is_made_again_wherever_the_file_lies(served: Served, told: Told, tmp_path: Path) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    (tmp_path / TORCH_FILE).write_bytes(torch_wheel())
    told.found["torch"] = (dataclasses.replace(told.found["torch"][0], url=(tmp_path / TORCH_FILE).as_uri()),)
    assert tree_hash(scan(told.maker.fetch(sdk))) == sdk.tree
    assert [stored.sdk for stored in told.store.stored()] == [sdk]


def test_a_newer_build_of_a_locked_release_is_passed_over(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    newer = TORCH_FILE.replace("2.12.1-", "2.12.1-3-")
    told.found["torch"] = (served.add(newer, torch_wheel({**TORCH_FILES, "torch/include/new.h": b""})),)
    assert tree_hash(scan(told.maker.fetch(sdk))) == sdk.tree
    forget_all(told)
    del served.files[next(path for path in served.files if path.endswith(f"/{TORCH_FILE}"))]
    with pytest.raises(EnvironmentLacksError, match="the server answers 404"):
        told.maker.fetch(sdk)
    assert told.renewals == 1


@pytest.mark.parametrize("kind", ["gone", "refused", "no server", "other bytes"])
def test_an_answer_that_leads_nowhere_is_asked_for_once_more(
    served: Served, another: Served, told: Told, kind: str
) -> None:
    """A kept one is of long ago: with an address that had expired, or a host that was gone, it failed for ever."""
    right = served.add(TORCH_FILE, torch_wheel())
    sdk = lock_torch(told, right)
    another.user = "me:secret"
    outdated = {
        "gone": dataclasses.replace(right, url=f"{served.url}/packages/gone/{TORCH_FILE}"),
        "refused": another.add(TORCH_FILE, torch_wheel()),
        "no server": dataclasses.replace(right, url=f"http://127.0.0.1:9/{TORCH_FILE}"),
        "other bytes": dataclasses.replace(right, sha256="0" * 64),
    }
    told.found["torch"], told.newer["torch"] = (outdated[kind],), (right,)
    forget_all(told)
    assert tree_hash(scan(told.maker.fetch(sdk))) == sdk.tree
    assert told.renewals == 1
    if kind != "other bytes":  # of parts no hash of the whole is known
        forget_all(told)
        assert told.maker.lock(TORCH) == sdk


def test_an_answer_that_stays_the_same_leads_to_the_error_that_it_led_to(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    served.user = "me:secret"
    with pytest.raises(EnvironmentLacksError, match="the server answers 401"):
        told.maker.fetch(sdk)
    assert told.renewals == 1


@pytest.mark.parametrize("kind", ["it came just now", "it cannot be asked for"])
def test_without_a_newer_answer_the_first_error_is_told(
    served: Served, told: Told, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreached(*_: object) -> None:
        raise EnvironmentLacksError("no network")

    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    served.user = "me:secret"
    monkeypatch.setattr(Told, "renewed", lambda _: SimpleNamespace(ask=unreached))
    if kind == "it came just now":
        told.kept = False
        monkeypatch.setattr(Told, "renewed", lambda _: pytest.fail("it is asked again"))
    with pytest.raises(EnvironmentLacksError, match="the server answers 401"):
        told.maker.fetch(sdk)


def test_a_fresh_answer_that_fails_is_not_asked_again_after_a_kept_one(
    served: Served, index: Index, store: SdkStore
) -> None:
    """Once one SDK was made by a kept answer, all that came later in the run counted as kept."""
    served.add(TORCH_FILE, torch_wheel())
    served.add_cuda()
    RECIPES["torch"].wheels(TORCH, index.renewed())
    Maker(store, index, lambda: Transfer(Settings()), lambda _: None).lock(TORCH)
    assert index.from_memory
    nowhere = Settings(proxy="http://127.0.0.1:9")
    with pytest.raises(EnvironmentLacksError, match="cannot fetch"):
        Maker(store, index, lambda: Transfer(nowhere), lambda _: None).lock(CUDA)
    assert [path for path, *_ in served.asked].count("/simple/nvidia-cuda-nvcc/") == 1


def test_while_the_index_is_asked_it_is_told_how_long_by_now(
    served: Served, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal showed nothing, however long pip took."""
    monkeypatch.setattr(patience, "_TOLD_S", 0.01)
    ask, heard = Told.ask, threading.Event()
    monkeypatch.setattr(Told, "ask", lambda *words: heard.wait(60) and ask(*words))

    class Said(list[str]):
        def append(self, text: str) -> None:
            super().append(text)
            heard.set()

    told.said = Said()
    lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    assert told.said[0] == f"asking the package index for {TORCH}: 0 s"
    assert isinstance(told.said[0], Going)


def test_other_bytes_than_locked_are_named_with_both_hashes(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    told.found["torch"] = (served.add(TORCH_FILE, torch_wheel({**TORCH_FILES, "torch/include/new.h": b""})),)
    with pytest.raises(InputError, match=f"{re.escape(TORCH_FILE)} has other bytes") as error:
        told.maker.fetch(sdk)
    assert sdk.wheels[0].sha256 in str(error.value)
    assert told.found["torch"][0].sha256 in str(error.value)
    assert list(told.store.stored()) == []


def test_parts_of_another_wheel_under_the_locked_hash_are_refused(served: Served, told: Told) -> None:
    """A server that gives parts of other bytes, with a RECORD to match: the whole is never hashed."""
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    forget_all(told)
    other = served.add(
        TORCH_FILE, torch_wheel({**TORCH_FILES, "torch/include/c10/last.h": b"// evil, as long as it\n"})
    )
    told.found["torch"] = (dataclasses.replace(other, sha256=sdk.wheels[0].sha256),)
    with pytest.raises(InputError, match="has other files than it had when it was locked"):
        told.maker.fetch(sdk)
    assert list(told.store.stored()) == []


def test_another_recipe_for_the_same_wheels_is_told(served: Served, told: Told) -> None:
    sdk = lock_torch(told, served.add(TORCH_FILE, torch_wheel()))
    with pytest.raises(InputError, match="the same wheels give another tree than when it was locked"):
        told.maker.fetch(dataclasses.replace(sdk, tree="0" * 64))


def test_a_wheel_without_a_file_of_an_sdk_is_told(served: Served, told: Told) -> None:
    with pytest.raises(EnvironmentLacksError, match="has none of the files that an SDK is made of"):
        lock_torch(told, served.add(TORCH_FILE, torch_wheel({"torch/nn.py": b""})))
    assert PLATFORM in str(TORCH)
