"""The ops add_rms_norm, add_rms_norm_ and gated_rms_norm. N and C numbers are reports from the field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernels
import pytest
import torch
from torch import Tensor
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from tests.ops import norms_threads
from tests.ops import rms_norm_tier as tier
from tests.ops.compare import assert_within
from tests.ops.kernelized import kernelized
from tests.ops.norms import NORMS, Norm, Results
from tests.ops.sweep import SIZES
from tests.ops.tiers import TIERS, USABLE_TIERS, run_in_tier
from tests.ops.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.ops.conftest import InTier


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
DTYPE_NAMES = ["float32", "bfloat16", "float16"]
ADD, GATED = NORMS["add"], NORMS["gate, then norm"]
every_norm = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_NAMES)


def assert_right(kernel: ModuleType, norm: Norm, drawn: Results, **options: float) -> None:
    shape = tuple(drawn["x"].shape)
    expected = norm.in_double(drawn, **options)
    for name, actual in norm.run(kernel, drawn, **options).items():
        dtype = drawn[name].dtype
        assert actual.dtype == dtype
        assert actual.is_contiguous()
        assert_within(actual, expected[name], norm.case.tolerance(shape, dtype, name))


def assert_equal(actual: Results, expected: Results) -> None:
    for name, t in expected.items():
        assert torch.equal(actual[name], t), name


# Numbers


@every_dtype
@pytest.mark.parametrize(
    "shape",
    [(0, 64), (4, 0), (1, 1), (7, 1), (3, 7), (5, 17), (5, 1023), (2, 3, 4, 96), (1030, 40), (17000, 8), (3, 70001)],
    ids=str,
)
@every_norm
def test_outputs_and_gradients_are_float64_rounded(
    rms_norm: ModuleType, norm: Norm, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """N34 too: no rows, or rows without columns."""
    assert_right(rms_norm, norm, norm.draw(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@every_norm
def test_the_offset_is_added_in_float32_to_a_weight_of_either_dtype(
    rms_norm: ModuleType, norm: Norm, dtype: torch.dtype
) -> None:
    """N25: in bfloat16 1 + 0.00390625 is 1."""
    drawn = norm.draw(33, 129, dtype=dtype)
    drawn["weight"] = torch.full_like(drawn["weight"], 0.00390625)
    assert_right(rms_norm, norm, drawn, weight_offset=1.0)
    drawn["weight"] = drawn["weight"].float() + 1e-4
    assert_right(rms_norm, norm, drawn, weight_offset=1.0)


@every_dtype
def test_the_sum_is_rounded_once_and_normed_as_it_is(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    """The residual stream has a dtype: y belongs to the summed that the caller gets."""
    x, residual, weight = torch.randn(3, 40, 515).to(dtype)
    weight = weight[0]
    y, summed = rms_norm.add_rms_norm(x, residual, weight)
    assert torch.equal(summed, x + residual)
    assert torch.equal(y, rms_norm.rms_norm(summed, weight))


@every_dtype
def test_gradients_of_a_rounded_sum_are_those_of_the_sum(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    x, residual, grad, zero = (*torch.randn(3, 40, 515).to(dtype), torch.zeros(40, 515, dtype=dtype))
    weight = torch.randn(515)
    drawn = {"x": x, "residual": residual, "weight": weight, "output 0": grad, "output 1": zero}
    found = ADD.run(rms_norm, drawn)
    expected = ADD.run(rms_norm, {**drawn, "x": x + residual, "residual": zero})
    assert_equal(found, expected)
    assert torch.equal(found["x"], found["residual"])


@pytest.mark.parametrize("wanted", ["output 0", "output 1"])
def test_one_output_alone_has_its_own_gradient(rms_norm: ModuleType, wanted: str) -> None:
    drawn = ADD.draw(9, 33)
    leaves = [drawn[name].requires_grad_() for name in ADD.case.gradients]
    output = rms_norm.add_rms_norm(*leaves)[ADD.output_names.index(wanted)]
    found = torch.autograd.grad(output, leaves, drawn[wanted], allow_unused=True)
    drawn["output 1" if wanted == "output 0" else "output 0"].zero_()
    expected = ADD.in_double(drawn)
    for name, gradient in zip(ADD.case.gradients, found, strict=True):
        actual = torch.zeros_like(drawn[name]) if gradient is None else gradient
        assert_within(actual, expected[name], ADD.case.tolerance((9, 33), torch.float32, name))


def test_gradients_of_x_and_residual_share_no_memory_as_leaves(rms_norm: ModuleType) -> None:
    """Both are one tensor; what an optimizer does to one must not reach the other."""
    x, residual = torch.randn(2, 4, 8).unbind()
    x.requires_grad_()
    residual.requires_grad_()
    y, summed = rms_norm.add_rms_norm(x, residual)
    (y.sum() + summed.sum()).backward()
    assert x.grad is not None
    assert residual.grad is not None
    assert x.grad.data_ptr() != residual.grad.data_ptr()


@every_norm
def test_each_gradient_alone_has_the_same_bits(rms_norm: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(70, 257)
    every = norm.run(rms_norm, drawn)
    for wanted in norm.case.gradients:
        arguments = {name: drawn[name].detach().requires_grad_(name == wanted) for name in norm.case.gradients}
        outputs = getattr(rms_norm, norm.case.op)(*arguments.values(), **norm.options)
        cotangents = [drawn[name] for name in norm.output_names]
        (alone,) = torch.autograd.grad(outputs, arguments[wanted], cotangents)
        assert torch.equal(alone, every[wanted])


@every_norm
def test_no_weight_is_a_weight_of_ones(rms_norm: ModuleType, norm: Norm) -> None:
    """N37."""
    drawn = norm.draw(9, 33)
    drawn["weight"] = torch.ones(33)
    expected = norm.run(rms_norm, drawn)
    first, second = (drawn[name].requires_grad_() for name in norm.case.gradients[:2])
    outputs = getattr(rms_norm, norm.case.op)(first, second, None, **norm.options)
    outputs = outputs if norm.outputs > 1 else (outputs,)
    found = torch.autograd.grad(outputs, (first, second), [drawn[name] for name in norm.output_names])
    assert all(torch.equal(t, expected[name]) for t, name in zip(outputs, norm.output_names, strict=True))
    assert all(torch.equal(t, expected[name]) for t, name in zip(found, norm.case.gradients[:2], strict=True))


@every_norm
def test_statistics_are_saved_in_float32(rms_norm: ModuleType, norm: Norm) -> None:
    """N42."""
    drawn = norm.draw(4, 64, dtype=torch.bfloat16)
    outputs = getattr(rms_norm, norm.case.op)(*(drawn[name].requires_grad_() for name in norm.case.gradients))
    node = (outputs[0] if norm.outputs > 1 else outputs).grad_fn
    assert node.saved_tensors[-1].dtype == torch.float32


@every_dtype
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["x", "second"])
@every_norm
def test_nan_and_infinity_stay_in_their_row(
    rms_norm: ModuleType, norm: Norm, where: str, value: float, dtype: torch.dtype
) -> None:
    drawn = norm.draw(5, 70, dtype=dtype)
    clean = norm.run(rms_norm, drawn)
    drawn[where if where == "x" else norm.case.gradients[1]][2, 33] = value
    found = norm.run(rms_norm, drawn)
    for name in (*norm.output_names, *norm.case.gradients[:2]):
        assert torch.equal(found[name][[0, 1, 3, 4]], clean[name][[0, 1, 3, 4]])
    if norm.options:  # a gate behind the norm is its element's alone
        return
    shut = norm is GATED and where != "x" and value < 0  # silu(-inf) is 0, so the element is gone
    assert found[norm.output_names[0]][2].isfinite().all() == shut


def test_a_shut_gate_gives_zero_and_no_nan(rms_norm: ModuleType) -> None:
    drawn = GATED.draw(3, 40)
    drawn["gate"][1, 7] = -math.inf
    found = GATED.run(rms_norm, drawn)
    drawn["gate"][1, 7] = -200.0
    assert_equal(found, GATED.run(rms_norm, drawn))
    assert found["output"][1, 7] == found["x"][1, 7] == found["gate"][1, 7] == 0


@pytest.mark.parametrize("value", [1e19, 1e-19, 1e-30])
def test_rows_of_any_magnitude_have_unit_mean_square(rms_norm: ModuleType, value: float) -> None:
    """N39."""
    x, ones = torch.full((2, 100), value), torch.ones(2, 100)
    y, _ = rms_norm.add_rms_norm(x, x, eps=0.0)
    torch.testing.assert_close(y, ones, rtol=1e-6, atol=0)
    torch.testing.assert_close(rms_norm.gated_rms_norm(x, ones, eps=0.0), ones, rtol=1e-6, atol=0)


def test_a_gated_product_beyond_float32_spoils_its_row_alone(rms_norm: ModuleType) -> None:
    x, gate = torch.ones(2, 100), torch.full((2, 100), 2.0)
    x[0, 3] = 3e38
    y = rms_norm.gated_rms_norm(x, gate)
    assert y[0].isnan().any()
    torch.testing.assert_close(y[1], torch.ones(100), rtol=1e-5, atol=0)


@pytest.mark.usefixtures("threads")
@every_dtype
@pytest.mark.parametrize("shape", [(1027, 515), (20000, 24), (70, 9001)], ids=str)
@every_norm
def test_bits_do_not_depend_on_the_number_of_threads(
    rms_norm: ModuleType, norm: Norm, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    drawn = norm.draw(*shape, dtype=dtype)
    results = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        results.append(norm.run(rms_norm, drawn))
    for other in results[1:]:
        assert_equal(other, results[0])


def test_small_inputs_start_no_thread_and_a_forked_child_computes_the_same(rms_norm_repo: Path) -> None:
    done = run_in_tier(USABLE_TIERS[0], norms_threads.__name__, rms_norm_repo)
    assert done.returncode == 0, done.stderr


# Layout


def viewed(norm: Norm, view: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Results:
    """Draw arguments, and look at each through the view."""
    flat = norm.draw(64 * 48, dtype=dtype)
    drawn = {name: view(t) for name, t in flat.items() if name != "weight"}
    columns = drawn["x"].shape[-1]
    return {name: drawn.get(name, flat["weight"][: 2 * columns : 2]) for name in flat}


@every_dtype
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@every_norm
def test_views_are_right_and_results_contiguous(
    rms_norm: ModuleType, norm: Norm, view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    assert_right(rms_norm, norm, viewed(norm, view, dtype))


@every_dtype
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_in_place_is_right_or_refused(
    rms_norm: ModuleType, view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    flat = ADD.draw(64 * 48, dtype=dtype)
    x, residual = view(flat["x"]), view(flat["residual"])
    if 0 in x.stride():
        before = flat["x"].clone()
        with pytest.raises(RuntimeError, match=r"add_rms_norm_: x of shape .* share memory"):
            rms_norm.add_rms_norm_(x, residual)
        assert torch.equal(flat["x"], before)
        return
    y, summed = rms_norm.add_rms_norm(x, residual)
    around = [torch.ones(64 * 48, dtype=torch.bool) for _ in range(2)]
    view(around[0]).zero_()
    untouched = flat["x"].clone()
    rms_norm.add_rms_norm_(x, residual)
    assert torch.equal(x, y)
    assert torch.equal(residual, summed)
    assert torch.equal(flat["x"][around[0]], untouched[around[0]])


def test_interleaved_halves_are_normed_in_place(rms_norm: ModuleType) -> None:
    """C02: halves of a chunk."""
    both = torch.randn(6, 16)
    y, summed = rms_norm.add_rms_norm(*both.clone().chunk(2, -1))
    rms_norm.add_rms_norm_(*both.chunk(2, -1))
    assert torch.equal(both, torch.cat([y, summed], -1))


OVERLAPS: dict[str, tuple[Callable[[Tensor], tuple[Tensor, ...]], str]] = {
    "its own residual": (lambda t: (t[:4, :8], t[:4, :8]), "x shares memory with residual"),
    "rows one apart": (lambda t: (t[:4, :8], t[1:5, :8]), "x shares memory with residual"),
    "columns one apart": (lambda t: (t[:4, :8], t[:4, 1:9]), "x shares memory with residual"),
    "another stride": (lambda t: (t[:4, :8], t.view(-1)[32:64].view(4, 8)), "x shares memory with residual"),
    "a row repeated": (lambda t: (t[:1, :8].expand(4, 8), t[4:8, :8]), "x of shape .* share memory"),
    "windows": (lambda t: (t[4:8, :8], t.view(-1)[:32].unfold(0, 8, 4)[:4]), "residual of shape .* share memory"),
    "weight in x": (lambda t: (t[:4, :8], t[4:8, :8], t[0, :8]), "weight shares memory with x"),
    "weight in residual": (lambda t: (t[:4, :8], t[4:8, :8], t[5, :8]), "weight shares memory with residual"),
}


@pytest.mark.parametrize(("arguments", "message"), OVERLAPS.values(), ids=OVERLAPS.keys())
def test_shared_memory_is_refused_before_any_write(
    rms_norm: ModuleType, arguments: Callable[[Tensor], tuple[Tensor, ...]], message: str
) -> None:
    memory = torch.randn(9, 16)
    before = memory.clone()
    with pytest.raises(RuntimeError, match=f"add_rms_norm_: {message}"):
        rms_norm.add_rms_norm_(*arguments(memory))
    assert torch.equal(memory, before)


def test_offsets_beyond_32_bits_are_right(rms_norm: ModuleType) -> None:
    """N18."""
    columns = 512
    for norm in NORMS.values():
        near = norm.draw(2, columns, dtype=torch.bfloat16)
        far = {
            name: t
            if name == "weight"
            else torch.empty(2**31 + 2 * columns, dtype=torch.bfloat16)  # untouched pages cost no memory
            .as_strided((2, columns), (2**31 + columns, 1))
            .copy_(t)
            for name, t in near.items()
        }
        assert_equal(norm.run(rms_norm, far), norm.run(rms_norm, near))


# Errors


BAD_CALLS: dict[str, tuple[str, Callable[[Any, Tensor], object], str]] = {
    "residual of another shape": (
        "add_rms_norm",
        lambda op, x: op(x, x[:3]),
        r"residual has shape \(3, 8\), must be the shape of x, \(4, 8\)",
    ),
    "residual to be broadcast": ("add_rms_norm", lambda op, x: op(x, x[0]), r"residual has shape \(8,?\)"),
    "residual of another dtype": ("add_rms_norm", lambda op, x: op(x, x.half()), "residual is .*dtype of x"),
    "residual in place, of another shape": ("add_rms_norm_", lambda op, x: op(x, x[:3]), "residual has shape"),
    "residual in place, of another dtype": ("add_rms_norm_", lambda op, x: op(x, x.half()), "residual is .*dtype of x"),
    "eps in place": ("add_rms_norm_", lambda op, x: op(x, x.clone(), None, -1.0), "eps is -1"),
    "doubles": ("add_rms_norm", lambda op, x: op(x.double(), x.double()), "x is (Double|torch.float64)"),
    "weight too long": (
        "add_rms_norm",
        lambda op, x: op(x, x, torch.ones(9, device=x.device)),
        "weight has 9 elements",
    ),
    "offset without weight": ("add_rms_norm", lambda op, x: op(x, x, weight_offset=1.0), "weight_offset is 1"),
    "gate of another shape": ("gated_rms_norm", lambda op, x: op(x, x[:3]), r"gate has shape \(3, 8\)"),
    "gate of another dtype": ("gated_rms_norm", lambda op, x: op(x, x.half()), "gate is .*dtype of x"),
    "gate and eps": ("gated_rms_norm", lambda op, x: op(x, x, None, math.nan), "eps is nan"),
    "gate and x without dims": ("gated_rms_norm", lambda op, x: op(x[0, 0], x[0, 0]), "x has no dims"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("op", "call", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(  # noqa: PLR0913 - what the parameters are
    rms_norm: ModuleType,
    op: str,
    call: Callable[[Any, Tensor], object],
    message: str,
    device: str,
    *,
    grad_mode: bool,
) -> None:
    """Tracing sees shapes and dtypes alone: `meta`."""
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=f"{op}: {message}"):
        call(getattr(rms_norm, op), torch.ones(4, 8, device=device))


@pytest.mark.parametrize("through", ["function", "raw op", "compiled"])
@pytest.mark.parametrize("name", ["x", "residual", "weight"])
def test_in_place_refuses_an_argument_that_requires_grad(rms_norm: ModuleType, name: str, through: str) -> None:
    torch.compiler.reset()
    arguments = {"x": torch.ones(4, 8), "residual": torch.ones(4, 8), "weight": torch.ones(8)}
    arguments[name].requires_grad_()
    values = (*arguments.values(), 1e-6)
    raw = rms_norm.functional.ops.add_rms_norm_
    calls = {
        "function": rms_norm.add_rms_norm_,
        "raw op": lambda *values: raw(*values, 0.0),
        "compiled": torch.compile(rms_norm.add_rms_norm_, fullgraph=True),
    }
    with pytest.raises(RuntimeError, match=f"add_rms_norm_: {name} requires grad"):
        calls[through](*values)
    assert torch.equal(arguments["x"], torch.ones(4, 8))
    with torch.no_grad():
        calls[through](*values)
    assert torch.equal(arguments["residual"], torch.full((4, 8), 2.0))


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_in_place_refuses_a_tangent(rms_norm: ModuleType, *, grad_mode: bool) -> None:
    x = torch.ones(4, 8)
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(torch.ones(4, 8), x)  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="add_rms_norm_: residual has a tangent.* no jvp"):
            rms_norm.add_rms_norm_(x, dual)


@pytest.mark.parametrize("written", [0, 1], ids=["x", "residual"])
def test_autograd_knows_what_was_written_in_place(rms_norm: ModuleType, written: int) -> None:
    """A gradient from values that are gone would be wrong without a word."""
    factor = torch.randn(4, 8, requires_grad=True)
    arguments = torch.randn(2, 4, 8).unbind()
    arguments = (arguments[0].clone(), arguments[1].clone())
    product = factor * arguments[written]
    rms_norm.add_rms_norm_(*arguments)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(product.sum(), factor)


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("through", ["function", "raw op"])
@every_norm
def test_second_derivatives_raise(rms_norm: ModuleType, norm: Norm, through: str, *, allow_unused: bool) -> None:
    drawn = norm.draw(4, 8)
    arguments = [drawn[name].requires_grad_() for name in norm.case.gradients]
    rest = (1e-6, 0.0, *([False] if norm.case.op == "gated_rms_norm" else []))
    raw = getattr(rms_norm.functional.ops, norm.case.op)
    found = getattr(rms_norm, norm.case.op)(*arguments) if through == "function" else raw(*arguments, *rest)
    y = found[0] if isinstance(found, tuple) else found
    (dx,) = torch.autograd.grad(y.square().sum(), arguments[0], create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{norm.case.op} has no second derivative"):
        torch.autograd.grad(dx.sum(), arguments[0], allow_unused=allow_unused)


# torch around the ops


def ones(*shape: int) -> Tensor:
    return torch.ones(shape)


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "add": ("add_rms_norm", lambda: (*(t.requires_grad_() for t in (ones(4, 33), ones(4, 33), ones(33))), 1e-6, 0.5)),
    "add without weight": ("add_rms_norm", lambda: (ones(4, 33).requires_grad_(), ones(4, 33), None, 1e-6, 0.0)),
    "add in place": ("add_rms_norm_", lambda: (ones(4, 33), ones(4, 33), ones(33), 1e-6, 0.5)),
    "add in place of views": ("add_rms_norm_", lambda: (ones(9, 4).t(), ones(9, 4).t(), None, 1e-6, 0.0)),
    "add in place of no rows": ("add_rms_norm_", lambda: (ones(0, 9), ones(0, 9), None, 1e-6, 0.0)),
    "add backward": (
        "add_rms_norm_backward",
        lambda: (ones(4, 9), ones(4, 9), ones(4, 9), ones(9), ones(4), 0.0, True, True),
    ),
    "add backward, dweight alone": (
        "add_rms_norm_backward",
        lambda: (ones(4, 9), None, ones(4, 9), ones(9), ones(4), 0.0, False, True),
    ),
    "gated": (
        "gated_rms_norm",
        lambda: (*(t.requires_grad_() for t in (ones(4, 33), ones(4, 33), ones(33))), 1e-6, 0.5, False),
    ),
    "norm before gate": (
        "gated_rms_norm",
        lambda: (ones(4, 33).requires_grad_(), ones(4, 33).requires_grad_(), None, 1e-6, 0.0, True),
    ),
    "gated backward": (
        "gated_rms_norm_backward",
        lambda: (ones(4, 9), ones(4, 9), ones(4, 9), ones(9), ones(4), 0.0, False, True, True, True),
    ),
    "gated backward, dgate alone": (
        "gated_rms_norm_backward",
        lambda: (ones(4, 9), ones(4, 9), ones(4, 9), None, ones(4), 0.0, True, False, True, False),
    ),
    "gated backward of no rows": (
        "gated_rms_norm_backward",
        lambda: (ones(0, 9), ones(0, 9), ones(0, 9), ones(9), ones(0), 0.0, False, True, True, True),
    ),
}


@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(rms_norm: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    op = getattr(rms_norm.functional.ops, name).default
    assert set(torch.library.opcheck(op, arguments()).values()) == {"SUCCESS"}


@every_dtype
@every_norm
def test_compiled_is_eager_bit_for_bit(rms_norm: ModuleType, norm: Norm, dtype: torch.dtype) -> None:
    """N43, C11."""
    torch.compiler.reset()
    compiled = torch.compile(getattr(rms_norm, norm.case.op), fullgraph=True)
    for shape in [(4, 33), (7, 33), (2, 3, 64)]:
        drawn = norm.draw(*shape, dtype=dtype)
        assert_equal(norm.run_with(compiled, drawn), norm.run(rms_norm, drawn))


def test_in_place_is_compiled_between_other_operations(rms_norm: ModuleType) -> None:
    def model(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, before = x * 2, residual + 1
        residual = before.clone()
        rms_norm.add_rms_norm_(x, residual, weight)
        return x + 1, residual * 2, before

    def on_arguments(x: Tensor, residual: Tensor, weight: Tensor) -> None:
        rms_norm.add_rms_norm_(x, residual, weight)

    torch.compiler.reset()
    x, residual, weight = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8)
    torch.testing.assert_close(
        torch.compile(model, fullgraph=True)(x, residual, weight), model(x, residual, weight), rtol=0, atol=0
    )
    eager, compiled = (x.clone(), residual.clone()), (x.clone(), residual.clone())
    on_arguments(*eager, weight)
    torch.compile(on_arguments, fullgraph=True)(*compiled, weight)
    assert all(map(torch.equal, compiled, eager))


@every_norm
def test_autocast_leaves_the_dtype_of_x(rms_norm: ModuleType, norm: Norm) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        drawn = norm.draw(4, 33, dtype=dtype)
        drawn["weight"] = drawn["weight"].float()
        with torch.autocast("cpu", torch.bfloat16):
            inside = norm.run(rms_norm, drawn)
        assert_equal(inside, norm.run(rms_norm, drawn))


@every_norm
def test_torch_func_and_forward_mode_are_refused(rms_norm: ModuleType, norm: Norm) -> None:
    op = getattr(rms_norm, norm.case.op)
    x = torch.randn(4, 8)
    with pytest.raises(NotImplementedError, match=f"{norm.case.op}: torch.func transforms"):
        torch.func.vmap(op)(x, x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp"):
        op(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), x)  # type: ignore[no-untyped-call]


def test_inference_mode_gives_the_same_bits(rms_norm: ModuleType) -> None:
    x, residual = torch.randn(2, 4, 8)
    y, summed = rms_norm.add_rms_norm(x, residual)
    with torch.inference_mode():
        inner = x.clone()
        rms_norm.add_rms_norm_(inner, residual := residual.clone())
    assert torch.equal(inner, y)
    assert torch.equal(residual, summed)
    rms_norm.add_rms_norm_(inner, residual)  # tensors without a version, outside


# Layers


LAYERS = {"HubGemmaRMSNorm": "GemmaRMSNorm"}


@kernels.use_kernel_forward_from_hub("HubGemmaRMSNorm")
class HubGemmaRMSNorm(GemmaRMSNorm):
    """Gemma's, marked here: transformers marks it for some versions of kernels only."""


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("weight_dtype", [None, torch.float32], ids=["weight as x", "float32 weight"])
@every_dtype
def test_kernelize_keeps_what_gemma_rms_norm_computes(
    rms_norm_repo: Path, dtype: torch.dtype, weight_dtype: torch.dtype | None, *, compiled: bool
) -> None:
    """Both round once; N25 is why Gemma's weight is near 0 and 1 is added in float32."""
    torch.compiler.reset()
    generator = torch.Generator().manual_seed(0)
    theirs = GemmaRMSNorm(64).to(weight_dtype or dtype)
    ours = kernelized(HubGemmaRMSNorm(64).to(weight_dtype or dtype), LAYERS, rms_norm_repo)
    weight = 0.01 * torch.randn(64, generator=generator)
    for module in (theirs, ours):
        module.get_parameter("weight").data.copy_(weight)
    forward = torch.compile(ours, fullgraph=True) if compiled else ours
    x, grad = torch.randn(2, 2, 3, 64, generator=generator).to(dtype)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = forward(a), theirs(b)
    rounding = torch.finfo(dtype).eps + 8 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(y, expected, rtol=rounding, atol=0)
    y.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(a.grad, b.grad, rtol=rounding, atol=4 * rounding)
    # Theirs sums the rows in the weight's dtype or better.
    torch.testing.assert_close(
        ours.get_parameter("weight").grad, theirs.weight.grad, rtol=2 * rounding, atol=8 * rounding
    )


WRONG_TYPES: dict[str, tuple[Callable[[ModuleType, Tensor], object], str]] = {
    "no x": (lambda op, _: op.rms_norm(None), "rms_norm: x is None, must be a tensor$"),
    "a shape as F.rms_norm takes one": (
        lambda op, x: op.rms_norm(x, (8,)),
        r"rms_norm: weight is \(8,\), must be a tensor or None",
    ),
    "no residual": (lambda op, x: op.add_rms_norm(x, None), "add_rms_norm: residual is None, must be a tensor$"),
    "no residual to write": (lambda op, x: op.add_rms_norm_(x, None), "add_rms_norm_: residual is None"),
    "no gate": (lambda op, x: op.gated_rms_norm(x, None), "gated_rms_norm: gate is None, must be a tensor$"),
    "a number as bias": (
        lambda op, x: op.layer_norm(x, None, 1.0),
        "layer_norm: bias is 1.0, must be a tensor or None",
    ),
}


@pytest.mark.parametrize(("call", "message"), WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_an_argument_of_another_type_is_named(
    rms_norm: ModuleType, call: Callable[[ModuleType, Tensor], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(rms_norm, torch.ones(4, 8))


@pytest.mark.parametrize("which", ["x", "residual"])
def test_a_negated_view_is_not_written(rms_norm: ModuleType, which: str) -> None:
    """It would be written as its copy, and read as it was."""
    tensors = {name: torch.ones(2, 4) for name in ("x", "residual")}
    tensors[which] = torch.view_as_complex(torch.ones(2, 4, 2)).conj().imag
    with pytest.raises(RuntimeError, match=f"add_rms_norm_: {which} is a negated view"):
        rms_norm.add_rms_norm_(**tensors)
    assert all(t.abs().eq(1).all() for t in tensors.values())


# Tiers


@pytest.mark.parametrize("isa", TIERS)
@every_dtype
@pytest.mark.parametrize("name", NORMS)
def test_every_tier_is_right_for_every_tail(results_in_tier: InTier, isa: str, name: str, dtype: torch.dtype) -> None:
    norm = NORMS[name]
    for columns in SIZES:
        expected = norm.in_double(norm.draw(tier.ROWS, columns, dtype=dtype))
        for what, found in results_in_tier("norms", isa)[f"{name} {dtype} {columns}"].items():
            assert_within(found, expected[what], norm.case.tolerance((tier.ROWS, columns), dtype, what))
