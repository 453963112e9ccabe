"""Our own loader: how little it asks, that what it leaves the stock client loads, and what it refuses."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubkernelsError, HubRefusedError, InputError
from tests.conftest import Cli, Mount, SmallProject
from tests.hub.conftest import OTHER, READER, Serve
from tests.hub.own_loader import LOAD, STOCK, TABLE, Machine, artifact, logging, machine

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="the client loads kernels into torch")
pytestmark = pytest.mark.torch

Start = Callable[..., Machine]
PINNED = 'revision=sys.argv[2], backend="cpu"'
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}


@pytest.fixture
def start(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    from huggingface_hub import constants  # noqa: PLC0415 - collected without it, too

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # large files by LFS: this Hub has no other
    return lambda **how: machine(serve, tmp_path / "machine", **how)


@pytest.fixture
def hub(start: Start) -> Machine:
    return start()


@pytest.mark.parametrize(("lfs", "most"), [("never", 3), ("always", 4)])
def test_a_pinned_kernel_takes_few_requests_and_none_again(start: Start, lfs: str, most: int) -> None:
    here = start(lfs=lfs)
    old, new = here.publish(40), here.publish(41)
    for commit, answer in ((old, 40), (new, 41)):
        ran = here.load(LOAD.format(how=PINNED), "org/my_kernel", commit)
        assert ran.out == f"{answer} {len(TABLE)}\n", ran.err
        assert here.asked[0] == "GET /api/organizations/org/overview"
        assert here.asked[1] == "POST /kernels/org/my_kernel.git/git-upload-pack"
        assert len(here.asked) == (most if commit == old else 2), "the large file of both commits is one"
        again = here.load(LOAD.format(how=PINNED), "org/my_kernel", commit)
        assert (again.out, here.asked) == (ran.out, [])
    assert {status for _, _, status in here.log} <= {200, 302}


@pytest.mark.parametrize("name", ["org/my-kernel", "org/my_kernel"])
def test_a_hub_of_one_spelling_is_asked_twice_for_the_other(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    commit = hub.publish(40)
    missing = {"x-error-code": "RepoNotFound"}
    hub.change.append(lambda path, *_: (404, b"", missing) if "my_kernel" in path else None)
    with hub.here(monkeypatch) as load:
        assert load(name, revision=commit).answer() == 40
        assert len(hub.asked) == (3 if name == "org/my-kernel" else 4)
        hub.log.clear()
        assert load(name, revision=commit).answer() == 40
    assert hub.asked == []


def test_of_two_kernels_that_are_spelled_alike_the_one_that_was_named_is_loaded(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the one that the cache had; and who trusted the one had trusted both."""
    log: list[tuple[str, str, int]] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        logged = logging(log, [])(app)

        async def two(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            path = scope.get("path", "").replace("org/my_kernel", "org/other")
            await logged({**scope, "path": path, "raw_path": path.encode()}, receive, send)

        return two

    here = Machine(serve(wrap=wrap, trust="another-org"), tmp_path / "machine", log)
    dashed, other = here.publish(40), here.publish(50, repo="org/other", files=artifact("my-kernel", 50))
    with here.here(monkeypatch) as load:
        assert load("org/my-kernel", version=1, trust_remote_code=True).answer() == 40
        assert load("org/my_kernel", version=1, trust_remote_code=True).answer() == 50
        assert load("org/my-kernel", revision=other, trust_remote_code=True).answer() == 50, "here by its digits"
    with here.here(monkeypatch) as load:
        with pytest.raises(ValueError, match="org/my-kernel is not from a trusted publisher"):
            load("org/my_kernel", revision=dashed, trust_remote_code=["org/my_kernel"])
        assert load("org/my_kernel", revision=dashed, trust_remote_code=["org/my-kernel"]).answer() == 40
    shutil.rmtree(here.home / "hub/kernels--org--my_kernel/refs")
    with here.here(monkeypatch, **OFFLINE) as load, pytest.raises(FileNotFoundError, match=r"org/my_kernel is not in"):
        load("org/my_kernel", version=1)


def test_a_cache_that_cannot_be_written_is_loaded_from(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    commit = hub.publish(40)
    assert hub.load(STOCK.format(how=PINNED), "org/my-kernel", commit).code == 0
    (hub.home / "hub/kernels--org--my-kernel/hubkernels").touch()
    with hub.here(monkeypatch) as load, caplog.at_level("INFO", "hubkernels"):
        assert load(revision=commit).answer() == 40
    assert "kernel-builder prefetch" in caplog.text
    assert "cannot write" in caplog.text
    hub.cached(commit, "more.py").unlink()
    with hub.here(monkeypatch) as load, pytest.raises(EnvironmentLacksError, match="cannot write") as error:
        load(revision=commit)
    assert "hubkernels, which is in the way, and try again" in str(error.value)


def test_who_trusts_by_name_asks_nobody(hub: Machine) -> None:
    commit = hub.publish(40)
    how = PINNED + ", trust_remote_code=['org/my-kernel']"
    assert hub.load(LOAD.format(how=how), "org/my-kernel", commit).out.startswith("40 ")
    assert len(hub.asked) == 2
    assert hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit).out.startswith("40 ")
    assert hub.asked == ["GET /api/organizations/org/overview"], "who does not trust asks once"
    assert hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit).out.startswith("40 ")
    assert hub.asked == []


def test_a_token_that_cannot_be_read_matters_where_a_hub_is_asked_alone(hub: Machine, tmp_path: Path) -> None:
    """The file was waited for at each load, for ever, and so by the client that is handed a kernel."""
    mine, base = hub.publish(40), hub.publish(40, repo="org/base")
    depending = artifact("top", 0, **{"kernel-depends": [{"repo-id": "org/base", "revision": base}]})
    top = hub.publish(0, repo="org/top", files=depending)
    pins = (("org/my-kernel", mine), ("org/top", top))
    for name, commit in pins:
        assert hub.load(LOAD.format(how=PINNED), name, commit).code == 0
    os.mkfifo(tmp_path / "token")
    unread = {"HF_TOKEN": " ", "HF_TOKEN_PATH": str(tmp_path / "token")}
    own, by_client = (hub.load(LOAD.format(how=PINNED), name, commit, **unread) for name, commit in pins)
    assert (own.out, hub.asked) == (f"40 {len(TABLE)}\n", []), own.err
    assert "InputError: the file of the Hub's token cannot be read: is no regular file" in by_client.err
    asked = hub.load(LOAD.format(how='version=1, backend="cpu"'), "org/my-kernel", **unread)
    assert "the file of the Hub's token cannot be read: is no regular file" in asked.err


def test_a_version_and_a_branch_take_one_request_more(hub: Machine) -> None:
    hub.publish(40)
    hub.publish(41, branch="v2")
    for how, answer in (("version=1", 40), ("version=2", 41), ("revision='v2'", 41)):
        ran = hub.load(LOAD.format(how=f'{how}, backend="cpu"'), "org/my-kernel")
        assert ran.out.startswith(f"{answer} "), ran.err
        assert len(hub.asked) <= 4
        offline = hub.load(LOAD.format(how=f'{how}, backend="cpu"'), "org/my-kernel", **OFFLINE)
        assert offline.out == ran.out


@pytest.mark.parametrize("lfs", ["never", "always"])
def test_the_stock_client_loads_offline_what_we_fetched(start: Start, lfs: str) -> None:
    here = start(lfs=lfs)
    commit = here.publish(40)
    assert here.load(LOAD.format(how=PINNED), "org/my-kernel", commit).code == 0
    assert here.load(LOAD.format(how='version=1, backend="cpu"'), "org/my-kernel").code == 0
    for how in (PINNED, 'version=1, backend="cpu"'):
        ran = here.load(STOCK.format(how=how), "org/my-kernel", commit, **OFFLINE)
        assert ran.out == f"40 {len(TABLE)}\n", ran.err
    online = here.load(STOCK.format(how=PINNED), "org/my-kernel", commit)
    assert online.out == f"40 {len(TABLE)}\n", online.err
    assert not [path for path in here.asked if "table.bin" in path and path.startswith("GET")]


@pytest.mark.parametrize("lfs", ["never", "always"])
def test_we_load_offline_what_the_stock_client_fetched(start: Start, lfs: str) -> None:
    here = start(lfs=lfs)
    commit = here.publish(40)
    fetched = here.load(STOCK.format(how=PINNED), "org/my-kernel", commit)
    assert fetched.code == 0, fetched.err
    for name in ("org/my-kernel", "org/my_kernel"):
        ran = here.load(LOAD.format(how=PINNED), name, commit, **OFFLINE)
        assert ran.out == f"40 {len(TABLE)}\n", ran.err
    assert here.load(LOAD.format(how=PINNED), "org/my-kernel", commit).code == 0
    assert len(here.asked) == 2, "the publisher and the proof; every file is there"


def test_a_damaged_file_is_fetched_again_or_refused_by_name(hub: Machine) -> None:
    commit = hub.publish(40)
    hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit)
    table = hub.cached(commit, "data/table.bin").resolve()
    table.write_bytes(TABLE[:-1] + b"x")
    refused = hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit, **OFFLINE)
    assert refused.code == 1
    assert "data/table.bin is not what the commit holds: the cache is damaged" in refused.err
    hub.cached(commit, "more.py").unlink()
    ran = hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit)
    assert ran.out == f"40 {len(TABLE)}\n", ran.err
    assert len(hub.asked) == 1
    assert hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit, **OFFLINE).out == ran.out


def test_what_the_client_fetched_is_held_against_the_names_of_its_blobs(hub: Machine) -> None:
    commit = hub.publish(40, metadata={"digest": None})
    hub.load(STOCK.format(how=PINNED), "org/my-kernel", commit)
    more = hub.cached(commit, "more.py").resolve()
    more.write_bytes(more.read_bytes().replace(b"0", b"1"))
    refused = hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit, **OFFLINE)
    assert "more.py is not what the commit holds" in refused.err


def test_a_file_that_nobody_published_is_refused(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.publish(40)
    with hub.here(monkeypatch) as load:
        load(revision=commit)
    for name in ("more.abi3.so", "other.pyc", "data/x.py"):
        path = hub.cached(commit, name)
        path.write_bytes(b"")
        with hub.here(monkeypatch) as load, pytest.raises(CheckFailedError, match="not of the kernel"):
            load(revision=commit)
        path.unlink()
    hub.cached(commit, "written-by-the-kernel").write_bytes(b"")
    with hub.here(monkeypatch) as load:
        assert load(revision=commit).answer() == 40


def test_eight_processes_at_once_fill_one_cache(hub: Machine) -> None:
    commit = hub.publish(40)
    words = [sys.executable, "-c", LOAD.format(how=PINNED), "org/my-kernel", commit]
    env = {**os.environ, **hub.environment}
    running = [
        subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, f"40 {len(TABLE)}\n"), err
    assert not list((hub.home / "hub/kernels--org--my-kernel/hubkernels").glob("tmp-*"))
    assert hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit, **OFFLINE).code == 0


KILLED = """
import itertools, os, pathlib, signal, sys
import torch
from hubkernels.runtime import get_kernel

def load():
    return get_kernel("org/my-kernel", revision=sys.argv[1], backend="cpu", trust_remote_code=True).answer()

def child(task):
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if task() == 40 else 3)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def killed(stage):
    left = itertools.count(1)
    for name in ("open", "replace", "symlink_to", "mkdir", "unlink"):
        def dies(self, *words, _was=getattr(pathlib.Path, name), **how):
            if next(left) == stage:
                os.kill(os.getpid(), signal.SIGKILL)
            return _was(self, *words, **how)
        setattr(pathlib.Path, name, dies)
    return load()

for stage in itertools.count(1):
    os.environ["KERNELS_CACHE"] = f"{sys.argv[2]}/{stage}"
    ended = child(lambda: killed(stage))
    assert ended in (0, -signal.SIGKILL), (stage, ended)
    assert child(load) == 0, stage
    if not ended:
        print(stage)
        break
"""


@pytest.mark.slow
def test_whenever_it_is_killed_the_next_load_works(hub: Machine, tmp_path: Path) -> None:
    """Before each write, link, rename and folder in turn."""
    commit = hub.publish(40)
    ran = hub.load(KILLED, commit, str(tmp_path / "caches"))
    assert ran.code == 0, ran.err
    assert int(ran.out) > 20


def test_eight_threads_get_one_module(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    files = artifact("my-kernel", 40, digest=None)
    files["__init__.py"] = b"import time\ntime.sleep(0.2)\n" + files["__init__.py"]
    commit = hub.publish(40, files=files)
    with hub.here(monkeypatch) as load, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: load(revision=commit), range(8)))
    assert len({id(module) for module in found}) == 1
    assert found[0].answer() == 40


def test_a_full_disk_is_told_and_leaves_no_half_file(
    hub: Machine, mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.publish(40)
    small = tmp_path / "small"
    mount(small, "size=200k")
    with (
        hub.here(monkeypatch, KERNELS_CACHE=str(small)) as load,
        pytest.raises(EnvironmentLacksError, match="No space left on device"),
    ):
        load(revision=commit)
    assert not [path for path in small.rglob("*") if path.name.startswith("tmp-")]
    blobs = {path.name: path.stat().st_size for path in small.rglob("blobs/*")}
    assert len(TABLE) not in blobs.values()
    assert all(size > 0 for size in blobs.values())


def test_private_kernels_need_a_token_that_no_other_origin_sees(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    here = start(lfs="always")
    commit = here.publish(40, repo="org/my-kernel-secret")
    asked = here.hub.ask("PUT", "/api/kernels/org/my-kernel-secret/settings", {"private": True}, "hf_owner")
    assert asked.status == 200, asked.body
    for token in ("", OTHER, "hf_nobody"):
        with here.here(monkeypatch, HF_TOKEN=token) as load, pytest.raises(HubkernelsError) as error:
            load("org/my-kernel-secret", revision=commit, trust_remote_code=True)
        assert isinstance(error.value, HubRefusedError)
        assert "HF_TOKEN" in str(error.value)
    with here.here(monkeypatch, HF_TOKEN=READER) as load:
        assert load("org/my-kernel-secret", revision=commit).answer() == 40, "the LFS origin refuses a token"
    (here.home / "token").parent.mkdir(exist_ok=True)
    (here.home / "token").write_text(f"{READER}\n")
    with here.here(monkeypatch, HF_TOKEN="") as load:
        assert load("org/my-kernel-secret", revision=commit).TABLE == TABLE


def test_only_trusted_publishers_are_loaded_unasked(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    here = start(trust="another-org")
    commit = here.publish(40)
    with here.here(monkeypatch) as load:
        for trust in (False, [], ["org/other"]):
            with pytest.raises(ValueError, match="is not from a trusted publisher"):
                load(revision=commit, trust_remote_code=trust)
        assert here.asked == ["GET /api/organizations/org/overview"] * 3, "nothing was fetched"
        assert load(revision=commit, trust_remote_code=["org/my-kernel"]).answer() == 40
        with pytest.raises(ValueError, match="is not from a trusted publisher"):
            load(revision=commit)
        assert load(revision=commit, trust_remote_code=True).answer() == 40


def test_what_is_not_there_is_told(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.publish(40)
    with hub.here(monkeypatch) as load:
        with pytest.raises(HubRefusedError, match="there is no revision 'a+'"):
            load(revision="a" * 40)
        with pytest.raises(HubRefusedError, match="there is no revision 'v9'"):
            load(revision="v9")
        with pytest.raises(ValueError, match="Version 9 not found, available versions: 1"):
            load(version=9)
        with pytest.raises(HubRefusedError, match="no kernel org/no-kernel"):
            load("org/no-kernel", revision=commit)
        with pytest.raises(ValueError, match="it has: cpu"):
            load(revision=commit, backend="nonsense")
        with pytest.raises(TypeError, match="user_agent"):
            load(revision=commit, user_agent="x")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("org/my-kernel", {}),
        ("org/my-kernel", {"revision": "main", "version": 1}),
        ("my-kernel", {"version": 1}),
        ("../etc/passwd", {"version": 1}),
        ("org/..", {"version": 1}),
        ("org/my-kernel", {"revision": "../../x"}),
        ("org/my-kernel", {"revision": "/etc/passwd"}),
        ("org/my-kernel", {"revision": ""}),
        ("org/my-kernel", {"revision": "a\nb"}),
    ],
)
def test_what_names_no_kernel_is_refused_before_anybody_is_asked(name: str, how: dict[str, object]) -> None:
    from hubkernels.runtime import get_kernel  # noqa: PLC0415

    with pytest.raises(ValueError, match=r"no kernel|no revision|must be specified") as error:
        get_kernel(name, **how)  # type: ignore[arg-type]
    assert isinstance(error.value, InputError)


def test_without_a_variant_that_fits_each_has_its_reason(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.publish(40, variant="torch-cuda")
    hub.publish(41, variant="torch-stable-abi999-cpu-x86_64-linux")
    later = hub.publish(41, variant="torch211-cxx11-cpu-riscv-linux")
    with hub.here(monkeypatch) as load:
        with pytest.raises(FileNotFoundError, match="torch-cuda: for backend cuda; chosen is cpu"):
            load(revision=commit)
        with pytest.raises(FileNotFoundError) as error:
            load(revision=later)
    assert "torch211-cxx11-cpu-riscv-linux: for CPU riscv; this one is" in str(error.value)
    assert "torch-stable-abi999-cpu-x86_64-linux: for torch 9.99 and newer" in str(error.value)


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"python-depends": ["nonsense"]}, ValueError, "no package that kernels may need"),
        ({"python-depends": ["helion"]}, ImportError, "pip install helion"),
        ({"kernels-minver": "0.17"}, ValueError, "no X.Y.Z"),
        ({"id": "not a module!"}, ValueError, "no name of a module"),
        ({"id": "_x.y"}, ValueError, "no name of a module"),
        ({"id": "class"}, ValueError, "no name of a module"),
        ({"name": "My_Kernel"}, ValueError, "no name of a kernel"),
        ({"version": "1"}, ValueError, "no version"),
        ({"backend": None}, ValueError, "lacks 'backend'"),
        ({"python-depends": None}, ValueError, "lacks 'python-depends'"),
        ({"digest": {"algorithm": "md5", "files": {}}}, ValueError, "unknown algorithm"),
        ({"digest": {"algorithm": "sha256", "files": {"more.py": "AAAA"}}}, CheckFailedError, "more.py is not as"),
    ],
)
def test_metadata_that_the_client_refuses_and_more_are_refused(
    hub: Machine, monkeypatch: pytest.MonkeyPatch, more: dict[str, object], kind: type[Exception], words: str
) -> None:
    commit = hub.publish(40, metadata=more)
    with hub.here(monkeypatch) as load, pytest.raises(kind, match=words):
        load(revision=commit)


def test_a_newer_contract_is_the_client_s_to_load(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.publish(40, metadata={"kernels-minver": "99.0.0"})
    with hub.here(monkeypatch) as load:
        find = importlib.util.find_spec
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "kernels" else find(name))
        with pytest.raises(EnvironmentLacksError, match=r"hubkernels\[client\]"):
            load(revision=commit)
    ran = hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit)
    assert "requires kernels>=99.0.0" in ran.err


class HalfSentError(Exception):
    """Ends a connection."""


@pytest.mark.parametrize("program", [LOAD, STOCK], ids=["ours", "stock"])
def test_a_proxy_that_knows_no_ranges_costs_a_download_and_no_kernel(
    serve: Serve, tmp_path: Path, program: str
) -> None:
    """It breaks off, too: the Hub's client asks for the rest then, and gets the whole."""
    table = bytes(range(256)) * (3 << 14)
    ranges: list[bytes] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        left = [1]

        async def proxy(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            is_table = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith("/table.bin")
            sent = 0

            async def pass_on(message: Any) -> None:  # noqa: ANN401
                nonlocal sent
                sent += len(message.get("body", b""))
                await send(message)
                if is_table and sent > 11 << 20 and left:  # the client keeps parts of 10 MiB
                    left.clear()
                    raise HalfSentError

            if scope["type"] == "http":
                ranges.extend(value for name, value in scope["headers"] if name == b"range")
                scope = {**scope, "headers": [each for each in scope["headers"] if each[0] != b"range"]}
            with suppress(HalfSentError):
                await app(scope, receive, pass_on)

        return proxy

    hub = Machine(serve(wrap=wrap, lfs="never"), tmp_path / "machine")
    files = artifact("my-kernel", 40, digest=None) | {"data/table.bin": table}
    commit = hub.publish(40, files=files)
    ran = hub.load(program.format(how=PINNED + ", trust_remote_code=True"), "org/my-kernel", commit)
    assert ran.out == f"40 {len(table)}\n", ran.err
    assert [each for each in ranges if each != b"bytes=0-0"] == ([b"bytes=10485760-"] if program == STOCK else [])


EMPTY = dict.fromkeys(("load", "resolver", "validate", "variants"), "")
OTHER_LOAD = "class KernelDependency: pass\ndef revision_or_version(**_): pass\n"


@pytest.mark.parametrize(
    ("modules", "lacks"),
    [({}, "cannot import name"), (EMPTY, "has no attribute"), (EMPTY | {"load": OTHER_LOAD}, "takes no arguments")],
    ids=["without the modules", "without what is in them", "with another form of it"],
)
def test_a_client_that_has_another_inside_is_told(
    hub: Machine, tmp_path: Path, modules: dict[str, str], lacks: str
) -> None:
    """An ImportError of Python's, without a way out, was all that was said."""
    commit = hub.publish(40, metadata={"kernels-minver": "99.0.0"})
    (tmp_path / "other/kernels").mkdir(parents=True)
    for name, content in {"__init__": "", **modules}.items():
        (tmp_path / f"other/kernels/{name}.py").write_text(content, encoding="utf-8")
    path = os.pathsep.join((str(tmp_path / "other"), *sys.path))
    ran = hub.load(LOAD.format(how=PINNED), "org/my-kernel", commit, PYTHONPATH=path)
    assert "EnvironmentLacksError: the stock client is of a release that no kernel can be handed to" in ran.err
    assert lacks in ran.err
    assert "hint: pip install 'hubkernels[client]'" in ran.err


def test_a_kernel_that_needs_kernels_is_loaded_by_the_client(hub: Machine) -> None:
    base = hub.publish(40, repo="org/base")
    files = artifact("top", 0, **{"kernel-depends": [{"repo-id": "org/base", "revision": base}], "digest": None})
    files["__init__.py"] = (
        b"from kernels import get_kernel_dep\nBASE = get_kernel_dep('org/base')\nTABLE = BASE.TABLE\n"
        b"def answer():\n    return BASE.answer() + 1\n"
    )
    commit = hub.publish(0, repo="org/top", files=files)
    ran = hub.load(LOAD.format(how=PINNED), "org/top", commit)
    assert ran.out == f"41 {len(TABLE)}\n", ran.err


def test_a_folder_stands_for_a_kernel(hub: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, content in artifact("my-kernel", 7).items():
        target = tmp_path / "mine/build/torch-cpu" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for folder in ("mine", "mine/build", "mine/build/torch-cpu"):
        with hub.here(monkeypatch, LOCAL_KERNELS=f"org/my-kernel={tmp_path / folder}:a/b=/nowhere", **OFFLINE) as load:
            assert load("org/my_kernel", version=3).answer() == 7
            with pytest.raises(FileNotFoundError, match="no variant in /nowhere"):
                load("a/b", version=1)
    with hub.here(monkeypatch, LOCAL_KERNELS="nonsense") as load, pytest.raises(InputError, match="without a folder"):
        load(version=1)


def test_one_module_a_kernel_whoever_loaded_it(hub: Machine) -> None:
    one, two = hub.publish(40), hub.publish(41, files=artifact("my-kernel", 41, id="_my_kernel_cpu_same"))
    three = hub.publish(42, files=artifact("my-kernel", 42, id="_my_kernel_cpu_same"))
    program = """
import sys, kernels, hubkernels.runtime
one, two, three = sys.argv[1:]
def load(commit, by=hubkernels.runtime.get_kernel, name="org/my-kernel", **how):
    return by(name, revision=commit, backend="cpu", **how)
stock = load(one, kernels.get_kernel)
assert load(one) is stock and load(one) is load(one)
assert load(one, name="org/my_kernel") is stock
mine = load(two)
assert sys.modules["_my_kernel_cpu_same"] is mine and mine.__name__ == "_my_kernel_cpu_same"
try:
    load(three)
except ImportError as error:
    print(error)
"""
    ran = hub.load(program, one, two, three)
    assert "another kernel of the id _my_kernel_cpu_same is loaded in this process" in ran.out, ran.err


def test_a_failing_import_leaves_nothing_and_says_which_kernel(hub: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    files = artifact("my-kernel", 40, digest=None)
    files["__init__.py"] = b"from .more import answer\nraise OSError('no device')\n"
    commit = hub.publish(40, files=files)
    own = json.loads(files["metadata.json"])["id"]
    with hub.here(monkeypatch) as load:
        with pytest.raises(OSError, match="no device") as error:
            load(revision=commit)
        assert not [name for name in sys.modules if name.startswith(own)]
    if sys.version_info >= (3, 11):
        assert f"kernel my-kernel, variant torch-cpu of org/my-kernel at {commit}" in error.value.__notes__[0]


@pytest.mark.compiler
def test_a_compiled_kernel_is_loaded_and_called(hub: Machine, small: SmallProject, cli: Cli) -> None:
    assert cli("build", "--project", small.root).code == 0
    (folder,) = (small.root / "build/my-kernel").glob("torch-*-linux")
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    files = {name: path.read_bytes() for name, path in found.items()}
    commit = hub.publish(0, files=files, variant=folder.name)
    program = LOAD.format(how=PINNED).replace("len(kernel.TABLE)", "kernel.layers.WHOSE")
    ran = hub.load(program, "org/my-kernel", commit)
    assert ran.out == "42 42\n", ran.err
    assert len(hub.asked) <= 4
