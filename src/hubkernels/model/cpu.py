"""The CPUs that kernels are built for, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cpu:
    """name: as variant tags and Linux spell it. elf: ``e_machine`` of its ELF files. spellings: of other systems."""

    name: str
    elf: int
    spellings: tuple[str, ...] = ()


CPUS: Mapping[str, Cpu] = {cpu.name: cpu for cpu in (Cpu("x86_64", 62, ("AMD64",)), Cpu("aarch64", 183, ("arm64",)))}


def cpu_name(spelling: str) -> str:
    """The name of a CPU by the word of any system; a CPU that is not known keeps its own."""
    return next((cpu.name for cpu in CPUS.values() if spelling in cpu.spellings), spelling)
