"""How long a first load of a kernel takes, ours beside the stock client's: from a Hub on this machine.

    python bench/cold_load.py build/rms-norm

Publishes a built package, then loads it in fresh processes, each with an empty cache, the two in turn. Both have
imported torch before the clock starts. Prints the requests, the medians with their spread, and their ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.serve import serve
from hubkernels.hub.offer import read_offer
from hubkernels.hub.publish import Publication, publish
from hubkernels.hub.remote import Remote

ROUNDS = 9
TOKEN = "hf_bench"  # noqa: S105 - of the Hub that is served here alone
REPO = "bench/kernel"
LOADERS = {"hubkernels": "hubkernels.runtime", "kernels": "kernels"}

LOAD = """
import sys, time, torch
started = time.perf_counter()
from {module} import get_kernel
imported = time.perf_counter()
get_kernel({repo!r}, revision=sys.argv[1], backend="cpu")
ended = time.perf_counter()
print(imported - started, ended - imported)
"""

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def counting(asked: list[str]) -> Callable[[App], App]:
    """Around a Hub: every request to both of its origins."""

    def wrap(app: App) -> App:
        async def counted(scope: Scope, receive: Any, send: Any) -> None:  # noqa: ANN401 - of ASGI
            if scope["type"] == "http":
                asked.append(f"{scope['method']} {scope['path']}")
            await app(scope, receive, send)

        return counted

    return wrap


def load(module: str, commit: str, url: str, home: Path) -> tuple[float, float]:
    """Seconds of a fresh process: to import the loader, and to load by it."""
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"}
    words = [sys.executable, "-c", LOAD.format(module=module, repo=REPO), commit]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    imported, loaded = map(float, done.stdout.split()[-2:])
    return imported, loaded


def show(name: str, times: list[tuple[float, float]], requests: int) -> float:
    loaded = sorted(each for _, each in times)
    imported = statistics.median(each for each, _ in times)
    median = statistics.median(loaded)
    spread = f"[{loaded[0] * 1e3:.0f}-{loaded[-1] * 1e3:.0f}]"
    print(f"{name}: {requests} requests, load {median * 1e3:.0f} ms {spread}, import {imported * 1e3:.0f} ms")
    return median + imported


def main(package: Path, scratch: Path) -> None:
    asked: list[str] = []
    accounts = Accounts(parse_tokens(f"{TOKEN}=bench:write", "bench"), frozenset({"bench"}))
    with serve(scratch / "hub", accounts, wrap=counting(asked)) as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN, HF_HOME=str(scratch / "publisher"))
        variants = {path.parent.name: path.parent for path in package.glob("*/metadata.json")}
        commit = publish(Publication(read_offer(variants), "v1", {}), Remote(REPO)).commit
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in LOADERS}
        requests: dict[str, int] = {}
        for number in range(ROUNDS):
            for name, module in LOADERS.items():
                asked.clear()
                times[name].append(load(module, str(commit), hub.url, scratch / f"{name}-{number}"))
                requests[name] = len(asked)
        ours, theirs = (show(name, times[name], requests[name]) for name in LOADERS)
        print(f"the client takes {theirs / ours:.1f} times as long, imports included")
        print(json.dumps({"requests": requests, "seconds": times}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]), Path(folder))
