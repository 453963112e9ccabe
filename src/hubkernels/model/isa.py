"""CPU instruction sets beyond the baseline: the flags of a file, and what a machine must have to run it.

One record holds both. The probe is not spelled at all: an object says as data what the compiler could use in it
(`cpu/include/hk/tier.h`), and the dispatcher asks the processor for just that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    """name: the value of ``isa`` in build.toml. features: names that g++ and clang give them in ``-m<feature>``.

    cpu: the architecture that has it; for others a section with this isa is left out.
    """

    name: str
    cpu: str
    features: tuple[str, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"-m{feature}" for feature in self.features)


_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")

ISAS: Mapping[str, Isa] = {
    isa.name: isa
    for isa in (
        Isa("avx2", "x86_64", _AVX2),
        Isa("avx512", "x86_64", _AVX512),
        Isa("avx512-bf16", "x86_64", (*_AVX512, "avx512bf16")),
    )
}


def usable_isas(features: Collection[str]) -> tuple[str, ...]:
    """Names of the ISAs that a machine with these features can run, the smallest first."""
    return tuple(isa.name for isa in ISAS.values() if set(isa.features) <= set(features))


EVERY_MACHINE, SOME_MACHINES, WIDE = range(3)
"""What a flag lets a compiler use: what every machine of the architecture has, more, or AVX-512 and beyond."""

_NO_INSTRUCTIONS = re.compile(
    r"-m(no-|tune=|fpmath=|cmodel=|code-model=|abi=|prefer-|preferred-|tls-|stack|incoming-stack|branch-|align|indirect-"
    r"|function-return|harden-|fentry|recip|nop-mcount|record-mcount|veclibabi=|vzeroupper|avx256-split-|red-zone|llvm"
    r"|long-double-|large-data-|inline-|mem(cpy|set)-strategy|accumulate-|push-args|omit-leaf-|relax|ms-bitfields|16|32|64"
    r"|x32|80387|hard-float|glibc|general-regs-only|outline-atomics|strict-align|mmx|sse2?$|fxsr|cx8|arch=x86-64$).*"
)
_WIDE = re.compile(r"-m(avx512|avx10|apx|amx).*")
_WIDE_MACHINES = re.compile(
    r"-march=(native|x86-64-v4|skylake-avx512|cannonlake|cascadelake|cooperlake|(icelake|tigerlake|rocketlake)\b.*"
    r"|\w+rapids\b.*|znver([4-9]|\d\d)|kn[lm])"
)


BEFORE_AVX512 = frozenset(
    f"-m{name}"
    for name in (
        *("sse3", "ssse3", "sse4", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "f16c", "fma", "bmi", "bmi2", "lzcnt"),
        *("movbe", "arch=x86-64-v2", "arch=x86-64-v3", "arch=haswell"),
    )
)
"""Flags of what every processor with AVX-512 has."""


def reach(flag: str) -> int:
    """How much of a machine a compiler's flag asks for: EVERY_MACHINE, SOME_MACHINES or WIDE."""
    if not flag.startswith("-m") or _NO_INSTRUCTIONS.fullmatch(flag):
        return EVERY_MACHINE
    return WIDE if _WIDE.fullmatch(flag) or _WIDE_MACHINES.fullmatch(flag) else SOME_MACHINES
