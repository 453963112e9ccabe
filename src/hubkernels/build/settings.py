"""How a build is run. But for sanitizers, nothing here changes what is made."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate

STABLE_COMPILE = 500_000_000
FULL_COMPILE = 2_500_000_000
"""Bytes that one compile may take: of the stable ABI's headers, and of all of torch's with a heavy kernel behind them.

Measured with g++ 12 -O3: 0.16 GB for the headers of the stable ABI alone, 1.43 GB for a binding of one line with
``torch/all.h``.
"""

DEVICE_COMPILE = 1_000_000_000
"""Bytes that nvcc may take for one architecture of a source: 0.15 GB for a norm; attention takes five times this."""


@dataclass(frozen=True)
class Settings:
    """jobs: commands at a time. memory: bytes that they may take together, None for no limit.

    verbose: tell each command as it is run. keep_scratch: leave what a failed run has made, for a look at it.
    sanitizers: build with these, into folders that nothing takes for a release.
    system: build with what is installed here, whatever toolchain.lock pins.
    """

    jobs: int
    memory: int | None = None
    verbose: bool = False
    keep_scratch: bool = False
    sanitizers: tuple[str, ...] = ()
    system: bool = False


def device_threads(settings: Settings) -> int:
    """Architectures that one source is compiled for at a time, where it is the only one."""
    return settings.jobs if settings.memory is None else max(1, min(settings.jobs, settings.memory // DEVICE_COMPILE))


@dataclass(frozen=True, order=True)
class Need:
    """Bytes that one command may take, and of what, in words."""

    size: int
    what: str


def usual_need(*, stable_abi: bool, device_threads: int = 0, device: str = "nvcc") -> Need:
    """What a command may take of which nothing is known.

    device_threads: how many architectures the device's compiler compiles for at a time. device: its name.
    """
    many = "" if device_threads == 1 else f" for {device_threads} architectures at a time"
    of_device = Need(device_threads * DEVICE_COMPILE, f"{device}{many}")
    of_host = (
        Need(STABLE_COMPILE, "the stable ABI's headers") if stable_abi else Need(FULL_COMPILE, "all of torch's headers")
    )
    return max(of_device, of_host)  # a source for nvcc may include them, too


def limit_jobs(settings: Settings, needs: Collection[Need]) -> tuple[int, str | None]:
    """Commands at a time that the memory allows, at least one; and why, where fewer than could run, or one takes more.

    needs: of each command. Whichever run together, they take no more than the largest of them.
    """
    wanted = min(settings.jobs, max(len(needs), 1))
    largest = sorted(needs, reverse=True)[:wanted]
    together = list(accumulate(need.size for need in largest))
    if settings.memory is None or not together or together[-1] <= settings.memory:
        return settings.jobs, None
    allowed = max(sum(size <= settings.memory for size in together), 1)
    if allowed == wanted:
        return allowed, (
            f"a compile with {largest[0].what} takes up to {largest[0].size / 1e9:.2g} GB, and "
            f"{settings.memory / 1e9:.1f} GB of memory may be used: it runs alone, and may be ended for it (--memory)"
        )
    many = "commands" if allowed > 1 else "command"
    return allowed, (
        f"{allowed} {many} at a time instead of {wanted}: {settings.memory / 1e9:.1f} GB of memory may be used, and "
        f"a compile with {largest[0].what} takes up to {largest[0].size / 1e9:.2g} GB (--memory, --jobs)"
    )
