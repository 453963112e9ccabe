"""What kernels take of their device: registers, memory and spills, from what ptxas prints with ``-v``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_TOLD = re.compile(r"ptxas info\s*:|\s+\d+ bytes stack frame,")
_KERNEL = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class KernelUsage:
    """One kernel on one architecture. All but registers in bytes; spills and stack are of one thread."""

    name: str
    arch: str
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0

    def to_json(self, name: str) -> dict[str, Any]:
        """For the record of a build. name: as it was written."""
        return {
            "kernel": name,
            "arch": f"sm_{self.arch}",
            "registers": self.registers,
            "shared": self.shared,
            "stack": self.stack,
            "spill-stores": self.spill_stores,
            "spill-loads": self.spill_loads,
        }

    def spill(self, name: str) -> str | None:
        """What to say of a kernel that does not have room for its values; None of others."""
        if not self.spill_stores and not self.spill_loads:
            return None
        stores, loads = self.spill_stores, self.spill_loads
        registers = f"its {self.registers} registers do not hold its values"
        return f"{name} for sm_{self.arch} spills {stores} bytes and loads {loads}: {registers}"


def is_usage(line: str) -> bool:
    """Whether a line of nvcc's is about what kernels take, and no warning."""
    return _TOLD.match(line) is not None


def parse_usage(text: str) -> tuple[KernelUsage, ...]:
    """The kernels of one source, sorted: which threads of nvcc end first is chance."""
    return tuple(sorted(_parse(text), key=lambda usage: (usage.name, usage.arch)))


def _parse(text: str) -> Iterator[KernelUsage]:
    """Of functions that a kernel calls, whose lines come between its own, nothing is told."""
    current: KernelUsage | None = None
    of = ""
    for line in text.splitlines():
        if found := _KERNEL.search(line):
            current = KernelUsage(found[1], found[2])
        elif current is None:
            continue
        elif found := _PROPERTIES.search(line):
            of = found[1]
        elif (found := _FRAME.search(line)) and of == current.name:
            current = replace(current, stack=int(found[1]), spill_stores=int(found[2]), spill_loads=int(found[3]))
        elif found := _REGISTERS.search(line):
            shared = _SHARED.search(line)
            yield replace(current, registers=int(found[1]), shared=int(shared[1]) if shared else 0)
            current = None
