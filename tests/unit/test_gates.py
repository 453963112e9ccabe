"""What a gate remembers as passed is what it looked at."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from hubkernels.model.variant import Variant
from hubkernels.release.gates import GATES, Facts
from hubkernels.toolchain.cpu import Toolchain
from tests.unit.test_plan import TOOLS, VARIANT


def facts(
    name: str, *, torch: str | None = "2.13.0", accepted: tuple[Variant, ...] = (VARIANT,), tools: Toolchain = TOOLS
) -> Facts:
    (gate,) = (each for each in GATES if each.name == name)
    assert gate.facts is not None
    builder = SimpleNamespace(
        machine=SimpleNamespace(torch=SimpleNamespace(release=torch) if torch else None),
        decide=lambda _: SimpleNamespace(accepted=accepted),
        tools=lambda _: tools,
    )
    return gate.facts(cast("Any", SimpleNamespace(builder=builder, package=None)))


def test_abi_passes_again_where_another_torch_is_installed() -> None:
    """Without a fitting torch no symbol was looked up, and the gate was done for good all the same."""
    assert facts("abi") == facts("abi")
    assert len({str(facts("abi", torch=torch)) for torch in (None, "2.13.0", "2.12.0")}) == 3


def test_reproducible_passes_again_where_other_variants_can_be_built_or_by_another_toolchain() -> None:
    """A variant that this machine cannot build was not built again, and counted as passed on one that can."""
    assert facts("reproducible") == facts("reproducible")
    assert facts("reproducible", accepted=()) != facts("reproducible")
    newer = replace(TOOLS, compiler=replace(TOOLS.compiler, fingerprint="another"))
    assert facts("reproducible", tools=newer) != facts("reproducible")
