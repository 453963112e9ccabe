"""What parity says of one call: every way to be wrong, on kernels made of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="references are written in torch")

import torch
from torch import Tensor

from hubkernels.check.cells import Cell, load_value
from hubkernels.check.compare import Verdict, compare_cell, judge
from hubkernels.check.opcase import OpCase, Tolerance
from hubkernels.check.parity import ParityReport, read_row

pytestmark = pytest.mark.torch

EXACT = Tolerance(0.0, 0.0)
INF, NAN = float("inf"), float("nan")


def case(**changes: object) -> OpCase:
    fields: dict[str, Any] = {
        "op": "scale",
        "shapes": {"a few": (4,)},
        "bench_shapes": (),
        "dtypes": ("float32",),
        "make": lambda shape, dtype, generator: {
            "x": torch.randn(shape, generator=generator).to(dtype),
            "by": torch.full((), 2.0, dtype=dtype),
        },
        "reference": lambda x, by: x * by,
        "gradients": ("x",),
        "tolerance": lambda *_: Tolerance(1e-6, 0.0),
        "bytes_moved": lambda *_: 0,
        "flops": lambda *_: 0,
    }
    return OpCase(**{**fields, **changes})


def rows_of(function: Callable[..., Any], **changes: object) -> dict[str, tuple[str, ...]]:
    kernel = ModuleType("kernel")
    kernel.scale = function  # type: ignore[attr-defined]
    rows = compare_cell(Cell(case(**changes), "a few", "float32"), kernel)
    return {row["what"]: row["problems"] for row in rows}


def forgets_factor(x: Tensor, by: Tensor) -> Tensor:
    """x * by with the gradient of x."""
    return (x * by).detach() + x - x.detach()


def test_a_right_kernel_has_no_problem_in_any_row() -> None:
    found = rows_of(lambda x, by: x * by)
    assert found == {"output": (), "output with grad": (), "grad x": ()}


def test_a_wrong_gradient_is_told_from_the_output() -> None:
    found = rows_of(forgets_factor)
    assert (found["output"], found["output with grad"]) == ((), ())
    assert "4 of 4 elements beyond it" in found["grad x"][0]


def test_an_output_that_is_wrong_only_without_gradients_is_found() -> None:
    found = rows_of(lambda x, by: x * by if torch.is_grad_enabled() else x)
    assert found["output"]
    assert not found["output with grad"]


def test_an_argument_that_gets_no_gradient_is_a_violation() -> None:
    found = rows_of(lambda x, by: x.detach() * by, gradients=("x", "by"))
    assert found["grad x"] == ("there is no gradient",)
    assert found["grad by"] == ()


def test_a_call_that_raises_is_a_row_and_not_the_end() -> None:
    def refuses(**_: Tensor) -> Tensor:
        raise TypeError("scale: x is 1-d")

    problem = ("the call raised TypeError: scale: x is 1-d",)
    assert rows_of(refuses) == {"output": problem, "grad x": problem}


def test_each_of_several_outputs_is_judged_under_its_number() -> None:
    found = rows_of(lambda x, by: (x * by, x.argmin()), reference=lambda x, by: (x * by, x.argmax()), gradients=())
    assert set(found) == {"output 0", "output 1"}
    assert found["output 0"] == ()
    assert found["output 1"]


def test_a_missing_output_is_a_violation() -> None:
    found = rows_of(lambda x, by: x * by, reference=lambda x, by: (x * by, x), gradients=())
    assert found == {"output": ("1 results, must be 2",)}


def verdict(
    actual: list[float], expected: list[float], tolerance: Tolerance = EXACT, dtype: str = "float32"
) -> Verdict:
    kind = getattr(torch, dtype)
    return judge(torch.tensor(actual, dtype=kind), torch.tensor(expected, dtype=torch.float64), kind, tolerance)


def test_the_error_is_told_in_units_of_the_tolerance() -> None:
    found = verdict([1.0, 2.5], [1.0, 2.0], Tolerance(relative=0.05, absolute=0.1))
    assert found.max_error == pytest.approx(2.5)
    assert found.relative_error == pytest.approx(0.5 / 5**0.5)
    assert found.problems == ("2.5 x the tolerance, 1 of 2 elements beyond it",)


@pytest.mark.parametrize(
    ("actual", "expected", "dtype"),
    [([NAN, 1.0], [NAN, 1.0], "float32"), ([INF], [INF], "float32"), ([INF], [1e6], "float16"), ([], [], "float32")],
)
def test_what_is_not_finite_may_agree(actual: list[float], expected: list[float], dtype: str) -> None:
    assert verdict(actual, expected, dtype=dtype).problems == ()


@pytest.mark.parametrize(
    ("actual", "expected", "new_nan"),
    [([NAN], [1.0], 1), ([1.0], [NAN], 0), ([INF], [1.0], 0), ([INF], [-INF], 0), ([NAN], [INF], 1)],
)
def test_what_is_not_finite_on_one_side_is_a_violation(
    actual: list[float], expected: list[float], new_nan: int
) -> None:
    (problem,) = verdict(actual, expected, Tolerance(1e9, 1e9)).problems
    assert problem.startswith("1 elements are not finite")
    assert problem.endswith(f"{new_nan} are NaN")


def test_shape_and_dtype_must_be_those_of_the_reference() -> None:
    one = torch.ones(2, dtype=torch.float64)
    assert judge(one, one, torch.float32, EXACT).problems == ("dtype is torch.float64, must be torch.float32",)
    assert judge(one[None], one, torch.float64, EXACT).problems == ("shape is (1, 2), must be (2,)",)
    assert judge(one.to("meta"), one, torch.float64, EXACT).problems == ("device is meta, must be cpu",)


def test_a_large_tensor_is_judged_whole() -> None:
    expected = torch.ones(3, 20_000, dtype=torch.float64)
    actual = expected.float()
    actual[0, 0] = actual[2, -1] = 3
    found = judge(actual, expected, torch.float32, Tolerance(0.0, 1.0))
    assert found.problems == ("2 x the tolerance, 2 of 60000 elements beyond it",)
    assert found.relative_error == pytest.approx((8 / 60_000) ** 0.5)


def test_a_reference_of_zeros_has_an_error_too() -> None:
    exact = ("inf x the tolerance, 1 of 1 elements beyond it",)  # JSON has no infinity
    assert verdict([0.5], [0.0]) == Verdict(None, 0.5, exact)
    assert verdict([0.5], [0.0], Tolerance(0.0, 1.0)) == Verdict(0.5, 0.5, ())


def test_a_report_counts_what_passed_and_prints_what_did_not() -> None:
    good: dict[str, object] = {
        "op": "scale",
        "shape_name": "a few",
        "shape": [2, 4],
        "dtype": "float32",
        "what": "output",
    }
    good |= {"max_error": 0.5, "relative_error": 1e-7, "problems": []}
    rows = (read_row(good), read_row({**good, "what": "grad x", "problems": ["there is no gradient"]}))
    report = ParityReport("scale", "torch-cpu", "_scale_cpu_x", rows)
    assert (report.passed, report.violations) == (1, rows[1:])
    assert str(rows[0]) == "scale float32 a few (2x4) output: 0.5 x the tolerance"
    assert str(rows[1]) == "scale float32 a few (2x4) grad x: there is no gradient"
    assert [row["ok"] for row in report.to_json()["rows"]] == [True, False]


def test_a_case_file_imports_others_of_its_package(tmp_path: Path) -> None:
    """As pytest lets it: whoever starts the command, and wherever."""
    package = tmp_path / "some_tests/cases"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "one.py").write_text("ONE = 1\n")
    (package / "two.py").write_text("from some_tests.cases import one\nTWO = one.ONE + 1\n")
    path = list(sys.path)
    try:
        assert load_value(package / "two.py", "TWO") == 2
    finally:
        sys.path[:] = path
