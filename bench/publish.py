"""How long `publish` takes, after its checks: four variants of 5 MB each, to a Hub on this machine.

    python bench/publish.py

Each round has other bytes and goes onto the same branch. Prints a line a round, and the median.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hubkernels.hub.local.accounts import Accounts, parse_tokens
from hubkernels.hub.local.serve import serve
from hubkernels.hub.offer import read_offer
from hubkernels.hub.publish import Publication, publish
from hubkernels.hub.remote import Remote
from hubkernels.model.digest import digest_folder

TAGS = ("torch-cpu", "torch-cuda", "torch-rocm", "torch-xpu")
VARIANT_BYTES = 5_000_000
ROUNDS = 7
TOKEN = "hf_bench"  # noqa: S105 - of the Hub that is served here alone
REPO = "bench/my-table"


def write_artifact(folder: Path) -> None:
    """An artifact of Python alone with a table of random bytes, as a build would leave it."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = folder.name.removeprefix("torch-")
    (folder / "__init__.py").write_text('__all__ = ["TABLE"]\nTABLE = 1\n', encoding="utf-8")
    for part in range(5):
        (folder / f"table{part}.bin").write_bytes(os.urandom(VARIANT_BYTES // 5))
    metadata = {
        "name": "my-table",
        "id": f"_my_table_{backend}_{os.urandom(4).hex()}",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": digest_folder(folder)},
    }
    (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")


def rounds(folder: Path) -> Sequence[float]:
    """Seconds of each round."""
    with serve(folder / "hub", Accounts(parse_tokens(f"{TOKEN}=bench:write", "bench"))) as hub:
        os.environ.update(HF_ENDPOINT=hub.url, HF_TOKEN=TOKEN, HF_HOME=str(folder / "client"))
        found = []
        for number in range(ROUNDS):
            for tag in TAGS:
                write_artifact(folder / "build" / tag)
            offered = read_offer({tag: folder / "build" / tag for tag in TAGS})
            started = time.perf_counter()
            done = publish(Publication(offered, "v1", {}), Remote(REPO))
            found.append(time.perf_counter() - started)
            changes = done.changes
            print(f"round {number}: {len(changes.added)} new, {len(changes.changed)} changed, {found[-1]:.2f} s")
        return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(f"median {statistics.median(rounds(Path(scratch))):.2f} s")
