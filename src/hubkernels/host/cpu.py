"""The processor: its name, and how much its last-level caches hold."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
_SUFFIX = {"K": 1 << 10, "M": 1 << 20}


def usable_cores() -> int:
    """Cores that this process may use, which a container can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model(cpuinfo: Path = CPUINFO) -> str:
    """The name that the processor gives itself, with family and model: hypervisors shorten the name."""
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    if "model name" not in fields:
        return platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def cpu_identity(cpuinfo: Path = CPUINFO) -> str:
    """What compilers see of the processor when they are to compile for the one they run on."""
    return f"{cpu_model(cpuinfo)}: {' '.join(sorted(cpu_features(cpuinfo)))}"


def cpu_features(cpuinfo: Path = CPUINFO) -> frozenset[str]:
    """Features as compilers name them: Linux writes avx512_bf16 for avx512bf16. None where the system does not tell."""
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].replace("_", "").split()) if found else frozenset()


def last_level_cache_bytes(cpus: Path = _CPUS) -> int | None:
    """What the last-level caches of all cores hold together; None where the system does not tell."""
    caches: dict[tuple[int, str], int] = {}
    for cache in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level, size, shared = ((cache / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
        except OSError:
            continue
        caches[int(level), shared] = int(size[:-1]) * _SUFFIX[size[-1]]
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last) or None
