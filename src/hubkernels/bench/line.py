"""A record in one line, for people."""

from __future__ import annotations

from hubkernels.bench.record import Record

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Those that have a short name, by that."""

_SHORT = {dtype: short for short, dtype in DTYPES.items()}

_BUSY = 3.0
"""A median so many times the best call is of the queue for the cores, not of the kernel."""


def line(record: Record) -> str:
    """One record as one line that can be argued with."""
    time, machine = record.time, record.machine
    shape = "x".join(map(str, record.shape))
    commit = f" @{record.git.commit[:7]}{'+' if record.git.dirty else ''}" if record.git else ""
    isa = f" {machine.isa}" if machine.isa else ""
    torch = ".".join(record.versions.torch.split(".")[:2])
    share = f"{record.bytes / 1e6:.1f} MB, {record.share_of_copy:.0%} of copy ({record.copy_gb_s:.1f} GB/s)"
    parts = [
        f"{record.op} {record.direction} {_SHORT.get(record.dtype, record.dtype)} {shape}",
        f"{machine.cpu}{isa}, {record.threads} threads, torch{torch}{commit}",
        f"{_us(time.median_us)} us [{_us(time.spread_us[0])}-{_us(time.spread_us[1])}] best {_us(time.best_us)}",
        share,
        f"error {record.error:.1e}",
        *(f"{p.name} {_us(p.time.median_us)} us (ours/peer {p.ratio:.2f}, error {p.error:.1e})" for p in record.peers),
        *(f"{failed.name} failed: {failed.reason}" for failed in record.failed_peers),
        f"{record.page_faults}, {record.cache}, {record.preemptions} preemptions",
        *(("the machine was busy: no figure to go by",) if time.median_us > _BUSY * time.best_us else ()),
    ]
    return " | ".join(parts)


def _us(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits say enough
