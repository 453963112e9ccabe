"""The flags of an instruction set. What its objects ask of a machine: tests/toolchain/test_isa.py."""

from __future__ import annotations

import pytest

from hubkernels.build.sources import tier
from hubkernels.check.isa import isa_flags
from hubkernels.model.isa import EVERY_MACHINE, ISAS, SOME_MACHINES, WIDE, reach, usable_isas


def test_flags_are_spelled_from_the_features() -> None:
    assert ISAS["avx2"].flags == ("-mavx2", "-mfma", "-mf16c")


def test_a_machine_can_run_what_it_has_every_feature_of() -> None:
    assert usable_isas({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq"}) == ("avx2",)
    assert usable_isas({*ISAS["avx512"].features, "aes"}) == ("avx2", "avx512")


REACH = {
    EVERY_MACHINE: "-O3 -mtune=native -mno-avx -mno-avx512f -mfpmath=sse -mprefer-vector-width=256 "
    "-m64 -march=x86-64 -msse2",
    SOME_MACHINES: "-mavx2 -mfma -msse4.2 -msse3 -march=haswell -march=x86-64-v3 -march=znver3 -mcpu=neoverse-v1",
    WIDE: "-mavx512f -mavx10.1-512 -mapxf -mamx-tile -march=native -march=x86-64-v4 -march=sapphirerapids "
    "-march=graniterapids-d -march=skylake-avx512 -march=icelake-client -march=znver5",
}


@pytest.mark.parametrize(("wanted", "flag"), [(rank, flag) for rank, flags in REACH.items() for flag in flags.split()])
def test_what_a_flag_asks_of_a_machine_is_known_in_one_place(wanted: int, flag: str) -> None:
    """The order of the link and the check of objects go by it; test_crosschecks.py has the flags beside an isa."""
    assert reach(flag) == wanted
    assert tier(("-O3", flag)) == wanted
    assert isa_flags(("-O3", flag)) == ({flag} if wanted else set())


def test_flags_of_an_isa_reach_as_far_as_their_name_says() -> None:
    assert {name: max(map(reach, isa.flags)) for name, isa in ISAS.items()} == {
        "avx2": SOME_MACHINES,
        "avx512": WIDE,
        "avx512-bf16": WIDE,
    }
