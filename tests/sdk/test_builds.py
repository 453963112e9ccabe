"""Builds with what toolchain.lock pins: locked where there is none, fetched once, refused where bytes are others."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hubkernels.build.cache import find_cache
from hubkernels.host.machine import Machine, find_torch
from hubkernels.host.process import Finished
from hubkernels.host.store import Store
from hubkernels.model.size import size_text
from hubkernels.model.variant import Platform
from hubkernels.toolchain.sdk import patience
from hubkernels.toolchain.sdk.index import Index
from tests.conftest import CPU_VARIANT, Cli, SmallProject, environment
from tests.sdk.conftest import Served, torch_wheel
from tests.sdk.test_verbs import TORCH_FILE, age_all, lock_elsewhere_meanwhile, lock_of, pip_asks

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the wheels of these tests are for x86_64")

BARE = Machine(Platform("x86_64", "linux"), None)
"""A machine without torch."""

IN_A_BARE_PROCESS = """
import sys
from hubkernels.build import pipeline
from hubkernels.cli import main
from tests.sdk.test_builds import BARE
pipeline.this_machine = lambda: BARE
sys.exit(main(sys.argv[1:]))
"""

ALL = bool(os.environ.get("HUBKERNELS_TEST_ALL"))
TORCH = "torch 2.10 for x86_64-linux"
NOWHERE = "http://127.0.0.1:9/simple/"
FILES = {
    **{f"torch/lib/{name}.so": b"real" for name in ("libtorch", "libtorch_cpu", "libc10")},
    "torch/include/ATen/h.h": b"#pragma once\ninline const char* where() { return __FILE__; }\n",
    "torch/version.py": b"__version__ = '2.10.0'\n",
}


@pytest.fixture(autouse=True)
def locked_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUBKERNELS_TOOLCHAIN")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)


@pytest.fixture
def cache(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache, and an index that has a torch 2.10."""
    home = tmp_path_factory.mktemp("home")
    pip_asks(served, monkeypatch, home)
    monkeypatch.setenv("HUBKERNELS_CACHE", str(home / "cache"))
    served.add(TORCH_FILE, torch_wheel(FILES, "2.10.0"))
    return home / "cache"


@pytest.fixture
def project(cache: Path, small: SmallProject) -> SmallProject:
    assert cache
    return small.without_torch()


@pytest.fixture
def waiting(project: SmallProject, cache: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> SmallProject:
    """A project whose lock pins what the store does not have, on a machine without torch."""
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)
    assert cli("toolchain", "lock", "-C", project.root).code == 0
    shutil.rmtree(cache / "sdk")
    return project


def note_of(project: SmallProject) -> dict[str, Any]:
    return dict(json.loads((project.artifact.parent / f"{CPU_VARIANT}.build.json").read_text())["toolchain"])


def half_written(cache: Path) -> list[Path]:
    """What is in the store, but for locks of processes."""
    return [path for path in (cache / "sdk").rglob("*") if path.is_file() and path.suffix != ".lock"]


def nothing_built(project: SmallProject) -> bool:
    return not list((project.root / "build").rglob("metadata.json"))


@pytest.mark.usefixtures("bare")
def test_without_lock_and_torch_a_build_locks_and_the_next_one_asks_nothing(
    project: SmallProject, served: Served, cli: Cli
) -> None:
    first = cli("build", project.root)
    assert first.code == 0, first.err
    assert first.out.startswith("built")
    assert f"asking the package index for torch 2.10, to lock and fetch for {CPU_VARIANT}\n" in first.err
    assert f"{project.root / 'toolchain.lock'} is written: commit it, so that everybody" in first.err
    assert re.search(rf"^{re.escape(TORCH_FILE)}: \d+ files, [\d.]+ k?B of [\d.]+ kB$", first.err, re.MULTILINE)
    (sdk,) = lock_of(project)
    assert note_of(project)["sdk torch 2.10"] == sdk["tree"]
    assert note_of(project)["torch"] == "2.10.0"
    before = project.op_id
    served.asked.clear()
    second = cli("build", project.root)
    assert (second.code, second.out.split()[:3], served.asked) == (0, ["up", "to", "date"], [])
    assert (project.op_id, lock_of(project)) == (before, [sdk])


def test_what_is_pinned_and_not_fetched_is_listed_without_a_network_and_fetched_by_a_build(
    waiting: SmallProject, served: Served, cache: Path, cli: Cli
) -> None:
    served.asked.clear()
    listed = cli("list-variants", "--json", waiting.root)
    assert (listed.code, json.loads(listed.out)["my-kernel"]["accepted"]) == (0, [CPU_VARIANT])
    assert (served.asked, half_written(cache)) == ([], [])
    size = size_text(lock_of(waiting)[0]["wheels"][0]["size"])
    built = cli("build", waiting.root)
    assert built.code == 0, built.err
    assert f"fetching parts of wheels of {size} (torch 2.10) for {CPU_VARIANT}\n" in built.err
    assert any(path.endswith(TORCH_FILE) for path, _, _ in served.asked)


def test_a_build_that_cannot_fetch_names_what_it_lacks_and_the_next_one_works(
    waiting: SmallProject, cache: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = os.environ["PIP_INDEX_URL"]
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    failed = cli("build", waiting.root)
    assert failed.code == 3
    assert "the package index cannot be reached for torch===2.10.0" in failed.err
    assert "toolchain unpack" in failed.err
    assert nothing_built(waiting)
    assert half_written(cache) == []
    monkeypatch.setenv("PIP_INDEX_URL", index)
    assert cli("build", waiting.root).code == 0


@pytest.mark.parametrize("way", ["broken off", "altered"] if ALL else ["broken off"])
def test_a_transfer_that_goes_wrong_leaves_nothing_and_the_next_build_works(
    waiting: SmallProject, served: Served, cache: Path, cli: Cli, way: str
) -> None:
    (path,) = served.files
    served.ways[path] = way
    failed = cli("build", waiting.root)
    assert failed.code == 3
    assert (
        TORCH_FILE in failed.err or "a wheel for torch===2.10.0 has other bytes" in failed.err
    )  # as pip is old or new
    assert "hint: " in failed.err
    assert nothing_built(waiting)
    assert {file.parent.name for file in half_written(cache)} <= {"answers"}
    served.ways[path] = ""
    assert cli("build", waiting.root).code == 0


def test_other_bytes_than_locked_are_named_and_nothing_is_built(
    waiting: SmallProject, served: Served, cli: Cli
) -> None:
    (sdk,) = lock_of(waiting)
    served.add(TORCH_FILE, torch_wheel({**FILES, "torch/include/ATen/h.h": b"// others\n"}, "2.10.0"))
    failed = cli("build", waiting.root)
    assert failed.code == 2
    assert (
        f"{TORCH_FILE} has other bytes than it must have\n  expected sha256 {sdk['wheels'][0]['sha256']}" in failed.err
    )
    assert nothing_built(waiting)


def test_without_lock_and_index_a_build_takes_the_installed_torch_and_says_so_once(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    built = cli("build", project.root)
    assert built.code == 0, built.err
    assert built.err.count("toolchain.lock is not written, so this build is made with what is installed here: ") == 1
    assert "the package index cannot be reached for torch==2.10.*" in built.err
    assert not (project.root / "toolchain.lock").exists()
    assert not any(name.startswith("sdk") for name in note_of(project))


def test_an_index_that_never_answers_is_waited_for_once_and_not_for_long(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to cost two minutes at each build, also of what was up to date."""
    monkeypatch.setattr(patience, "HURRIED", replace(patience.HURRIED, answer_s=1))
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}/simple/")
        first = cli("build", project.root)
    assert first.code == 0, first.err
    assert first.err.count("the package index cannot be reached for torch==2.10.*") == 1
    monkeypatch.setattr(Index, "_pip", lambda *_: pytest.fail("it is asked again"))
    second = cli("build", project.root)
    assert second.out.startswith("up to date")
    (line,) = [line for line in second.err.splitlines() if "toolchain.lock" in line]
    assert re.search(
        r"what is installed here: .* \(\d+ (s|min) ago; `kernel-builder toolchain lock` asks again\)$", line
    )
    asked: list[object] = []

    def fails(*_: object) -> Finished:
        asked.append(1)
        return Finished(1, "", "no room")

    monkeypatch.setattr(Index, "_pip", fails)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert "no room" in cli("build", project.root).err, "by another way it is asked again"
    assert "no room" in cli("build", project.root).err
    assert len(asked) == 2, "what is no matter of the network is not remembered"


DRIPS = 1200
"""Bytes, ten a second: by far longer than anything is waited for in a test."""


@contextlib.contextmanager
def dripping() -> Iterator[tuple[str, list[str]]]:
    """The address of an index that is never silent and never done; and whether it was let finish."""
    ended: list[str] = []
    stop = threading.Event()

    class Drip(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever asked has gone
                for _ in range(DRIPS):
                    if stop.wait(0.1):
                        return
                    self.wfile.write(b" ")
                ended.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/simple/", ended
        finally:
            stop.set()
            server.shutdown()
            thread.join()


def test_an_index_that_drips_is_given_up_too(project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is never silent for long, which is all that pip's own limit is about."""
    monkeypatch.setattr(patience, "HURRIED", replace(patience.HURRIED, question_s=4))
    with dripping() as (url, ended):
        monkeypatch.setenv("PIP_INDEX_URL", url)
        built = cli("build", project.root)
        assert ended == []
    assert built.code == 0, built.err
    assert f"pip cannot be waited for, which asks {url}: " in built.err


@pytest.mark.parametrize("torch", ["installed", "not installed"])
def test_who_has_another_way_is_in_a_hurry(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch, torch: str
) -> None:
    """Without torch there is none, and a build gave up as soon."""
    asked: list[object] = []

    def fails(index: Any, *_: object) -> Finished:  # noqa: ANN401 - an Index, of which this looks inside
        asked.append(index._patience)
        return Finished(1, "", "no room")

    monkeypatch.setattr(Index, "_pip", fails)
    if torch == "not installed":
        monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)
    cli("build", project.root)
    assert asked == [patience.HURRIED if torch == "installed" else patience.PATIENT]


@pytest.mark.usefixtures("bare")
def test_without_lock_index_and_torch_the_error_names_both_ways_out(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", NOWHERE)
    failed = cli("build", project.root)
    assert failed.code == 3
    why = "torch is not installed, and toolchain.lock could not be written, as is told above: "
    assert why in failed.err
    for way_out in ("PIP_INDEX_URL names another", "install torch from a file", "`kernel-builder toolchain unpack`"):
        assert way_out in failed.err
    assert "kernel-builder toolchain lock" not in failed.err, "that asks the same index"
    assert nothing_built(project)


def test_an_index_without_any_of_it_leaves_no_empty_lock_behind(
    project: SmallProject, served: Served, cli: Cli
) -> None:
    """It would keep builds from what another index has."""
    served.files.clear()
    built = cli("build", project.root)
    assert built.code == 0, built.err
    assert f"left out of toolchain.lock: {TORCH}: the package index " in built.err
    assert not (project.root / "toolchain.lock").exists()


@pytest.mark.parametrize("by", ["option", "environment"])
def test_the_system_toolchain_looks_at_no_lock_and_asks_nothing(
    project: SmallProject, served: Served, cli: Cli, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    (project.root / "toolchain.lock").write_text("<<<<<<< ours\n")
    words = ["--toolchain", "system"] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", "system")
    listed, built = (cli(verb, project.root, *words) for verb in ("list-variants", "build"))
    assert (listed.code, built.code) == (0, 0), built.err
    assert served.asked == []
    assert not any(name.startswith("sdk") for name in note_of(project))


def test_an_option_outdoes_the_environment(project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.root / "toolchain.lock").write_text("<<<<<<< ours\n")
    monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", "system")
    assert cli("list-variants", project.root, "--toolchain", "locked").code == 2


WORDS = [
    *(("option", verb) for verb in ("build", "list-variants")),
    *(("environment", verb) for verb in ("build", "list-variants", "plan")),
]


@pytest.mark.parametrize(("by", "verb"), WORDS)
def test_a_toolchain_of_another_name_is_refused(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch, verb: str, by: str
) -> None:
    words = ["--toolchain", "mine"] if by == "option" else []
    if by == "environment":
        monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", "mine")
    failed = cli(verb, project.root, *words)
    assert failed.code == 2
    assert "'mine' is neither locked nor system" in failed.err
    assert ("--toolchain" if by == "option" else "HUBKERNELS_TOOLCHAIN") in failed.err


def test_what_the_lock_lacks_is_a_reason_and_the_installed_torch_the_last_resort(
    project: SmallProject, served: Served, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.root / "toolchain.lock").write_text('{"form": 1, "sdks": []}\n')
    served.asked.clear()
    built = cli("build", project.root)
    assert (built.code, served.asked) == (0, []), built.err
    assert not any(name.startswith("sdk") for name in note_of(project))
    monkeypatch.setattr("hubkernels.build.pipeline.this_machine", lambda: BARE)
    rejected = json.loads(cli("list-variants", "--json", project.root).out)["my-kernel"]["rejected"]
    (why,) = rejected[CPU_VARIANT]
    assert why.startswith("torch is not installed, and toolchain.lock pins none: `kernel-builder toolchain lock`")


@pytest.fixture
def reading(project: SmallProject) -> SmallProject:
    """A project with a source that reads a header of torch."""
    kernel = project.root / "cpu/kernel.cpp"
    kernel.write_text(f"#include <ATen/h.h>\n{kernel.read_text()}")
    return project


@pytest.mark.parametrize("first", ["build", "toolchain lock"])
def test_a_header_that_was_altered_in_the_store_is_named_and_nothing_is_built_with_it(
    reading: SmallProject, cache: Path, cli: Cli, first: str
) -> None:
    assert cli(*first.split(), "--project", reading.root).code == 0
    before = reading.op_id if first == "build" else None
    (header,) = (cache / "sdk").rglob("h.h")
    header.write_text(header.read_text() + "#define ALTERED\n")
    failed = cli("build", reading.root)
    assert failed.code == 2
    assert f"{header} is not as toolchain.lock pins it in {TORCH}" in failed.err
    assert "hint: `kernel-builder toolchain verify`" in failed.err
    assert reading.op_id == before if before else nothing_built(reading)
    cli("toolchain", "verify", "-C", reading.root)
    assert cli("build", reading.root).code == 0
    assert before in {None, reading.op_id}


def test_an_altered_header_is_found_behind_a_link_to_the_cache(
    reading: SmallProject,
    cache: Path,
    cli: Cli,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compilers tell a header by its real path where that is shorter."""
    link = tmp_path_factory.mktemp("another") / ("long" * 20)
    cache.mkdir(parents=True)
    link.symlink_to(cache)
    monkeypatch.setenv("HUBKERNELS_CACHE", str(link))
    assert cli("build", reading.root).code == 0
    (header,) = (cache / "sdk").rglob("h.h")
    header.write_text(header.read_text() + "#define ALTERED\n")
    failed = cli("build", reading.root)
    assert failed.code == 2
    assert "h.h is not as toolchain.lock pins it" in failed.err


def test_a_lock_that_is_a_link_stays_one(project: SmallProject, cli: Cli) -> None:
    shared = project.root / "shared.lock"
    (project.root / "toolchain.lock").symlink_to("shared.lock")
    shared.write_text('{"form": 1, "sdks": []}\n')
    assert cli("toolchain", "lock", "-C", project.root).code == 0
    assert (project.root / "toolchain.lock").readlink() == Path("shared.lock")
    assert TORCH_FILE in shared.read_text()


def test_no_installed_torch_stands_in_for_a_pinned_one_that_is_damaged(
    project: SmallProject, cache: Path, cli: Cli
) -> None:
    assert cli("toolchain", "lock", "-C", project.root).code == 0
    (version,) = (cache / "sdk").rglob("version.py")
    version.unlink()
    failed = cli("build", project.root)
    assert failed.code == 2
    assert f"{version} is not there as the SDK has it" in failed.err
    assert nothing_built(project)


@pytest.mark.usefixtures("bare")
def test_check_reproducible_of_a_locked_build_fetches_nothing(project: SmallProject, served: Served, cli: Cli) -> None:
    assert cli("build", project.root).code == 0
    served.asked.clear()
    ran = cli("check", "reproducible", project.root)
    assert (ran.code, served.asked) == (0, []), ran.err
    assert "the same bytes twice" in ran.out


@pytest.mark.usefixtures("bare")
def test_check_reproducible_finds_what_the_users_own_store_has_where_another_is_written(
    project: SmallProject, served: Served, cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under sudo, where the user's cache is read and the project's is written."""
    assert cli("build", project.root).code == 0
    written = replace(find_cache(os.environ, cache), store=Store(project.root / "build/.hubkernels/cache/objects"))
    monkeypatch.setattr("hubkernels.build.pipeline.find_cache", lambda *_: written)
    served.asked.clear()
    ran = cli("check", "reproducible", project.root)
    assert (ran.code, served.asked) == (0, []), ran.err


@pytest.mark.usefixtures("bare")
def test_the_folder_of_the_cache_is_in_no_id_and_no_byte(
    project: SmallProject,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    text = (project.root / "cpu/kernel.cpp").read_text()
    tells = '__attribute__((visibility("default"))) const char* tells() { return where(); }\n'
    (project.root / "cpu/kernel.cpp").write_text(f"#include <ATen/h.h>\n{tells}{text}")
    found = []
    for name in ("one", "another, longer"):
        monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path_factory.mktemp(name)))
        built = cli("build", project.root)
        assert built.code == 0, built.err
        found.append((project.op_id, (project.artifact / f"{project.op_id}.abi3.so").read_bytes()))
        shutil.rmtree(project.root / "build")
    assert found[0] == found[1]


@pytest.mark.skipif(find_torch() is None, reason="no torch is installed to compare with")
def test_the_installed_torch_gives_the_same_bytes_as_a_pinned_one(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linkers take the kind of a symbol from a real library, and stubs have none."""
    text = (project.root / "cpu/kernel.cpp").read_text()
    uses = '__attribute__((visibility("default"))) int uses(void* x) { return aoti_torch_delete_tensor_object(x); }\n'
    declares = 'extern "C" int aoti_torch_delete_tensor_object(void*);\n'
    (project.root / "cpu/kernel.cpp").write_text(declares + uses + text)
    found = []
    for toolchain in ("locked", "system"):
        monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", toolchain)
        monkeypatch.setenv("HUBKERNELS_CACHE", str(project.root / f"cache-{toolchain}"))
        built = cli("build", project.root)
        assert built.code == 0, built.err
        found.append((project.op_id, (project.artifact / f"{project.op_id}.abi3.so").read_bytes()))
        shutil.rmtree(project.root / "build")
    assert found[0] == found[1]


def test_prune_keeps_what_a_build_used(
    waiting: SmallProject, cache: Path, cli: Cli, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of a clone that was built, or that had nothing to build, the lock used to be unknown."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for said in ("built", "up to date"):
        shutil.rmtree(cache / "sdk/locks", ignore_errors=True)
        assert cli("build", waiting.root).out.startswith(said)
        age_all()
        assert cli("toolchain", "prune", "-C", elsewhere).out == "nothing to remove\n", said


@pytest.mark.usefixtures("bare")
def test_a_build_that_locks_keeps_what_another_locks_meanwhile(
    project: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_elsewhere_meanwhile(project, monkeypatch)
    built = cli("build", project.root)
    assert built.code == 0, built.err
    assert [sdk["version"] for sdk in lock_of(project)] == ["2.9", "2.10"]


@pytest.mark.usefixtures("bare", "cache")
def test_a_workspace_has_one_lock_at_its_top(tmp_path: Path, cli: Cli) -> None:
    top = tmp_path / "top"
    for name in ("one", "two"):
        SmallProject(top / name, f"k-{name}").write().without_torch()
    (top / "build.toml").write_text('[workspace]\nschema = 1\nmembers = ["one", "two"]\n')
    built = cli("build", top)
    assert built.code == 0, built.err
    assert [path.relative_to(top).as_posix() for path in top.rglob("toolchain.lock")] == ["toolchain.lock"]


def start(project: SmallProject, *more: str) -> subprocess.Popen[str]:
    command: Sequence[str] = (sys.executable, "-c", IN_A_BARE_PROCESS, "build", str(project.root), *more)
    around = environment(PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.Popen(command, env=around, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.usefixtures("bare")
def test_two_builds_at_once_of_a_project_without_a_lock_both_work(project: SmallProject, cli: Cli) -> None:
    running = [start(project), start(project)]
    for one in running:
        _, errors = one.communicate(timeout=120)
        assert one.returncode == 0, errors
    (sdk,) = lock_of(project)
    assert note_of(project)["sdk torch 2.10"] == sdk["tree"]
    assert cli("build", project.root).out.startswith("up to date")


@pytest.mark.parametrize("lock", ["with a lock", "without"] if ALL else ["with a lock"])
def test_a_build_that_is_killed_while_it_fetches_leaves_nothing_in_the_way(
    waiting: SmallProject, served: Served, cli: Cli, lock: str
) -> None:
    if lock == "without":
        (waiting.root / "toolchain.lock").unlink()
    (path,) = served.files
    served.ways[path] = "held"
    killed = start(waiting)
    assert served.reached.wait(60)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    served.ways[path] = ""
    assert nothing_built(waiting)
    assert (waiting.root / "toolchain.lock").exists() == (lock == "with a lock")
    built = cli("build", waiting.root)
    assert built.code == 0, built.err


TWICE = json.dumps({"form": 1, "sdks": [{"kind": "torch", "version": "2.10", "platform": "x86_64-linux"}] * 2})


def damaged(project: SmallProject, how: str) -> str:
    """Damage the lock; tells what is said of it."""
    lock = project.root / "toolchain.lock"
    found = json.loads(lock.read_text())
    if how == "no JSON":
        lock.write_text(lock.read_text()[:-9])
        return "this is no JSON"
    if how == "twice":
        lock.write_text(json.dumps({**found, "sdks": found["sdks"] * 2}))
        return f"{TORCH} is locked twice"
    lock.unlink()
    if how == "a folder":
        lock.mkdir()
        return "Is a directory"
    if how == "a link to nothing":
        lock.symlink_to("nothing")
        return "No such file or directory"
    os.mkfifo(lock)
    return "is no regular file"


@pytest.mark.parametrize("how", ["no JSON", "twice", "a folder", "a pipe", "a link to nothing"])
def test_a_lock_that_cannot_be_read_is_refused_before_anything_is_built(
    waiting: SmallProject, served: Served, cli: Cli, how: str
) -> None:
    said = damaged(waiting, how)
    served.asked.clear()
    for verb in ("build", "list-variants"):
        failed = cli(verb, waiting.root)
        assert failed.code in {2, 3}, verb
        assert said in failed.err
        assert str(waiting.root / "toolchain.lock") in failed.err
        assert "hint: " in failed.err
    assert nothing_built(waiting)
    assert served.asked == []


@pytest.mark.parametrize("how", ["no JSON", "twice"])
def test_what_is_hinted_at_mends_a_lock_that_cannot_be_read(waiting: SmallProject, cli: Cli, how: str) -> None:
    damaged(waiting, how)
    assert cli("toolchain", "lock", "--update", "-C", waiting.root).code == 0
    assert cli("build", waiting.root).code == 0
