"""The flags of an instruction set. What its objects ask of a machine: tests/toolchain/test_isa.py."""

from __future__ import annotations

from hubkernels.model.isa import ISAS, usable_isas


def test_flags_are_spelled_from_the_features() -> None:
    assert ISAS["avx2"].flags == ("-mavx2", "-mfma", "-mf16c")


def test_a_machine_can_run_what_it_has_every_feature_of() -> None:
    assert usable_isas({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq"}) == ("avx2",)
    assert usable_isas({*ISAS["avx512"].features, "aes"}) == ("avx2", "avx512")
