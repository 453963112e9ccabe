"""One record for the flags of a file and for what its probe asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hubkernels.model.isa import ISAS, Isa

ISA_H = Path(__file__).parents[2] / "cpu/include/hk/isa.h"

CPUID = {
    "leaf(1).ecx": {12: "fma", 29: "f16c"},
    "leaf(7).ebx": {5: "avx2", 16: "avx512f", 17: "avx512dq", 30: "avx512bw", 31: "avx512vl"},
    "leaf(7, 1).eax": {5: "avx512bf16"},
}
"""Where the processor says that it has a feature: the vendors' manuals, CPUID leaves 1 and 7."""

SAVED_STATE = {"avx2": 0x06, "avx512": 0xE6, "avx512-bf16": 0xE6}
"""XCR0: registers that the operating system must save; xmm and ymm, then opmask and zmm too."""


def test_flags_are_spelled_from_the_features() -> None:
    assert ISAS["avx2"].flags == ("-mavx2", "-mfma", "-mf16c")


def probe(name: str) -> str:
    found = re.search(rf"bool has_{name.replace('-', '_')}\(\) {{(.*?)\n}}", ISA_H.read_text(), re.DOTALL)
    assert found, f"isa.h has no probe of {name}"
    return found[1]


def asked(name: str) -> set[str]:
    """Features that a probe asks for, itself and through the probes that it calls."""
    body = probe(name)
    bits = {constant: int(bit) for constant, bit in re.findall(r"(k\w+) = 1u << (\d+)", body)}
    found = set()
    for place, mask in re.findall(r"cpuid::(leaf\([\d, ]+\)\.\w+), ([^)]+)\)", body):
        found |= {CPUID[place][bits[constant.strip()]] for constant in mask.split("|")}
    for called in re.findall(r"has_(\w+)\(\)", body):
        found |= asked(called.replace("_", "-"))
    return found


def saved_state(name: str) -> int:
    body = probe(name)
    own = sum(int(mask, 16) for mask in re.findall(r"= (0x[0-9a-f]+);", body) if "saved_state()" in body)
    return own or max(
        (saved_state(called.replace("_", "-")) for called in re.findall(r"has_(\w+)\(\)", body)), default=0
    )


@pytest.mark.skipif(not ISA_H.is_file(), reason="the kernels' sources are not part of this installation")
@pytest.mark.parametrize("isa", ISAS.values(), ids=lambda isa: isa.name)
def test_a_probe_asks_for_every_feature_that_the_flags_switch_on(isa: Isa) -> None:
    assert asked(isa.name) == set(isa.features)


@pytest.mark.skipif(not ISA_H.is_file(), reason="the kernels' sources are not part of this installation")
@pytest.mark.parametrize("isa", ISAS)
def test_a_probe_asks_whether_the_operating_system_saves_the_registers(isa: str) -> None:
    assert saved_state(isa) == SAVED_STATE[isa]
