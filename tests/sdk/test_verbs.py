"""`kernel-builder toolchain`: a lock that is kept, what it pins fetched once, carried, checked and pruned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hubkernels.build.cache import find_cache
from hubkernels.build.sdks import ProjectSdks
from hubkernels.config.variant_table import load_variant_table
from hubkernels.host.store import Store
from hubkernels.model.backend import BACKENDS
from hubkernels.model.sdk import lock_text
from hubkernels.model.size import size_text
from hubkernels.model.variant import NoarchVariant, Platform, Variant
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk.wanted import Wanted, wanted_sdks, without_clang
from tests.conftest import CPU_VARIANT, Cli, SmallProject
from tests.sdk.conftest import Served, pip_environment, torch_wheel

TORCH_FILE = "torch-2.10.0-3-cp313-cp313-manylinux_2_28_x86_64.whl"
HERE = Platform("x86_64", "linux")

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels of these tests are for x86_64")


def pip_asks(served: Served, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """From now on this process, and pip below it, know the index of the test alone."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in pip_environment(home, f"{served.url}/simple/").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def project(
    served: Served, small: SmallProject, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> SmallProject:
    """A project for the CPU, with the stable ABI of torch 2.10, and an index that has that torch."""
    home = tmp_path_factory.mktemp("home")
    pip_asks(served, monkeypatch, home)
    monkeypatch.setenv("HUBKERNELS_CACHE", str(home / "cache"))
    served.add(TORCH_FILE, torch_wheel(release="2.10.0"))
    return small


def lock_of(project: SmallProject) -> list[dict[str, Any]]:
    found = json.loads((project.root / "toolchain.lock").read_text())
    assert found["form"] == 1
    return list(found["sdks"])


def test_what_is_locked_stays_and_what_lacks_is_added(project: SmallProject, served: Served, cli: Cli) -> None:
    first = cli("toolchain", "lock", "-C", project.root)
    assert first.code == 0, first.err
    assert [(sdk["kind"], sdk["version"], sdk["wheels"][0]["file"]) for sdk in lock_of(project)] == [
        ("torch", "2.10", TORCH_FILE)
    ]
    assert served.url.removeprefix("http://") not in (project.root / "toolchain.lock").read_text()
    served.add(TORCH_FILE.replace("2.10.0-3", "2.10.1"), torch_wheel(release="2.10.1"))
    before = lock_of(project)
    served.asked.clear()
    assert cli("toolchain", "lock", "-C", project.root).out.endswith("there\n")
    assert (lock_of(project), served.asked) == (before, [])
    assert cli("toolchain", "lock", "--update", "-C", project.root).code == 0
    assert "torch-2.10.1-" in lock_of(project)[0]["wheels"][0]["file"]


def test_an_update_drops_what_no_variant_needs_and_replaces_a_lock_that_cannot_be_read(
    project: SmallProject, served: Served, cli: Cli
) -> None:
    cli("toolchain", "lock", "-C", project.root)
    elsewhere = {**lock_of(project)[0], "platform": "aarch64-linux"}
    (project.root / "toolchain.lock").write_text(json.dumps({"form": 1, "sdks": [*lock_of(project), elsewhere]}))
    text = (project.root / "build.toml").read_text().replace('stable-abi = "2.10"', 'stable-abi = "2.11"')
    (project.root / "build.toml").write_text(text)
    served.add(TORCH_FILE.replace("2.10.0-3", "2.11.0"), torch_wheel(release="2.11.0"))
    assert cli("toolchain", "lock", "--update", "-C", project.root).code == 0
    assert [(sdk["version"], sdk["platform"]) for sdk in lock_of(project)] == [
        *(("2.10", "aarch64-linux"), ("2.11", "x86_64-linux")),
    ]
    (project.root / "toolchain.lock").write_text("<<<<<<< ours\n")
    assert cli("toolchain", "lock", "-C", project.root).code == 2
    assert cli("toolchain", "lock", "--update", "-C", project.root).code == 0
    assert [sdk["version"] for sdk in lock_of(project)] == ["2.11"]


def test_what_the_index_lacks_is_left_out_and_told(project: SmallProject, served: Served, cli: Cli) -> None:
    served.add_cuda()
    text = (project.root / "build.toml").read_text().replace('["cpu"]', '["cpu", "cuda"]')
    (project.root / "build.toml").write_text(text)
    done = cli("toolchain", "lock", "--json", "-C", project.root)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["added"] == ["cuda 13.0 for x86_64-linux", "torch 2.10 for x86_64-linux"]
    releases = [str(row.version) for row in load_variant_table() if row.backend.name == "cuda"]
    of_clang = ", ".join(release for release in releases if release < "13")
    lacking = [release for release in releases if release > "13.0"]
    assert [line.partition(";")[0] for line in told["left-out"]] == [
        f"cuda {of_clang}: no index has its nvcc",
        *(f"cuda {each} for {HERE}: the package index has no nvidia-cuda-nvcc=={each}.*" for each in lacking),
    ]
    assert told["left-out"][-1].endswith("; it has 13.0.88")
    assert [len(sdk["wheels"]) for sdk in told["sdks"]] == [5, 1]


def test_a_locked_sdk_travels_to_a_place_without_a_network(
    project: SmallProject, served: Served, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("toolchain", "lock", "-C", project.root)
    assert cli("toolchain", "pack", tmp_path / "stick", "-C", project.root).code == 0
    monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / "far"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    served.asked.clear()
    failed = cli("toolchain", "fetch", "-C", project.root)
    assert (failed.code, "the package index cannot be reached for torch===2.10.0" in failed.err) == (3, True)
    assert "not fetched" in cli("toolchain", "list", "-C", project.root).out
    assert cli("toolchain", "unpack", tmp_path / "stick", "-C", project.root).code == 0
    fetched = cli("toolchain", "fetch", "--json", "-C", project.root)
    assert (fetched.code, served.asked) == (0, [])
    (sdk,) = json.loads(fetched.out)
    assert (Path(sdk["folder"]) / "torch/include/ATen/h1.h").is_file()
    assert "in the store" in cli("toolchain", "list", "-C", project.root).out


def test_an_altered_file_is_named_and_fetched_again(project: SmallProject, cli: Cli) -> None:
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    header = Path(sdk["folder"]) / "torch/include/ATen/h1.h"
    assert cli("toolchain", "verify", "-C", project.root).out.endswith("as it was made\n")
    header.write_text("// other\n")
    found = cli("toolchain", "verify", "-C", project.root)
    assert found.code == 1
    assert "torch 2.10 for x86_64-linux was altered: torch/include/ATen/h1.h; it is removed" in found.err
    assert cli("toolchain", "fetch", "-C", project.root).code == 0
    assert header.read_text() != "// other\n"


def test_an_sdk_that_does_not_tell_what_it_is_is_no_empty_store(project: SmallProject, cli: Cli) -> None:
    """Builds took it, and `verify` saw nothing."""
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    (Path(sdk["folder"]) / "torch/include/ATen/h1.h").write_text("// other\n")
    (Path(sdk["folder"]).parent / "about.json").write_bytes(b"")
    found = cli("toolchain", "verify", "-C", project.root)
    assert (found.code, "an SDK does not tell what it is; it is removed" in found.err) == (1, True)
    assert cli("toolchain", "fetch", "-C", project.root).code == 0
    assert cli("toolchain", "verify", "-C", project.root).out.endswith("as it was made\n")


def test_an_sdk_that_does_not_tell_what_it_is_is_not_packed_as_nothing(
    project: SmallProject, cli: Cli, tmp_path: Path
) -> None:
    """It was printed as packed, and was not in the file. What is wrong here is what builds, in haste, pass over."""
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    about = Path(sdk["folder"]).parent / "about.json"
    about.write_bytes(about.read_bytes().replace(b'"f ', b'f "', 1))
    packed = cli("toolchain", "pack", tmp_path / "stick", "-C", project.root)
    assert (packed.code, packed.out, (tmp_path / "stick").exists()) == (3, "", False)
    assert (
        "`kernel-builder toolchain verify` removes what was altered, and `toolchain fetch` brings it again"
        in packed.err
    )
    assert cli("toolchain", "verify", "-C", project.root).code == 1
    assert cli("toolchain", "pack", tmp_path / "stick", "-C", project.root).code == 0


def test_a_store_that_builds_only_read_is_verified_too_and_left(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under sudo: builds take what the user's own store has, and it was not looked at."""
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    header = Path(sdk["folder"]) / "torch/include/ATen/h1.h"
    written = replace(
        find_cache(os.environ, project.root), store=Store(project.root / "build/.hubkernels/cache/objects")
    )
    monkeypatch.setattr("hubkernels.build.cache.find_cache", lambda *_: written)
    assert cli("toolchain", "verify", "-C", project.root).out.endswith("as it was made\n")
    header.write_text("// other\n")
    found = cli("toolchain", "verify", "-C", project.root)
    assert found.code == 1
    assert "was altered: torch/include/ATen/h1.h; it stays, since this store is only read here" in found.err
    assert header.read_text() == "// other\n"


def test_a_lock_that_pins_nothing_for_this_machine_is_not_packed(small: SmallProject, cli: Cli, tmp_path: Path) -> None:
    (small.root / "toolchain.lock").write_text('{"form": 1, "sdks": []}')
    found = cli("toolchain", "pack", tmp_path / "stick", "-C", small.root)
    assert (found.code, "there is nothing to pack" in found.err) == (2, True)


def test_bytes_that_are_not_those_of_the_lock_stop_it(project: SmallProject, served: Served, cli: Cli) -> None:
    cli("toolchain", "lock", "-C", project.root)
    locked = lock_of(project)[0]["wheels"][0]["sha256"]
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    (Path(sdk["folder"]) / "torch/include/ATen/h1.h").unlink()
    cli("toolchain", "verify", "-C", project.root)
    served.add(TORCH_FILE, torch_wheel({"torch/include/other.h": b"", "torch/version.py": b""}, "2.10.0"))
    found = cli("toolchain", "fetch", "-C", project.root)
    assert found.code == 2
    assert f"{TORCH_FILE} has other bytes than it must have\n  expected sha256 {locked}" in found.err


def test_prune_keeps_what_the_lock_names(project: SmallProject, cli: Cli) -> None:
    cli("toolchain", "lock", "-C", project.root)
    assert cli("toolchain", "prune", "-C", project.root).out == "nothing to remove\n"
    assert cli("toolchain", "prune", "--days", "0", "-C", project.root).out == "nothing to remove\n", "it is in use"
    age_all()
    removed = json.loads(cli("toolchain", "prune", "--days", "0", "--json", "-C", project.root).out)
    assert [sdk["kind"] for sdk in removed] == ["torch"]
    for kept in Path(os.environ["HUBKERNELS_CACHE"]).glob("sdk/answers/*"):
        os.utime(kept, (1, 1))
    done = cli("toolchain", "prune", "-C", project.root)
    assert (done.out, done.err) == ("", "removed 1 kept answer of the package index\n")


def age_all(hours: float = 2) -> None:
    """As if nobody had used any SDK for so long."""
    for about in Path(os.environ["HUBKERNELS_CACHE"]).glob("sdk/trees/*/about.json"):
        os.utime(about, (about.stat().st_mtime - hours * 3600,) * 2)


@pytest.mark.parametrize("by", ["prune itself", "unpack"])
def test_prune_keeps_what_a_lock_names_that_was_not_written_here(
    project: SmallProject, cli: Cli, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Locks used to be noted where they were written alone, so that of a clone nothing was kept."""
    cli("toolchain", "lock", "-C", project.root)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if by == "unpack":
        cli("toolchain", "pack", elsewhere / "stick", "-C", project.root)
        monkeypatch.setenv("HUBKERNELS_CACHE", str(elsewhere / "cache"))
        assert cli("toolchain", "unpack", elsewhere / "stick", "-C", project.root).code == 0
    else:
        shutil.rmtree(Path(os.environ["HUBKERNELS_CACHE"]) / "sdk/locks")
    age_all()
    where = elsewhere if by == "unpack" else project.root
    assert cli("toolchain", "prune", "-C", where).out == "nothing to remove\n"


def test_what_another_process_locks_meanwhile_stays(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be lost: the lock was read, and written after the wheels were fetched."""
    lock_elsewhere_meanwhile(project, monkeypatch)
    assert cli("toolchain", "lock", "-C", project.root).out.split().count("added") == 1
    assert [sdk["version"] for sdk in lock_of(project)] == ["2.9", "2.10"]
    assert cli("toolchain", "lock", "--update", "-C", project.root).code == 0
    assert [sdk["version"] for sdk in lock_of(project)] == ["2.10"], "no variant needs the other"


def lock_elsewhere_meanwhile(project: SmallProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on another process pins a torch 2.9 whenever something is fetched for the lock."""
    add = ProjectSdks.add

    def meanwhile(self: ProjectSdks, *args: Any, **words: Any) -> Any:  # noqa: ANN401 - as it is called
        added, left_out = add(self, *args, **words)
        (wheel,) = added[0].wheels
        older = replace(wheel, file=wheel.file.replace("2.10", "2.9"), path=wheel.path.replace("2.10", "2.9"))
        other = replace(added[0], name=replace(added[0].name, version=Version((2, 9))), wheels=(older,))
        (project.root / "toolchain.lock").write_text(lock_text([other]))
        return added, left_out

    monkeypatch.setattr(ProjectSdks, "add", meanwhile)


@pytest.mark.parametrize("verb", ["fetch", "pack"])
def test_without_a_lock_the_error_names_the_verb_that_writes_one(small: SmallProject, cli: Cli, verb: str) -> None:
    words = ["x"] if verb == "pack" else []
    found = cli("toolchain", verb, *words, "-C", small.root)
    assert found.code == 2
    assert "there is no toolchain.lock" in found.err
    assert "toolchain lock" in found.err


@pytest.mark.parametrize("verb", ["list", "verify"])
def test_without_a_lock_it_is_told_and_what_writes_one(
    small: SmallProject, cli: Cli, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither used to print a word."""
    monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / "empty"))
    found = cli("toolchain", verb, "-C", small.root)
    told = f"there is no toolchain.lock in {small.root}: `kernel-builder toolchain lock` writes one\n"
    assert (found.code, found.out, found.err) == (0, "nothing is in the store\n", told)


@pytest.mark.parametrize("verb", ["list", "verify", "pack"])
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a link to nothing"])
def test_a_lock_that_is_no_file_is_told_as_that(
    small: SmallProject, cli: Cli, verb: str, kind: str, tmp_path: Path
) -> None:
    """To list and verify it was none, and they ended well."""
    lock = small.root / "toolchain.lock"
    makes: dict[str, Callable[[], object]] = {
        "a pipe": lambda: os.mkfifo(lock),
        "a folder": lock.mkdir,
        "a link to nothing": lambda: lock.symlink_to("gone"),
    }
    makes[kind]()
    words = [tmp_path / "stick"] if verb == "pack" else []
    found = cli("toolchain", verb, *words, "-C", small.root)
    assert (found.code, found.out) == (3, "")
    assert f"cannot read {lock}: " in found.err
    assert "restore it, or remove it to have one written anew" in found.err


def test_what_was_altered_goes_whatever_the_lock_is(project: SmallProject, cli: Cli) -> None:
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    (Path(sdk["folder"]) / "torch/include/ATen/h1.h").write_text("// other\n")
    (project.root / "toolchain.lock").write_text("<<<<<<< ours\n")
    found = cli("toolchain", "verify", "-C", project.root)
    assert (found.code, "torch/include/ATen/h1.h; it is removed" in found.err) == (1, True)
    assert cli("toolchain", "verify", "-C", project.root).code == 2


def test_a_list_tells_what_an_sdk_takes_in_the_store_beside_its_wheels(project: SmallProject, cli: Cli) -> None:
    """Wheels of 915 MB used to be all that it told of a tree of 63 MB; then it read like a download of 915 MB."""
    cli("toolchain", "lock", "-C", project.root)
    (sdk,) = json.loads(cli("toolchain", "fetch", "--json", "-C", project.root).out)
    du = subprocess.run(["du", "-s", "-B1", sdk["folder"]], capture_output=True, text=True, check=True)
    size = int(du.stdout.split()[0])
    (told,) = json.loads(cli("toolchain", "list", "--json", "-C", project.root).out)
    assert (told["stored"], told["stored-bytes"]) == (True, size)
    line = cli("toolchain", "list", "-C", project.root).out
    assert f"of a small part of {size_text(sdk['wheels'][0]['size'])} of wheels" in line
    assert line.endswith(f"{size_text(size)} in the store\n")


def variant(
    torch: str, backend: str, release: str | None = None, *, stable: bool = False, cpu: str = "x86_64"
) -> Variant:
    version = Version.parse(release) if release else None
    return Variant(Version.parse(torch), BACKENDS[backend], Platform(cpu, "linux"), version, stable_abi=stable)


def test_the_stable_abi_needs_no_math_headers_and_python_alone_needs_nothing() -> None:
    found = wanted_sdks(
        [
            variant("2.10", "cpu", stable=True),
            variant("2.12", "cuda", "13.0"),
            variant("2.10", "cuda", "13.2", stable=True),
            variant("2.12", "rocm", "7.2"),
            variant("2.14", "cpu", cpu="aarch64"),
            NoarchVariant(BACKENDS["xpu"]),
        ],
        HERE,
    )
    assert [str(name).removesuffix(" for x86_64-linux") for name in found.names] == [
        *("cuda 13.0", "cuda 13.2", "cuda-math 13.0", "torch 2.10", "torch 2.12"),
    ]
    assert found.left_out == ("rocm: no SDK of it is made here",)


def test_what_clang_compiles_with_is_wanted_where_it_is_named_or_locked() -> None:
    variants = [variant("2.10", "cuda", release, stable=True) for release in ("12.6", "12.8", "13.0")]
    every = wanted_sdks(variants, HERE)
    older, other, newer, torch = every.names
    told = "cuda {}: no index has its nvcc; `toolchain lock --variant TAG` pins what clang compiles with"
    assert without_clang(every, ()) == Wanted((newer, torch), str(HERE), (told.format("12.6, 12.8"),))
    assert without_clang(every, (older,)) == Wanted((older, newer, torch), str(HERE), (told.format("12.8"),))
    assert without_clang(every, (older, other)) == every


def test_a_variant_that_is_named_is_pinned_for_and_the_others_stay(project: SmallProject, cli: Cli) -> None:
    assert cli("toolchain", "lock", "--variant", CPU_VARIANT, "-C", project.root).code == 0
    assert [sdk["version"] for sdk in lock_of(project)] == ["2.10"]
    refused = cli("toolchain", "lock", "--variant", "torch-cpux", "-C", project.root)
    assert refused.code == 2
    assert "no SDK is asked for by torch-cpux" in refused.err
