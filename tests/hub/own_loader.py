"""Kernels on a Hub that counts what it is asked, for tests of `hubkernels.runtime`."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import Ran
from tests.hub.conftest import READER, Serve, Served, run

TABLE = bytes(range(256)) * 1200
"""More than comes along with a commit."""

LOAD = """
import sys
import hubkernels.runtime
kernel = hubkernels.runtime.get_kernel(sys.argv[1], {how})
print(kernel.answer(), len(kernel.TABLE))
"""

STOCK = LOAD.replace("import hubkernels.runtime", "import kernels").replace("hubkernels.runtime.", "kernels.")

Change = Callable[[str, int, bytes], "tuple[int, bytes, dict[str, str]] | None"]
"""What becomes of an answer: status, body and more headers, of its path, status and body; None to leave it."""


def text(value: int) -> str:
    return (
        "from pathlib import Path\n\nfrom .more import answer as _more\n\n"
        "TABLE = (Path(__file__).parent / 'data/table.bin').read_bytes()\n\n\n"
        f"def answer():\n    return _more() + {value}\n"
    )


def digest(content: bytes) -> str:
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


def artifact(name: str, value: int, /, **more: Any) -> dict[str, bytes]:  # noqa: ANN401
    """The files of a variant; more: keys of metadata."""
    files = {"__init__.py": text(value).encode(), "more.py": b"def answer():\n    return 0\n", "data/table.bin": TABLE}
    uid = hashlib.sha256(repr((sorted(files), value, name)).encode()).hexdigest()[:8]
    metadata = {
        "name": name,
        "id": f"_{name.replace('-', '_')}_cpu_{uid}",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": "cpu"},
        "digest": {"algorithm": "sha256", "files": {path: digest(content) for path, content in files.items()}},
        **more,
    }
    kept = {key: found for key, found in metadata.items() if found is not None}
    return {**files, "metadata.json": json.dumps(kept).encode()}


@dataclass
class Machine:
    """A Hub, and one machine that loads kernels from it. log: method, path and status of each request so far."""

    hub: Served
    home: Path
    log: list[tuple[str, str, int]] = field(default_factory=list)
    change: list[Change] = field(default_factory=list)

    def publish(  # noqa: PLR0913 - what a kernel is made of
        self,
        value: int,
        *,
        repo: str = "org/my-kernel",
        files: Mapping[str, bytes] | None = None,
        branch: str = "v1",
        variant: str = "torch-cpu",
        metadata: Mapping[str, Any] | None = None,
    ) -> str:
        from huggingface_hub import CommitOperationAdd  # noqa: PLC0415 - collected without it, too

        found = files or artifact(repo.partition("/")[2], value, **(metadata or {}))
        api = self.hub.api()
        api.create_repo(repo, repo_type="kernel", exist_ok=True)
        api.create_branch(repo, branch=branch, repo_type="kernel", exist_ok=True)
        operations = [CommitOperationAdd(f"build/{variant}/{path}", content) for path, content in found.items()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the client's own upload of large files
            done = api.create_commit(repo, operations, commit_message="x", repo_type="kernel", revision=branch)
        self.log.clear()
        return str(done.oid)

    def load(self, program: str, *words: str, **changes: str) -> Ran:
        """In a fresh process."""
        self.log.clear()
        done = run(sys.executable, "-c", program, *words, **{**self.environment, **changes})
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def environment(self) -> dict[str, str]:
        return {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": READER, "HF_HOME": str(self.home), "HF_HUB_OFFLINE": "0"}

    @property
    def asked(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.log]

    def cached(self, commit: str, path: str = "", repo: str = "org/my-kernel") -> Path:
        name = f"kernels--{repo.replace('/', '--')}"
        return self.home / "hub" / name / "snapshots" / commit / "build/torch-cpu" / path

    @contextmanager
    def here(self, patch: pytest.MonkeyPatch, **changes: str) -> Iterator[Callable[..., Any]]:
        """Load in this process: yields a function that does."""
        for name, value in {**self.environment, **changes}.items():
            patch.setenv(name, value)
        before = set(sys.modules)

        def load(repo: str = "org/my-kernel", **how: Any) -> ModuleType:  # noqa: ANN401
            from hubkernels.runtime import get_kernel  # noqa: PLC0415

            return get_kernel(repo, **{"backend": "cpu", **how})

        try:
            yield load
        finally:
            for name in set(sys.modules) - before:
                if name.startswith("_my_kernel"):
                    del sys.modules[name]


def logging(machine_log: list[tuple[str, str, int]], change: list[Change]) -> Any:  # noqa: ANN401
    """Around a Hub: what it was asked, and answers changed on the way."""

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def logged(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            start: dict[str, Any] = {}
            body = bytearray()

            async def sent(message: Any) -> None:  # noqa: ANN401
                if message["type"] == "http.response.start":
                    machine_log.append((scope["method"], scope["path"], message["status"]))
                    if change:
                        start.update(message)
                        return
                elif change:
                    body.extend(message.get("body", b""))
                    if message.get("more_body"):
                        return
                    status, content, more = start["status"], bytes(body), dict[str, str]()
                    for each in change:
                        status, content, more = each(scope["path"], status, content) or (status, content, more)
                    told = {name.decode(): value.decode() for name, value in start["headers"]}
                    told |= {} if scope["method"] == "HEAD" else {"content-length": str(len(content))}
                    told |= more
                    headers = [(name.encode(), value.encode()) for name, value in told.items()]
                    await send({**start, "status": status, "headers": headers})
                    await send({"type": "http.response.body", "body": content if scope["method"] != "HEAD" else b""})
                    return
                await send(message)

            await app(scope, receive, sent)

        return logged

    return wrap


def machine(serve: Serve, home: Path, **how: Any) -> Machine:  # noqa: ANN401
    log: list[tuple[str, str, int]] = []
    change: list[Change] = []
    return Machine(serve(wrap=logging(log, change), **how), home, log, change)
