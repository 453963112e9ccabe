"""The lane operations and functions that kernels compute with, of every tier, beside float64."""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hubkernels.model.isa import ISAS
from tests.conftest import REPOSITORY
from tests.ops.compare import assert_same_bits
from tests.ops.tiers import TIERS, need_tier

SOURCE = """\
#include "hk/lanes_{lanes}.h"
#include "hk/loops.h"
#include "hk/math.h"
using namespace hk;
#define UNARY(name, value) \\
  extern "C" void name(const float* a, const float*, const float*, float* to, int64_t count) {{ \\
    for (int64_t i = 0; i < count; i += kLanes) {{ \\
      const Lanes v = load(a + i); \\
      store(to + i, value); \\
    }} \\
  }}
#define BINARY(name, value) \\
  extern "C" void name(const float* a, const float* b, const float*, float* to, int64_t count) {{ \\
    for (int64_t i = 0; i < count; i += kLanes) {{ \\
      const Lanes v = load(a + i), w = load(b + i); \\
      store(to + i, value); \\
    }} \\
  }}
#define TERNARY(name, value) \\
  extern "C" void name(const float* a, const float* b, const float* c, float* to, int64_t count) {{ \\
    for (int64_t i = 0; i < count; i += kLanes) {{ \\
      const Lanes u = load(a + i), v = load(b + i), w = load(c + i); \\
      store(to + i, value); \\
    }} \\
  }}
Lanes exp(const Lanes& v) {{
  const Power power = power_of_e(min(splat(90), max(splat(-105), v)));
  return scale_by_power(power.fraction, power.exponent);
}}
UNARY(call_exp, exp(v))
UNARY(call_silu, silu(v).value)
UNARY(call_silu_slope, silu(v).slope)
BINARY(call_divide, v / w)
BINARY(call_max, max(v, w))
BINARY(call_min, min(v, w))
BINARY(call_select, select(v < w, splat(1), v))
BINARY(call_copy_sign, copy_sign(v, w))
BINARY(call_scale_by_power, scale_by_power(v, w))
TERNARY(call_fma, fma(u, v, w))
TERNARY(call_floor_fma, floor_fma(u, v, w))
"""

LANES = {"avx512-bf16": "avx512", "avx512": "avx512", "avx2": "avx2", "scalar": "scalar"}
SMALLEST = 2.0**-149
STEP = 8191  # of the bit patterns, one in so many; a prime, so that every exponent meets many fractions

MANY_STEP = 31 if os.environ.get("HUBKERNELS_TEST_ALL") else 127

Function = Callable[..., Tensor]
Find = Callable[[str], Function]
Libraries = Callable[[str], Find]


def library(folder: Path, compiler: str, isa: str) -> Find:
    """Compile the functions for a tier, and find one by name."""
    (folder / f"{isa}.cpp").write_text(SOURCE.format(lanes=LANES[isa]), encoding="utf-8")
    flags = ISAS[isa].flags if isa in ISAS else ()
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    includes = ("-I", str(REPOSITORY / "cpu/include"))
    output = folder / f"{isa}.so"
    command = [compiler, "-std=c++20", "-O3", "-shared", "-fPIC", "-ffp-contract=off", *warnings, *includes, *flags]
    subprocess.run([*command, folder / f"{isa}.cpp", "-o", output], check=True)
    loaded = ctypes.CDLL(str(output))

    def find(name: str) -> Function:
        function = getattr(loaded, f"call_{name}")

        def call(*arguments: Tensor) -> Tensor:
            read = [t.contiguous() for t in (*arguments, *arguments[-1:] * (3 - len(arguments)))]
            result = torch.empty_like(read[0])
            function(*(ctypes.c_void_p(t.data_ptr()) for t in (*read, result)), ctypes.c_int64(result.numel()))
            return result

        return call

    return find


@pytest.fixture(scope="session")
def libraries(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    folder = tmp_path_factory.mktemp("math")
    made: dict[str, Find] = {}

    def of(isa: str) -> Find:
        need_tier(isa)
        if isa not in made:
            made[isa] = library(folder, compiler, isa)
        return made[isa]

    return of


def floats(begin: int, end: int, step: int) -> Tensor:
    """View bit patterns as float32, as many as whole vectors need."""
    bits = torch.arange(begin, end, step)
    bits = torch.cat([bits, bits[:1].expand(-len(bits) % 16)])
    return bits.to(torch.int32).view(torch.float32)


def every_kind() -> Tensor:
    """One in STEP of all floats, and those around the ends of the functions' ranges."""
    ends = torch.tensor([0.0, 87.33, 88.72, 103.97, 105.0, 109.0, 112.0, 120.0, math.inf])
    near = torch.cat([floats(e - 2000, e + 2000, 1) for e in ends.view(torch.int32).long().tolist() if e > 2000])
    return torch.cat([floats(0, 2**32, STEP), near, -near, torch.tensor([0.0, -0.0, math.inf, -math.inf] * 4)])


def exp64(v: Tensor) -> Tensor:
    return v.exp()


def sigmoid64(v: Tensor) -> Tensor:
    return torch.where(v < 0, v.exp() / (1 + v.exp()), 1 / (1 + (-v).exp()))


def silu64(v: Tensor) -> Tensor:
    return torch.where(v.isinf(), v.clamp(min=0), v * sigmoid64(v))


def slope64(v: Tensor) -> Tensor:
    bend = torch.where(v.isinf(), 0.0, v * sigmoid64(v) * sigmoid64(-v))
    return sigmoid64(v) + bend


def ulps_apart(actual: Tensor, expected: Tensor) -> Tensor:
    """Tell the error in units of the last place that expected has in float32."""
    _, exponent = torch.frexp(expected.abs().clamp(min=2.0**-126))
    return (actual.double() - expected).abs() / 2.0 ** (exponent - 24).double()


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "exp": (exp64, 1.0),
    "silu": (silu64, 3.5),
}


def assert_accurate(find: Find, v: Tensor, name: str) -> None:
    actual, (in_double, ulps) = find(name)(v), FUNCTIONS[name]
    expected = in_double(v.double())
    rounded = expected.float()
    assert torch.equal(actual.isnan(), v.isnan())
    finite = rounded.isfinite() & actual.isfinite()
    assert ulps_apart(actual[finite], expected[finite]).le(ulps).all()
    # One of the two infinite alone: within an ulp of the largest float.
    largest = torch.finfo(torch.float32).max
    edge = ~finite & ~v.isnan()
    assert torch.equal(actual[edge].clamp(-largest, largest), rounded[edge].clamp(-largest, largest))


def assert_slope_accurate(find: Find, v: Tensor) -> None:
    error = find("silu_slope")(v).double() - slope64(v.double())
    assert torch.equal(error.isnan(), v.isnan())
    assert error.nan_to_num(0).abs().max() <= 2.0**-22


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_accurate(libraries: Libraries, isa: str, name: str) -> None:
    assert_accurate(libraries(isa), every_kind(), name)


@pytest.mark.parametrize("isa", TIERS)
def test_the_slope_of_silu_is_accurate(libraries: Libraries, isa: str) -> None:
    assert_slope_accurate(libraries(isa), every_kind())


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx512", "avx2"])
def test_functions_are_accurate_for_many_floats(libraries: Libraries, isa: str) -> None:
    """One in 31, or in 127 as a sample."""
    find, many = libraries(isa), MANY_STEP << 20
    for begin in range(0, 2**32, many):
        v = floats(begin, min(begin + many, 2**32), MANY_STEP)
        for name in FUNCTIONS:
            assert_accurate(find, v, name)
        assert_slope_accurate(find, v)


@pytest.mark.parametrize("isa", TIERS)
def test_every_tier_gives_the_same_bits(libraries: Libraries, isa: str) -> None:
    v = every_kind()
    for name in (*FUNCTIONS, "silu_slope"):
        assert_same_bits(libraries(isa)(name)(v), libraries("scalar")(name)(v))


def test_functions_have_their_limits(libraries: Libraries) -> None:
    find = libraries("scalar")
    v = torch.tensor([math.inf, -math.inf, 0.0, -0.0] * 4)
    assert find("exp")(v).tolist()[:4] == [math.inf, 0, 1, 1]
    assert find("silu")(v).tolist()[:4] == [math.inf, 0, 0, 0]
    assert find("silu_slope")(v).tolist()[:4] == [1, 0, 0.5, 0.5]


def test_silu_has_the_sign_of_its_argument_where_it_is_zero(libraries: Libraries) -> None:
    v = torch.tensor([0.0, -0.0, -1e-45, -110.0, -200.0, -math.inf, 1e-45, 3.0] * 2)
    assert libraries("scalar")("silu")(v).signbit().tolist()[:8] == [False, *[True] * 5, False, False]


def pairs() -> tuple[Tensor, Tensor]:
    """Every kind of float beside every other kind."""
    few = torch.cat([floats(0, 2**32, 9_000_011)[:480], torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan] * 16)])
    both = torch.tensor(list(itertools.product(few.tolist(), repeat=2)))
    return both[:, 0].contiguous(), both[:, 1].contiguous()


def select64(v: Tensor, w: Tensor) -> Tensor:
    return torch.where(v < w, 1.0, v)


MEANINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "divide": torch.div,
    "max": lambda v, w: torch.where(v > w, v, w),
    "min": lambda v, w: torch.where(v < w, v, w),
    "select": select64,
    "copy_sign": torch.copysign,
}


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("name", MEANINGS)
def test_lane_operations_mean_the_same(libraries: Libraries, isa: str, name: str) -> None:
    v, w = pairs()
    assert_same_bits(libraries(isa)(name)(v, w), MEANINGS[name](v, w))


def powers() -> Iterator[tuple[float, int]]:
    values = (0.0, -0.0, 1.0, -1.4142135, 0.7071068, -112.7, 2.0**20, math.inf, -math.inf, math.nan)
    yield from itertools.product(values, range(-250, 251))


@pytest.mark.parametrize("isa", TIERS)
def test_a_power_of_two_rounds_once(libraries: Libraries, isa: str) -> None:
    both = torch.tensor([*powers(), *[(0.0, 0)] * (-len(list(powers())) % 16)], dtype=torch.float64)
    expected = (both[:, 0].float().double() * 2.0 ** both[:, 1]).float()
    assert_same_bits(libraries(isa)("scale_by_power")(*both.float().t()), expected)


def triples() -> tuple[Tensor, Tensor, Tensor]:
    """Draw factors and addends of every size.

    Then addends that nearly cancel the product; such as it hardly changes; and such as it takes, but for 2^-70 of them,
    to halfway between floats, which a sum in double cannot tell from there.
    """
    bits = torch.randint(-(2**31), 2**31, (3, 1 << 16), generator=torch.Generator().manual_seed(0))
    a, b, c = bits.to(torch.int32).view(torch.float32)
    product = a * b
    up, half_a_step = torch.full_like(a, 1 + 2.0**-23), 2.0 ** (torch.frexp(c)[1] - 25)
    less = (1 - 2.0**-23) * half_a_step * b.sign()
    addends = [c, -product, product * 2.0**-24, product * 2.0**24, c]
    return torch.cat([a.repeat(4), up]), torch.cat([b.repeat(4), less]), torch.cat(addends)


def nearest(exact: Fraction) -> float:
    """Round a number to float32, ties to even; beyond the largest to infinity."""
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - 23, -149)
    rounded = round(exact / step) * step
    return math.copysign(math.inf, exact) if abs(rounded) >= 2**128 else float(rounded)


@pytest.mark.parametrize("isa", TIERS)
def test_a_fused_multiply_add_rounds_once(libraries: Libraries, isa: str) -> None:
    a, b, c = triples()
    found = libraries(isa)("fma")(a, b, c)
    assert_same_bits(found, libraries("scalar")("fma")(a, b, c))
    finite = a.isfinite() & b.isfinite() & c.isfinite()
    few = finite.nonzero().flatten()[::17]
    for x, y, z, ours in zip(*(t[few].tolist() for t in (a, b, c, found)), strict=True):
        assert ours == nearest(Fraction(x) * Fraction(y) + Fraction(z)), (x, y, z)
    x, y, z = (t[~finite].double() for t in (a, b, c))
    assert_same_bits(found[~finite], (x * y + z).float())


@pytest.mark.parametrize("isa", TIERS)
def test_the_floor_of_a_multiply_add_is_that_of_the_exact_sum(libraries: Libraries, isa: str) -> None:
    """Beside whole numbers, too, where a sum that is rounded first may come to be the next one."""
    generator = torch.Generator().manual_seed(0)
    extent = (2.0 ** (22 * torch.rand(1 << 15, generator=generator))).floor()
    whole = (extent * torch.rand(1 << 15, generator=generator)).floor() + torch.randint(-2, 3, extent.shape)
    steps = torch.randint(-3, 4, extent.shape, generator=generator)
    beside = ((whole.double() + 0.5) / extent).float() * (1 + steps * 2.0**-24)
    a = torch.cat([beside, 4 * torch.rand(1 << 15, generator=generator) - 2])
    b, c = extent.repeat(2), torch.full_like(a, -0.5)
    found = libraries(isa)("floor_fma")(a, b, c)
    exact = a.double() * b.double() - 0.5  # which holds all bits of the product
    near = exact.abs() < 2**22
    assert (found.double() == exact.floor())[near].all()
    assert (found[~near].abs() >= 2**22).all()
    odd = torch.tensor([math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, -1e-45, -0.0] * 2)
    found = libraries(isa)("floor_fma")(odd, torch.full_like(odd, 7.0), torch.full_like(odd, -0.5))
    assert found[0].isnan()
    assert (found[1:5].abs() >= 2**22).all()
    assert found[5:8].tolist() == [-1, -1, -1]
