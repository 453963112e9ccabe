"""`lock`, `prefetch` and `audit` with a Hub of our own, and what the stock client then does without one."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hubkernels.errors import CheckFailedError, InputError
from hubkernels.hub.changes import RemoteFile
from hubkernels.hub.lock import lock
from hubkernels.hub.prefetch import prefetch
from hubkernels.hub.remote import Remote
from hubkernels.model.digest import hash_digest
from hubkernels.model.lock import Lock, Pin
from hubkernels.model.project import KernelDependency
from hubkernels.model.refused import UNSEEN
from tests.conftest import Ran
from tests.hub.conftest import READER, Serve, Served, run

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="the client loads kernels into torch")
pytestmark = pytest.mark.torch

TABLE = bytes(range(256)) * 8
TAGS = ("torch-cpu", "torch-cuda")
TOP = """\
from kernels import get_kernel_dep

DATA = b"x"


def answer():
    return get_kernel_dep, BASE.answer() + 1


BASE = get_kernel_dep("org/base")
"""


def answering(value: int) -> str:
    return f"def answer():\n    return {value}\n"


@dataclass(frozen=True)
class Site:
    """A Hub whose kernels a test writes, and one machine that uses it."""

    hub: Served
    folder: Path

    def publish(
        self,
        repo: str,
        text: str,
        version: int = 1,
        depends: Sequence[Mapping[str, Any]] = (),
        **more: Any,  # noqa: ANN401 - keys of metadata
    ) -> str:
        """A kernel of Python alone for two backends; tells the commit."""
        from huggingface_hub import CommitOperationAdd  # noqa: PLC0415 - collected without it, too

        api = self.hub.api()
        api.create_repo(repo, repo_type="kernel", exist_ok=True)
        api.create_branch(repo, branch=f"v{version}", repo_type="kernel", exist_ok=True)
        name = repo.partition("/")[2]
        files = {"__init__.py": text.encode(), "data/table.bin": TABLE}
        operations = []
        for tag in TAGS:
            backend = tag.partition("-")[2]
            metadata = {
                "name": name,
                "id": f"_{name.replace('-', '_')}_{backend}_{hashlib.sha256(text.encode()).hexdigest()[:8]}",
                "version": version,
                "license": "Apache-2.0",
                "python-depends": [],
                "kernel-depends": list(depends),
                "backend": {"type": backend},
                "digest": {"algorithm": "sha256", "files": {path: digest(found) for path, found in files.items()}},
                "provenance": {"kernel-builder": {"version": "0.1.0"}, "kernel": {"commit": "c" * 40, "dirty": False}},
                **more,
            }
            content = {**files, "metadata.json": json.dumps(metadata).encode()}
            operations += [CommitOperationAdd(f"build/{tag}/{path}", found) for path, found in content.items()]
        done = api.create_commit(repo, operations, commit_message="x", repo_type="kernel", revision=f"v{version}")
        return str(done.oid)

    def add(self, repo: str, path: str, content: bytes, version: int = 1) -> None:
        from huggingface_hub import CommitOperationAdd  # noqa: PLC0415 - collected without it, too

        operation = CommitOperationAdd(path, content)
        api = self.hub.api()
        api.create_commit(repo, [operation], commit_message="x", repo_type="kernel", revision=f"v{version}")

    def cli(self, *words: str | Path, **changes: str) -> Ran:
        """A verb in a fresh process, in the folder of the project."""
        variables = {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": READER, "HF_HOME": str(self.home), **changes}
        program = f"import os, sys; os.chdir({str(self.folder)!r}); from hubkernels.cli import main; sys.exit(main())"
        done = run(sys.executable, "-c", program, *words, **variables)
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def home(self) -> Path:
        return self.folder.parent / "machine"

    def cached(self, repo: str, commit: str) -> Path:
        return self.home / "hub" / f"kernels--{repo.replace('/', '--')}" / "snapshots" / commit

    @property
    def lock(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "kernels.lock").read_text())
        return found


def digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


@pytest.fixture
def site(serve: Serve, tmp_path: Path) -> Site:
    folder = tmp_path / "project"
    folder.mkdir()
    return Site(serve(), folder)


def pyproject(site: Site, text: str) -> None:
    (site.folder / "pyproject.toml").write_text(f"[tool.kernels.dependencies]\n{text}\n", encoding="utf-8")


@pytest.fixture
def tree(site: Site) -> dict[str, str]:
    """A project whose kernel depends on two others, at a commit and by version; the commits of all."""
    base = site.publish("org/base", answering(40))
    low = site.publish("org/low", answering(7), version=3)
    depends: list[dict[str, Any]] = [
        {"repo-id": "org/base", "revision": base},
        {"repo-id": "org/low", "version": 3},
    ]
    top = site.publish("org/top", TOP, depends=depends)
    pyproject(site, '"org/top" = 1')
    return {"org/base": base, "org/low": low, "org/top": top}


def test_a_lock_is_the_one_that_the_stock_client_writes(site: Site, tree: dict[str, str]) -> None:
    ran = site.cli("lock")
    assert ran.code == 0, ran.err
    assert [(each["dependency"]["repo-id"], each["lock"]["commit"]) for each in site.lock] == sorted(tree.items())
    ours = (site.folder / "kernels.lock").read_bytes()
    main = "import sys; from kernels.cli import main; sys.argv[0] = 'kernels'; main()"
    done = run(sys.executable, "-c", main, "lock", site.folder, HF_ENDPOINT=site.hub.url, HF_HOME=str(site.home))
    assert done.returncode == 0, done.stderr
    assert (site.folder / "kernels.lock").read_bytes() == ours
    from kernels._rust import KernelLocks  # noqa: PLC0415 - an extra

    assert KernelLocks.from_json(ours.decode()).to_json().encode() == ours


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client, on upload
@pytest.mark.parametrize("lfs", ["never", "always"])
def test_hashes_of_every_file_stand_beside_it(
    serve: Serve, tmp_path: Path, lfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large files the listing has them."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", lfs == "always")
    folder = tmp_path / "project"
    folder.mkdir()
    site = Site(serve(lfs=lfs), folder)
    commit = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1", HF_HUB_DISABLE_XET="1").code == 0
    found = json.loads((site.folder / "kernels.hashes.json").read_text())
    (key,) = found["kernels"]
    assert key == f"org/base@{commit}"
    files = found["kernels"][key]
    assert files["build/torch-cpu/data/table.bin"] == hashlib.sha256(bytes(range(256)) * 8).hexdigest()
    listed = set(site.hub.api().list_repo_files("org/base", repo_type="kernel", revision=commit))
    assert set(files) == listed
    assert ".gitattributes" in files, "of the commit, not of a variant"


def test_kernels_are_named_by_version_by_commit_by_branch_or_alone(site: Site) -> None:
    first = site.publish("org/base", answering(1))
    second = site.publish("org/base", answering(2), version=2)
    pins: dict[str, tuple[dict[str, Any], str]] = {
        "org/base": ({"version": 2}, second),
        "org/base@1": ({"version": 1}, first),
        "org/base@v1": ({"version": 1}, first),
        f"org/base@{first}": ({"revision": first}, first),
        "org/base@refs/heads/v2": ({"revision": second}, second),
    }
    for word, (pin, commit) in pins.items():
        ran = site.cli("lock", word)
        assert ran.code == 0, ran.err
        assert site.lock == [{"dependency": {"repo-id": "org/base", **pin}, "lock": {"commit": commit}}]


def test_a_version_or_a_repository_that_is_not_there_is_named(site: Site) -> None:
    site.publish("org/base", answering(1), version=4)
    ran = site.cli("lock", "org/base@9", "org/nothing@1", "org/base@feed")
    assert ran.code == 4
    assert "org/base has no version 9" in ran.err
    assert "hint: versions: 4" in ran.err
    assert "there is no kernel org/nothing" in ran.err
    assert not (site.folder / "kernels.lock").exists()


def test_without_words_the_kernels_of_build_toml_are_locked(site: Site) -> None:
    commit = site.publish("org/base", answering(1))
    text = """\
[general]
name = "mine"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
kernel-depends = [{ repo-id = "org/base", %s }]

[torch-noarch]
"""
    build = site.folder / "build.toml"
    (site.folder / "torch-ext/mine").mkdir(parents=True)
    (site.folder / "torch-ext/mine/__init__.py").write_text("", encoding="utf-8")
    build.write_text(text % "version = 1", encoding="utf-8")
    ran = site.cli("lock")
    assert ran.code == 0, ran.err
    assert ran.out.split()[:2] == ["org/base@1", commit]
    build.write_text(text % 'revision = "v1"', encoding="utf-8")
    ran = site.cli("lock")
    assert ran.code == 2
    assert "org/base@v1" in ran.err
    build.unlink()
    ran = site.cli("lock")
    assert ran.code == 2
    assert "no kernel to lock" in ran.err


def test_a_kernel_depends_that_can_move_is_refused_with_its_commit(site: Site) -> None:
    base = site.publish("org/base", answering(1))
    site.publish("org/top", TOP, depends=[{"repo-id": "org/base", "revision": "v1"}])
    ran = site.cli("lock", "org/top@1")
    assert ran.code == 1
    assert "org/top@1 takes org/base@v1 as kernel-depends: a branch or a tag, which can move" in ran.err
    assert base in ran.err


def test_kernels_that_depend_on_each_other_are_refused(site: Site) -> None:
    site.publish("org/one", answering(1), depends=[{"repo-id": "org/two", "version": 1}])
    site.publish("org/two", answering(1), depends=[{"repo-id": "org/one", "version": 1}])
    ran = site.cli("lock", "org/one@1")
    assert ran.code == 1
    assert "org/one@1 -> org/two@1 -> org/one@1" in ran.err


def test_nobody_is_trusted_silently(serve: Serve, tmp_path: Path) -> None:
    """Neither who is named, nor whom those depend on; nothing of theirs is read before."""
    folder = tmp_path / "project"
    folder.mkdir()
    site = Site(serve(trust="nobody"), folder)
    base = site.publish("org/base", answering(1))
    site.publish("org/top-kernel", TOP, depends=[{"repo-id": "org/base", "revision": base}])
    for verb in ("lock", "prefetch"):
        ran = site.cli(verb, "org/top-kernel@1")
        assert ran.code == 1
        assert "org/top-kernel is not from a publisher that the Hub trusts" in ran.err
        assert "--trust org/top-kernel" in ran.err
        assert not (site.home / "hub").exists() or not list((site.home / "hub").glob("kernels--*"))
    ran = site.cli("lock", "org/top-kernel@1", "--trust", "org/top_kernel")
    assert ran.code == 1
    assert "org/base is not from a publisher that the Hub trusts" in ran.err
    assert site.cli("lock", "org/top-kernel@1", "--trust", "org/top-kernel", "--trust", "org/base").code == 0
    assert site.cli("lock", "org/top-kernel@1", "--trust", "org").code == 0


def test_check_fails_where_the_lock_is_out_of_date_and_writes_nothing(site: Site, tree: dict[str, str]) -> None:
    assert site.cli("lock", "--check").code == 2, "there is none"
    assert site.cli("lock").code == 0
    assert site.cli("lock", "--check").code == 0
    before = (site.folder / "kernels.lock").read_bytes()
    now = site.publish("org/low", answering(8), version=3)
    ran = site.cli("lock", "--check")
    assert ran.code == 1
    assert f"org/low@3 is locked at {tree['org/low']}: it is {now} now" in ran.err
    pyproject(site, '"org/base" = 1')
    ran = site.cli("lock", "--check")
    assert ran.code == 1
    assert "org/base@1 is not locked" in ran.err
    assert "org/top@1 is locked, and nothing depends on it" in ran.err
    assert "`kernel-builder lock` writes it anew" in ran.err
    ran = site.cli("lock", "org/low@3", "--check", "--trust", "org", "--output", "kernels.lock")
    assert "`kernel-builder lock org/low@3 --trust org --output kernels.lock` writes it anew" in ran.err
    assert (site.folder / "kernels.lock").read_bytes() == before
    assert site.cli("lock").code == 0
    (site.folder / "kernels.hashes.json").unlink()
    ran = site.cli("lock", "--check")
    assert ran.code == 1
    assert "the hashes beside the lock are missing" in ran.err


def test_files_that_are_not_what_their_digest_says_are_not_locked(site: Site) -> None:
    wrong = {"__init__.py": digest(b"other"), "data/table.bin": digest(bytes(range(256)) * 8)}
    site.publish("org/base", answering(1), digest={"algorithm": "sha256", "files": wrong})
    ran = site.cli("lock", "org/base@1")
    assert ran.code == 1
    right = hashlib.sha256(answering(1).encode()).hexdigest()
    assert f"build/torch-cpu/__init__.py has {right}: the digest in build/torch-cpu/metadata.json" in ran.err
    assert hashlib.sha256(b"other").hexdigest() in ran.err


LOAD = """
import sys
from pathlib import Path
import kernels
top, base = sys.argv[1:]
lock = Path("kernels.lock")
for kernel in (
    kernels.load_kernel("org/top", lockfile=lock),
    kernels.get_kernel("org/top", revision=top),
    kernels.get_kernel("org/top", version=1),
    kernels.get_locked_kernel("org/top", lockfile=lock),
):
    print(kernel.answer()[1], kernel.BASE.answer())
print(kernels.get_kernel("org/base", revision=base).answer(), kernels.get_kernel("org/low", version=3).answer())
print(kernels.get_kernel("org/base", version=1).answer())
"""


def offline(site: Site, program: str, *words: str, **changes: str) -> Ran:
    """In a fresh process, with no network and an address where nobody answers."""
    variables = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(site.home), **changes}
    into = f"import os; os.chdir({str(site.folder)!r})\n"
    done = run(sys.executable, "-c", into + program, *words, **variables)
    return Ran(done.returncode, done.stdout, done.stderr)


Stoppable = Callable[[], tuple[Site, Callable[[], None]]]


@pytest.fixture
def stoppable(tmp_path: Path) -> Stoppable:
    """A site whose Hub a test stops."""
    from hubkernels.hub.local.accounts import Accounts, parse_tokens  # noqa: PLC0415 - collected without them, too
    from hubkernels.hub.local.serve import Running  # noqa: PLC0415
    from hubkernels.hub.local.serve import serve as serve_hub  # noqa: PLC0415
    from tests.hub.conftest import GRANTS  # noqa: PLC0415

    def start() -> tuple[Site, Callable[[], None]]:
        accounts = Accounts(parse_tokens(GRANTS, "test"), frozenset({"org"}))
        running: AbstractContextManager[Running] = serve_hub(tmp_path / "hub", accounts)
        (tmp_path / "project").mkdir()
        site = Site(Served(running.__enter__()), tmp_path / "project")

        def stop() -> None:
            running.__exit__(None, None, None)

        return site, stop

    return start


def plant(site: Site) -> tuple[str, str]:
    base = site.publish("org/base", answering(40))
    site.publish("org/low", answering(7), version=3)
    depends: list[dict[str, Any]] = [
        {"repo-id": "org/base", "revision": base},
        {"repo-id": "org/low", "version": 3},
    ]
    top = site.publish("org/top", TOP, depends=depends)
    pyproject(site, '"org/top" = 1')
    return top, base


@pytest.mark.parametrize("own_cache", [False, True])
def test_what_was_prefetched_loads_without_a_network(stoppable: Stoppable, tmp_path: Path, own_cache: bool) -> None:  # noqa: FBT001
    """In each of the client's ways, its own cache too; the Hub is not there any more."""
    site, stop = stoppable()
    changes = {"KERNELS_CACHE": str(tmp_path / "own")} if own_cache else {}
    try:
        top, base = plant(site)
        assert site.cli("lock", **changes).code == 0
        ran = site.cli("prefetch", **changes)
        assert ran.code == 0, ran.err
        assert f"org/top@{top}: 7 files, version 1" in ran.out
        assert f"org/base@{base}: 7 files, version 1" in ran.out, "pinned by commit, which is the head of a version"
    finally:
        stop()
    ran = offline(site, LOAD, top, base, **changes)
    assert ran.code == 0, ran.err
    assert ran.out.split("\n") == [*["41 40"] * 4, "40 7", "40", ""]
    assert site.cli("audit", HF_ENDPOINT="http://127.0.0.1:9", **changes).code == 0


def test_a_cache_below_the_home_is_one_for_all(site: Site, tmp_path: Path) -> None:
    """`prefetch` fetched into ~/kc, and looked into a folder that is called ``~``: there was nothing wrong in it."""
    commit = site.publish("org/base", answering(40))
    own = {"KERNELS_CACHE": "~/kc", "HOME": str(tmp_path / "user")}
    assert site.cli("lock", "org/base@1", **own).code == 0
    ran = site.cli("prefetch", **own)
    assert ran.code == 0, ran.err
    assert f"org/base@{commit}: 7 files, version 1" in ran.out
    assert site.cli("audit", **own).code == 0
    assert not (site.folder / "~").exists()
    for by in ("kernels", "hubkernels.runtime"):
        load = f"import {by}, sys; print({by}.get_kernel('org/base', revision=sys.argv[1]).answer())"
        assert offline(site, load, commit, **own).out == "40\n"


class Vain(Remote):
    """Takes another folder than the one that was meant, and names another commit than the one that was."""

    def commit_of(self, revision: str) -> str:  # noqa: ARG002
        return "b" * 40

    def files(self, commit: str) -> dict[str, RemoteFile]:  # noqa: ARG002
        return {}

    def fetch(self, commit: str) -> None:
        pass


def test_what_is_not_where_it_was_fetched_to_is_refused(tmp_path: Path) -> None:
    pins = (Pin(KernelDependency("org/base", version=1), "a" * 40),)
    with pytest.raises(CheckFailedError, match="is not in the cache that it was fetched into"):
        list(prefetch(Lock(pins), Vain, tmp_path))


@pytest.mark.parametrize("asked", ["a" * 7, "A" * 12, "a" * 39, "a" * 41, "a" * 63])
def test_the_beginning_of_a_commit_is_refused_before_a_hub_is_asked(asked: str) -> None:
    """The Hub said that there is no such revision, and the hint led away."""
    with pytest.raises(InputError, match=f"{asked} is no whole commit\n.*\n  hint: all 40 hex digits of it"):
        lock([KernelDependency("org/base", revision=asked)], Vain, None)


def test_a_commit_in_capitals_is_that_commit(site: Site) -> None:
    """The Hub was asked what it is, and believed."""
    commit = site.publish("org/base", answering(40))
    ran = site.cli("lock", f"org/base@{commit.upper()}")
    assert ran.code == 0, ran.err
    pin = {"dependency": {"repo-id": "org/base", "revision": commit}, "lock": {"commit": commit}}
    assert site.lock == [pin]


def test_the_proof_of_what_was_prefetched_is_there(site: Site) -> None:
    """A cache that nobody may write into needs no request for it."""
    commit = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    ran = site.cli("prefetch")
    assert (ran.code, ran.err) == (0, "")
    assert (site.home / f"hub/kernels--org--base/hubkernels/{commit}.objects").is_file()
    load = "import hubkernels.runtime as r, sys; print(r.get_kernel('org/base', revision=sys.argv[1]{}).answer())"
    ran = offline(site, load.format(", trust_remote_code=True"), commit, HF_HUB_OFFLINE="0")
    assert ran.out == "40\n", ran.err


def test_without_a_proof_it_is_prefetched_all_the_same(serve: Serve, tmp_path: Path) -> None:
    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def no_git(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if "upload-pack" in scope.get("path", ""):
                await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
                await send({"type": "http.response.body", "body": b""})
            else:
                await app(scope, receive, send)

        return no_git

    (tmp_path / "project").mkdir()
    site = Site(serve(wrap=wrap), tmp_path / "project")
    site.publish("org/base", answering(40))
    ran = site.cli("prefetch", "org/base@1")
    assert ran.code == 0, ran.err
    assert "is in the cache without its proof" in ran.err
    assert site.home.joinpath("hub/kernels--org--base/snapshots").is_dir()


WITHOUT_A_WORD = """
import kernels, sys, hubkernels.runtime
from pathlib import Path
base, lock, name = sys.argv[1], Path("kernels.lock"), "org/base"
ways = {
    "load_kernel": lambda: kernels.load_kernel(name, lockfile=lock),
    "get_locked_kernel": lambda: kernels.get_locked_kernel(name, lockfile=lock),
    "revision": lambda: kernels.get_kernel(name, revision=base),
    "version": lambda: kernels.get_kernel(name, version=1),
    "version, trusted": lambda: kernels.get_kernel(name, version=1, trust_remote_code=[name]),
    "our revision": lambda: hubkernels.runtime.get_kernel(name, revision=base),
    "our version": lambda: hubkernels.runtime.get_kernel(name, version=1),
    "our version, trusted": lambda: hubkernels.runtime.get_kernel(name, version=1, trust_remote_code=[name]),
}
for way, load in ways.items():
    try:
        load()
    except Exception as error:
        assert any(why in str(error) for why in ("could not", "cannot be reached", "refused")), error
    else:
        print(way)
"""


def test_what_needs_to_be_told_that_there_is_no_network(stoppable: Stoppable) -> None:
    """docs/pins.md said that all ways work without the variable; one does."""
    site, stop = stoppable()
    try:
        _, base = plant(site)
        assert site.cli("lock").code == 0
        assert site.cli("prefetch").code == 0
    finally:
        stop()
    ran = offline(site, WITHOUT_A_WORD, base, HF_HUB_OFFLINE="0")
    assert ran.out == "load_kernel\n", ran.err


def test_without_prefetch_the_stock_client_does_not_load_what_it_downloaded(
    stoppable: Stoppable,
) -> None:
    """The reason for the verb; when this fails, the clients were mended."""
    site, stop = stoppable()
    try:
        top, base = plant(site)
        main = "import sys; from kernels.cli import main; sys.argv[0] = 'kernels'; main()"
        env = {"HF_ENDPOINT": site.hub.url, "HF_HOME": str(site.home)}
        for words in (("lock",), ("download", "--all-variants")):
            done = run(sys.executable, "-c", main, *words, site.folder, **env)
            assert done.returncode == 0, done.stderr
    finally:
        stop()
    ran = offline(site, LOAD, top, base)
    assert ran.code == 1
    assert "Cannot find a local snapshot" in ran.err


def test_a_token_of_another_hub_is_what_the_hint_is_about(site: Site) -> None:
    """A public kernel was not read, and the hint was to get a token."""
    commit = site.publish("org/base", answering(40))
    other, hint = {"HF_TOKEN": "hf_left_over"}, "unset HF_TOKEN for it, or `hf auth logout`"
    ran = site.cli("lock", "org/base@1", **other)
    assert ran.code == 4
    load = f"import hubkernels.runtime; hubkernels.runtime.get_kernel('org/base', revision={commit!r})"
    online = {"HF_ENDPOINT": site.hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": ""}
    for said in (ran.err, offline(site, load, **online | other).err):
        assert f"this Hub does not know the token that was sent: {hint}, or log in there" in said
    assert offline(site, load, **online).code == 0


@pytest.mark.parametrize("token", ["", READER], ids=["no token", "token"])
def test_the_loader_and_the_verbs_name_one_way_out_of_one_refusal(site: Site, token: str) -> None:
    """Of a kernel that is not there: who had a token was told to get one, or not, by who asked."""
    load = "import hubkernels.runtime; hubkernels.runtime.get_kernel('org/none', version=1, trust_remote_code=True)"
    online = {"HF_ENDPOINT": site.hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token}
    for said in (site.cli("lock", "org/none@1", HF_TOKEN=token).err, offline(site, load, **online).err):
        assert UNSEEN in said


@pytest.mark.parametrize(
    ("token", "hint"),
    [
        ("", "no token was sent, and that may take one: `hf auth login`, or HF_TOKEN"),
        (READER, "the token may not do that: ask an owner of the organization for the right"),
    ],
    ids=["no token", "token"],
)
def test_who_reads_what_is_forbidden_is_told_of_the_token_and_no_option_of_publish(
    serve: Serve, tmp_path: Path, token: str, hint: str
) -> None:
    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def forbid(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        return forbid

    (tmp_path / "project").mkdir()
    site = Site(serve(wrap=wrap), tmp_path / "project")
    load = "import hubkernels.runtime; hubkernels.runtime.get_kernel('org/base', version=1, trust_remote_code=True)"
    online = {"HF_ENDPOINT": site.hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token}
    for said in (site.cli("lock", "org/base@1", HF_TOKEN=token).err, offline(site, load, **online).err):
        assert "refused (403)" in said
        assert hint in said
        assert "--create-pr" not in said


def test_kernels_are_prefetched_without_a_lock(site: Site) -> None:
    commit = site.publish("org/base", answering(40))
    ran = site.cli("prefetch", f"org/base@{commit}", "--json")
    assert ran.code == 0, ran.err
    (found,) = json.loads(ran.out)
    assert (found["commit"], found["versions"], found["files"]) == (commit, [1], 7)
    assert Path(found["folder"]) == site.cached("org/base", commit)
    load = "import kernels, sys; print(kernels.get_kernel('org/base', revision=sys.argv[1]).answer())"
    assert offline(site, load, commit).out == "40\n"


def test_a_file_in_the_cache_that_was_changed_is_fetched_again(site: Site, tree: dict[str, str]) -> None:
    assert site.cli("lock").code == 0
    assert site.cli("prefetch").code == 0
    folder = site.cached("org/base", tree["org/base"])
    (folder / "build/torch-cpu/__init__.py").resolve().write_text("changed = 1\n", encoding="utf-8")
    (folder / "build/torch-cpu/more.py").write_text("planted = 1\n", encoding="utf-8")
    (folder / "README.md").unlink(missing_ok=True)
    assert site.cli("audit").code == 1
    ran = site.cli("prefetch")
    assert ran.code == 0, ran.err
    assert (folder / "build/torch-cpu/__init__.py").read_text() == answering(40)
    assert not (folder / "build/torch-cpu/more.py").exists()
    assert site.cli("audit").code == 0


def test_other_bytes_than_the_lock_has_are_named_and_do_not_stay(serve: Serve, tmp_path: Path) -> None:
    spoiling: list[bool] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def spoil(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            spoilt = spoiling and scope.get("path", "").endswith("/table.bin") and scope["method"] == "GET"

            async def other(message: Any) -> None:  # noqa: ANN401
                if spoilt and message.get("body"):
                    message = {**message, "body": b"!" + message["body"][1:]}
                await send(message)

            await app(scope, receive, other)

        return spoil

    folder = tmp_path / "project"
    folder.mkdir()
    site = Site(serve(wrap=wrap), folder)
    commit = site.publish("org/base", answering(40))
    pyproject(site, '"org/base" = 1')
    assert site.cli("lock").code == 0
    shutil.rmtree(site.home)
    spoiling.append(True)
    ran = site.cli("prefetch")
    assert ran.code == 1
    assert "build/torch-cpu/data/table.bin" in ran.err
    assert hashlib.sha256(TABLE).hexdigest() in ran.err
    assert hashlib.sha256(b"!" + TABLE[1:]).hexdigest() in ran.err
    assert not site.cached("org/base", commit).exists()
    assert all(path.read_bytes()[:1] != b"!" for path in site.home.rglob("*") if path.is_file())
    ran = site.cli("lock", "org/base@1")
    assert ran.code == 1
    assert "data/table.bin has " in ran.err
    spoiling.clear()
    shutil.rmtree(site.home)
    assert site.cli("prefetch").code == 0


def test_an_audit_tells_of_commits_hashes_signatures_sources_and_licences(site: Site, tree: dict[str, str]) -> None:
    assert site.cli("lock").code == 0
    shutil.rmtree(site.home)
    missing = site.cli("audit")
    assert missing.code == 1
    assert f"org/top@1 at {tree['org/top']} is not in the cache" in missing.err
    assert site.cli("prefetch").code == 0
    ran = site.cli("audit", HF_HUB_OFFLINE="1")
    assert ran.code == 0, ran.err
    assert f"org/top@{tree['org/top']}: 7 files as the lock has them\n" in ran.out
    assert f"  torch-cpu: digest; unsigned; sources {'c' * 12}; Apache-2.0; no parity record\n" in ran.out
    found = json.loads(site.cli("audit", "--json").out)
    assert [each["commit"] for each in found] == [tree[name] for name in sorted(tree)]
    assert found[0]["variants"][0] == {
        "tag": "torch-cpu",
        "signature": "unsigned",
        "signer": None,
        "has_digest": True,
        "license": "Apache-2.0",
        "commit": "c" * 40,
        "dirty": False,
        "parity": None,
    }


PARITY_OF_BASE = {
    "digest": hash_digest({"__init__.py": digest(answering(40).encode()), "data/table.bin": digest(TABLE)}),
    "machine": {"cpu": "a processor"},
    "rows": [{"ok": True}, {"ok": True}, {"ok": False}],
}


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (json.dumps(PARITY_OF_BASE), "parity 2 of 3 on a processor"),
        (json.dumps({**PARITY_OF_BASE, "machine": None}), "parity 2 of 3"),
        (json.dumps({**PARITY_OF_BASE, "digest": "0" * 64}), "no parity record"),
        (json.dumps({**PARITY_OF_BASE, "rows": [1]}), "no parity record"),
        ("[" * 10**5, "no parity record"),
    ],
    ids=["good", "no machine", "of other bytes", "no rows", "no record"],
)
def test_an_audit_tells_what_parity_was_recorded(site: Site, record: str, told: str) -> None:
    site.publish("org/base", answering(40))
    site.add("org/base", "records/torch-cpu/parity.json", record.encode())
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("prefetch").code == 0
    ran = site.cli("audit")
    assert ran.code == 0, ran.err
    assert f"  torch-cpu: digest; unsigned; sources {'c' * 12}; Apache-2.0; {told}\n" in ran.out
    variants = json.loads(site.cli("audit", "--json").out)[0]["variants"]
    assert [bool(each["parity"]) for each in variants] == [told != "no parity record", False]


def test_an_audit_names_a_changed_file_with_both_hashes(site: Site, tree: dict[str, str]) -> None:
    assert site.cli("lock").code == 0
    assert site.cli("prefetch").code == 0
    changed = site.cached("org/top", tree["org/top"]) / "build/torch-cpu/__init__.py"
    changed.resolve().write_bytes(b"import os\n")
    for _ in range(2):
        ran = site.cli("audit")
        assert ran.code == 1
        assert "build/torch-cpu/__init__.py has " + hashlib.sha256(b"import os\n").hexdigest() in ran.err
        assert hashlib.sha256(TOP.encode()).hexdigest() in ran.err
        (site.folder / "kernels.hashes.json").unlink(missing_ok=True)  # then by the digest


def test_hashes_of_another_lock_are_refused(site: Site, tree: dict[str, str]) -> None:
    assert site.cli("lock").code == 0
    now = site.publish("org/top", answering(1))
    text = (site.folder / "kernels.lock").read_text()
    (site.folder / "kernels.lock").write_text(text.replace(tree["org/top"], now), encoding="utf-8")
    ran = site.cli("prefetch")
    assert ran.code == 1
    assert "they do not belong together" in ran.err


def test_a_lock_of_an_older_client_is_told_so(site: Site) -> None:
    old = [{"repo_id": "org/base", "sha": "a" * 40, "variants": {}}]
    (site.folder / "kernels.lock").write_text(json.dumps(old), encoding="utf-8")
    for verb in ("prefetch", "audit"):
        ran = site.cli(verb)
        assert ran.code == 2
        assert "the form of client 0.16" in ran.err


def plant_bytecode(site: Site, path: str) -> str:
    made = site.hub.api().upload_file(
        path_or_fileobj=b"1", path_in_repo=path, repo_id="org/base", repo_type="kernel", revision="v1"
    )
    return str(made.oid)


@pytest.mark.parametrize("path", ["build/torch-cpu/__pycache__/__init__.cpython-311.pyc", "build/torch-cpu/more.pyc"])
def test_bytecode_that_was_published_is_refused(site: Site, tmp_path: Path, path: str) -> None:
    """Python runs it instead of a source, and neither lock nor digest has it. An older lock is no way around."""
    before = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    after = plant_bytecode(site, path)
    ran = site.cli("lock", "org/base@1", "--output", tmp_path / "new.lock")
    assert ran.code == 1
    assert f"there is bytecode, for which nobody can vouch: {path}" in ran.err
    for file in ("kernels.lock", "kernels.hashes.json"):
        text = (site.folder / file).read_text()
        (site.folder / file).write_text(text.replace(before, after), encoding="utf-8")
    shutil.rmtree(site.home)
    for words in (("prefetch",), ("hub", "pull", tmp_path / "other")):
        ran = site.cli(*words)
        assert ran.code == 1
        assert f"nobody can vouch: {path}" in ran.err
    assert not site.cached("org/base", after).exists()
    fetch = "import huggingface_hub as h; h.snapshot_download('org/base', repo_type='kernel', revision=%r)"
    variables = {"HF_ENDPOINT": site.hub.url, "HF_TOKEN": READER, "HF_HOME": str(site.home)}
    assert run(sys.executable, "-c", fetch % after, **variables).returncode == 0
    ran = site.cli("audit")
    assert ran.code == 1
    assert f"nobody can vouch: {path}" in ran.err


def test_what_python_writes_beside_a_kernel_is_no_wrong(site: Site) -> None:
    commit = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("prefetch").code == 0
    beside = site.cached("org/base", commit) / "build/torch-cpu/__pycache__"
    beside.mkdir()
    (beside / "__init__.cpython-311.pyc").write_bytes(b"1")
    assert site.cli("audit").code == 0
    (beside.parent / "more.pyc").write_bytes(b"1")
    assert site.cli("audit").code == 1, "without a source, which Python never writes"


def test_a_link_to_a_folder_that_nobody_named_is_told_and_taken_away(site: Site, tmp_path: Path) -> None:
    """Python imports what is behind it."""
    commit = site.publish("org/base", answering(40))
    assert site.cli("lock", "org/base@1").code == 0
    assert site.cli("prefetch").code == 0
    planted = site.cached("org/base", commit) / "build/torch-cpu/layers"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/__init__.py").write_text("", encoding="utf-8")
    planted.symlink_to(tmp_path / "elsewhere")
    ran = site.cli("audit")
    assert ran.code == 1
    assert "build/torch-cpu/layers is there and nobody named it" in ran.err
    assert site.cli("prefetch").code == 0
    assert not planted.is_symlink()
    assert (tmp_path / "elsewhere/__init__.py").is_file()
