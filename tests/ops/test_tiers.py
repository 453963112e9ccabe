"""The tiers of every op: one meaning, whatever runs it."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import kernels
import pytest

from tests.ops.compare import assert_same_results
from tests.ops.tiers import OPS, OTHER_COMPILER_TIERS, TIERS, USABLE_TIERS, need_tier, run_in_tier, saved_results

if TYPE_CHECKING:
    from tests.ops.conftest import InTier

each_op = pytest.mark.parametrize("op", OPS)


@pytest.mark.parametrize("isa", TIERS)
@each_op
def test_every_tier_gives_the_same_bits(results_in_tier: InTier, op: str, isa: str) -> None:
    assert_same_results(results_in_tier(op, isa), results_in_tier(op, "scalar"))


@pytest.mark.slow
@pytest.mark.parametrize("isa", OTHER_COMPILER_TIERS)
@each_op
def test_another_compiler_gives_the_same_bits(
    other_artifacts: Path, results_in_tier: InTier, tmp_path: Path, op: str, isa: str
) -> None:
    """Each operation rounds once and in one order, which leaves a compiler no choice."""
    results = saved_results(op, isa, other_artifacts / OPS[op], tmp_path / "results.pt")
    assert_same_results(results, results_in_tier(op, "scalar"))


Guarded = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def guarded(artifacts: Path) -> Guarded:
    """isa -> how every op ran there beside guard pages."""

    @functools.cache
    def run(isa: str) -> subprocess.CompletedProcess[str]:
        need_tier(isa)
        return run_in_tier(isa, "tests.ops.guarded", artifacts)

    return run


@pytest.mark.parametrize("isa", TIERS)
@each_op
def test_every_tier_stays_inside_its_buffers(guarded: Guarded, op: str, isa: str) -> None:
    """Also where no element is aligned, rows have gaps or are 2**31 elements apart, or locations are not finite."""
    done = guarded(isa)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{op} {isa}: " in done.stdout


@pytest.mark.parametrize("isa", ["avx9", "avx2 ", "AVX512"])
@each_op
def test_an_unknown_tier_is_refused_with_the_ones_that_run(artifacts: Path, tmp_path: Path, op: str, isa: str) -> None:
    done = run_in_tier(isa, f"tests.ops.{op}_tier", artifacts / OPS[op], tmp_path / "never.pt")
    assert done.returncode != 0
    assert f"HUBKERNELS_ISA={isa}:" in done.stderr
    assert f"this machine can run: {', '.join(USABLE_TIERS)}\n" in done.stderr


@pytest.mark.parametrize("package", sorted(set(OPS.values())))
def test_the_best_tier_is_the_default(artifacts: Path, package: str) -> None:
    assert "HUBKERNELS_ISA" not in os.environ
    assert kernels.get_local_kernel(artifacts / package).cpu_isa() == USABLE_TIERS[0]
