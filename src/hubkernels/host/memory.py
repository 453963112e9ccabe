"""Memory that this process may still use: the machine's, or what its control groups leave of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_NO_LIMIT = 1 << 60
"""The first version of control groups writes a number near 2^63 where there is no limit."""

_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By version of control groups: the limit, the usage, and the page cache in it that is given up on demand."""


def free_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that may be taken without swapping or being killed; None where the system does not tell."""
    found = _AVAILABLE.search(_text(proc / "meminfo"))
    machine = [int(found[1]) * 1024] if found else []
    return min((*machine, *_left_by_groups(_text(proc / "self/cgroup"), groups)), default=None)


def _left_by_groups(membership: str, groups: Path) -> Iterator[int]:
    """What each control group around this process leaves. In a container the inner ones may be out of sight."""
    for line in membership.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root = groups / "memory" if controllers else groups
        inner = root / path.lstrip("/")
        for folder in (inner, *inner.parents):
            yield from _left(folder, 1 if controllers else 2)
            if folder == root:
                break


def _left(folder: Path, version: int) -> Iterator[int]:
    limit, usage, inactive = _FILES[version]
    allowed, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if allowed.isdecimal() and used.isdecimal() and int(allowed) < _NO_LIMIT:
        cached = re.search(rf"^{inactive} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
        yield max(int(allowed) - int(used) + (int(cached[1]) if cached else 0), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
