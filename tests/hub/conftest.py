"""A Hub for each test, clients of it in this process and in fresh ones, and requests that no client would send."""

from __future__ import annotations

import http.client
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import REPOSITORY, Cli, Ran, environment, write_noarch

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from hubkernels.hub.local.serve import Running

MISSING = [
    name for name in ("dulwich", "huggingface_hub", "starlette", "uvicorn") if importlib.util.find_spec(name) is None
]
collect_ignore_glob = ["test_*"] if MISSING else []

REPO = "org/my-table"
HUB = '[general.hub]\nrepo-id = "org/my-table"\n'
CPU, CUDA = "torch-cpu", "torch-cuda"
"""Variants of the project of Python files that tests publish to REPO."""

OWNER, CI, READER, OTHER, LATE = "hf_owner", "hf_ci", "hf_reader", "hf_other", "hf_late"
_GRANTS = {
    OWNER: "owner:{}=org:admin",
    CI: "ci:{}=org:write",
    READER: "reader:{}=org:read",
    OTHER: "other:{}=another-org:admin",
    LATE: "late:{}=org:admin@2020-01-01T00:00:00Z",
}
GRANTS = ",".join(form.format(token) for token, form in _GRANTS.items())


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:  # noqa: ANN401 - any JSON
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    """A running Hub, and ways to ask it."""

    running: Running

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def folder(self) -> Path:
        return self.running.hub.folder

    def api(self, token: str | None = OWNER) -> HfApi:
        from huggingface_hub import HfApi  # noqa: PLC0415 - collected without it, too

        return HfApi(endpoint=self.url, token=token or False)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | object = None,
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        """One request, to a path or a whole address, as it is. A body that is no bytes is sent as JSON."""
        told = {name.replace("_", "-"): text for name, text in headers.items()}
        if token:
            told["Authorization"] = f"Bearer {token}"
        where = urlsplit(path if "://" in path else self.url)
        target = path if "://" not in path else f"{where.path}?{where.query}"
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, target, sent, told)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def git(self, repo: str = "kernels/org/my-kernel") -> Path:
        return self.folder / f"{repo}.git"

    def check(self, repo: str = "kernels/org/my-kernel", *options: str) -> None:
        """git finds nothing to complain of; without an option, not even an object that nothing names."""
        done = run("git", "-C", self.git(repo), "fsck", "--strict", "--full", "--no-progress", *options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


Serve = Callable[..., Served]


def run(*words: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """A command, without a terminal to ask for passwords at."""
    env = environment(GIT_TERMINAL_PROMPT="0", GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1", **changes)
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, env=env)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start Hubs that end with the test."""
    from hubkernels.hub.local.accounts import Accounts, parse_tokens  # noqa: PLC0415 - collected without them, too
    from hubkernels.hub.local.serve import serve as serve_hub  # noqa: PLC0415

    with ExitStack() as stack:

        def start(folder: Path = tmp_path / "hub", trust: str = "org", **how: Any) -> Served:  # noqa: ANN401
            accounts = Accounts(parse_tokens(GRANTS, "test"), frozenset({trust}))
            running: AbstractContextManager[Running] = serve_hub(folder, accounts, **how)
            return Served(stack.enter_context(running))

        yield start


@pytest.fixture
def hub(serve: Serve) -> Served:
    """A Hub with one kernel of one branch beside main."""
    served = serve()
    served.api().create_repo("org/my-kernel", repo_type="kernel")
    served.api().create_branch("org/my-kernel", branch="v1", repo_type="kernel")
    return served


Client = Callable[..., str]


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Run a Python program in a fresh process with a cache of its own; the clients read the environment on import."""

    def call(hub: Served, program: str, *words: str | Path, token: str = OWNER, **changes: str) -> str:
        home = tmp_path / f"home-{len(list(tmp_path.iterdir()))}"
        variables = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": token,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        done = run(sys.executable, "-c", program, *words, **{**variables, "PYTHONPATH": str(REPOSITORY), **changes})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def commit_all(folder: Path, message: str = "change") -> str:
    """Everything in a checkout, committed; the full hash."""
    who = ("-c", "user.name=author", "-c", "user.email=author@example.org")
    assert run("git", "-C", folder, "add", "-A").returncode == 0
    assert run("git", "-C", folder, *who, "commit", "-qm", message).returncode == 0
    return run("git", "-C", folder, "rev-parse", "HEAD").stdout.strip()


@pytest.fixture
def project(tmp_path: Path, cli: Cli) -> Path:
    """A built project of Python files for two backends, all of it committed."""
    folder = write_noarch(tmp_path / "project", "my-table", top=HUB)
    (folder / ".gitignore").write_text("build/\n", encoding="utf-8")
    assert run("git", "init", "-q", folder).returncode == 0
    commit_all(folder)
    assert cli("build", "--project", folder).code == 0
    return folder


Verb = Callable[..., Ran]


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """A verb of the command line in a fresh process, as the token's user of a Hub, with a cache of its own."""

    def call(hub: Served, *words: str | Path, token: str = CI, **changes: str) -> Ran:
        variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HOME": str(tmp_path / "hf"), **changes}
        ended = run(sys.executable, "-m", "hubkernels.cli", *words, **variables)
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return call
