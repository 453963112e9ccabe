"""What builds by toolchain.lock cost beside compiling: SDKs that are fetched, a moved checkout, nothing to do.

    python bench/toolchain.py

Fetches a torch SDK three times and a CUDA toolkit once into temporary stores, from the index that pip is configured
for. Then builds rms-norm, for the CPU and two CUDA toolkits, in a clone of this repository; in a second, by what the
first left in the cache; and nine times more. What is received is counted on all interfaces but the loopback:
nothing of wheels that lie in a folder here.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hubkernels.model.sdk import LockedSdk, SdkName
from hubkernels.model.version import Version
from hubkernels.toolchain.sdk.index import Index
from hubkernels.toolchain.sdk.make import Maker
from hubkernels.toolchain.sdk.store import SdkStore
from hubkernels.toolchain.sdk.transfer import Transfer, read_settings

REPOSITORY = Path(__file__).parent.parent
TORCH = SdkName("torch", Version((2, 10)), "x86_64-linux")
CUDA = SdkName("cuda", Version((13, 0)), "x86_64-linux")
FETCHES = 3
BUILDS = 9


def received() -> int:
    """Bytes that this machine has received since it started."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()
    counts = (line.partition(":") for line in lines if ":" in line and not line.lstrip().startswith("lo:"))
    return sum(int(count.split()[0]) for _, _, count in counts)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that some work takes, and the megabytes that are received meanwhile."""
    before, start = received(), time.perf_counter()
    work()
    return time.perf_counter() - start, (received() - before) / 1e6


def fetch(name: SdkName, answers: Path) -> str:
    """Make an SDK in an empty store, once pip has answered."""
    made: list[LockedSdk] = []
    with tempfile.TemporaryDirectory() as folder:
        index = Index(os.environ, answers)
        connect = lambda: Transfer(read_settings(os.environ))  # noqa: E731 - it is asked for when something is fetched
        Maker(SdkStore(Path(folder, "first")), index, connect, lambda _: None).lock(name)  # pip's answer is kept
        maker = Maker(SdkStore(Path(folder, "second")), index, connect, lambda _: None)
        seconds, megabytes = timed(lambda: made.append(maker.lock(name)))
    wheels = sum(wheel.size for wheel in made[0].wheels) / 1e6
    return f"{seconds:.1f} s, {megabytes:.1f} MB received, of wheels of {wheels:.1f} MB"


def build(project: Path) -> float:
    command = [sys.executable, "-m", "hubkernels.cli", "build", "rms-norm", "--project", str(project)]
    return timed(lambda: subprocess.run(command, check=True, capture_output=True))[0]


def clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", str(REPOSITORY), str(folder)], check=True)  # noqa: S607 - the user's git
    return folder


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        answers = Path(scratch, "answers")
        for name in (*[TORCH] * FETCHES, CUDA):
            print(f"{name}, after pip's answer: {fetch(name, answers)}")
        build(clone(Path(scratch, "first")))
        moved = clone(Path(scratch, "moved"))
        print(f"a moved checkout, everything kept: {build(moved):.2f} s")
        again = [build(moved) for _ in range(BUILDS)]
        print(f"no change: median {statistics.median(again):.2f} s of {BUILDS}, least {min(again):.2f} s")


if __name__ == "__main__":
    main()
