"""Tags, versions and the table of variants, against the stock client's own grammar where it is installed."""

from __future__ import annotations

import pytest

from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import InputError
from hubkernels.model.backend import BACKENDS, CPU, CUDA, XPU
from hubkernels.model.variant import Platform, Variant, index_by_tag
from hubkernels.model.version import Version

LINUX = Platform("x86_64", "linux")


@pytest.mark.parametrize(
    ("variant", "tag"),
    [
        (Variant(Version((2, 10)), CPU, LINUX, stable_abi=True), "torch-stable-abi210-cpu-x86_64-linux"),
        (Variant(Version((2, 13)), CPU, LINUX), "torch213-cxx11-cpu-x86_64-linux"),
        (Variant(Version((2, 13)), CUDA, LINUX, Version((13, 0))), "torch213-cxx11-cu130-x86_64-linux"),
        (Variant(Version((2, 13)), XPU, LINUX, Version((2026, 0))), "torch213-cxx11-xpu20260-x86_64-linux"),
        (Variant(Version((2, 13)), CPU, Platform("aarch64", "darwin")), "torch213-cpu-aarch64-darwin"),
    ],
)
def test_a_tag_is_spelled_as_the_client_spells_it(variant: Variant, tag: str) -> None:
    assert variant.tag == tag


def test_versions_compare_by_number_and_not_by_letter() -> None:
    assert Version.parse("2.9") < Version.parse("2.10") < Version.parse("2.10.1")
    assert str(Version.parse("2.13.0+cpu")) == "2.13.0"
    assert Version.parse("2.13.0").minor == Version((2, 13))
    for text in ("", "2.", "v2", "2.x", "²"):
        with pytest.raises(ValueError, match="not a version number"):
            Version.parse(text)


def test_two_variants_with_one_tag_are_refused() -> None:
    rocm = BACKENDS["rocm"]
    with pytest.raises(InputError, match="share the tag torch213-cxx11-rocm710-x86_64-linux"):
        index_by_tag(Variant(Version((2, 13)), rocm, LINUX, Version(v)) for v in ((7, 10), (71, 0)))


def every_variant() -> list[Variant]:
    return [
        Variant(torch, row.backend, platform, row.version, stable)
        for row in load_variant_table()
        for torch in row.torch
        for platform in row.platforms
        for stable in (False, True)
    ]


def test_every_row_of_the_table_has_its_own_tag() -> None:
    assert len(index_by_tag(every_variant())) == len(every_variant())


def test_the_stock_client_parses_every_tag_back_to_the_same_parts() -> None:
    variants = pytest.importorskip("kernels.variants", reason="the stock client is not installed")
    for variant in every_variant():
        parsed = variants.parse_variant(variant.tag)
        assert parsed.variant_str == variant.tag
