"""How a build is run. But for sanitizers, nothing here changes what is made."""

from __future__ import annotations

from dataclasses import dataclass

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


def limit_jobs(settings: Settings, steps: int, *, stable_abi: bool, device_threads: int = 0) -> tuple[int, str | None]:
    """Commands at a time that the memory allows, at least one, and the reason where that is fewer than could run.

    device_threads: the most architectures that one command compiles for at a time.
    """
    wanted = min(settings.jobs, max(steps, 1))
    of_host = STABLE_COMPILE if stable_abi else FULL_COMPILE
    each = max(of_host, device_threads * DEVICE_COMPILE)
    if settings.memory is None or settings.memory // each >= wanted:
        return settings.jobs, None
    allowed = max(settings.memory // each, 1)
    if allowed == wanted:
        return allowed, None
    many = "commands" if allowed > 1 else "command"
    headers = "the stable ABI's headers" if stable_abi else "all of torch's headers"
    if each > of_host:
        headers = "nvcc" if device_threads == 1 else f"nvcc for {device_threads} architectures at a time"
    return allowed, (
        f"{allowed} {many} at a time instead of {wanted}: {settings.memory / 1e9:.1f} GB of "
        f"memory may be used, and a compile with {headers} takes up to {each / 1e9:g} GB (--memory, --jobs)"
    )
