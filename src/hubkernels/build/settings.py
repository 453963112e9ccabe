"""How a build is run. But for sanitizers, nothing here changes what is made."""

from __future__ import annotations

from dataclasses import dataclass

STABLE_COMPILE = 500_000_000
FULL_COMPILE = 2_500_000_000
"""Bytes that one compile may take: of the stable ABI's headers, and of all of torch's with a heavy kernel behind them.

Measured with g++ 12 -O3: 0.16 GB for the headers of the stable ABI alone, 1.43 GB for a binding of one line with
``torch/all.h``.
"""


@dataclass(frozen=True)
class Settings:
    """jobs: commands at a time. memory: bytes that they may take together, None for no limit.

    verbose: tell each command as it is run. keep_scratch: leave what a failed run has made, for a look at it.
    sanitizers: build with these, into folders that nothing takes for a release.
    """

    jobs: int
    memory: int | None = None
    verbose: bool = False
    keep_scratch: bool = False
    sanitizers: tuple[str, ...] = ()


def limit_jobs(settings: Settings, steps: int, *, stable_abi: bool) -> tuple[int, str | None]:
    """Commands at a time that the memory allows, at least one, and the reason where that is fewer than could run."""
    wanted = min(settings.jobs, max(steps, 1))
    each = STABLE_COMPILE if stable_abi else FULL_COMPILE
    if settings.memory is None or settings.memory // each >= wanted:
        return settings.jobs, None
    allowed = max(settings.memory // each, 1)
    if allowed == wanted:
        return allowed, None
    many = "commands" if allowed > 1 else "command"
    headers = "the stable ABI's headers" if stable_abi else "all of torch's headers"
    return allowed, (
        f"{allowed} {many} at a time instead of {wanted}: {settings.memory / 1e9:.1f} GB of "
        f"memory may be used, and a compile with {headers} takes up to {each / 1e9:g} GB (--memory, --jobs)"
    )
