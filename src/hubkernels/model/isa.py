"""CPU instruction sets beyond the baseline: the flags of a file, and what a machine must have to run it.

One record holds both. The probe is not spelled at all: an object says as data what the compiler could use in it
(`cpu/include/hk/tier.h`), and the dispatcher asks the processor for just that.
"""

from __future__ import annotations

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
