"""The op layer_norm. N and C numbers are reports from the field of what went wrong elsewhere."""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import kernels
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from hubkernels.check.opcase import Tolerance
from tests.cases.layer_norm import CASE, EPS, reference
from tests.ops import layer_norm_tier as tier
from tests.ops.compare import assert_same_bits, assert_within
from tests.ops.conftest import InTier
from tests.ops.kernelized import kernelized, swapped_layers
from tests.ops.rms_norm_tier import ROWS, every_kind_of_float
from tests.ops.sweep import SIZES
from tests.ops.tiers import TIERS, USABLE_TIERS
from tests.ops.views import VIEWS, operators

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

F = nn.functional
DTYPES = [getattr(torch, name) for name in CASE.dtypes]
HALF_TYPES = [torch.bfloat16, torch.float16]
SHAPES = {name: shape for name, shape in CASE.shapes.items() if math.prod(shape) < 2**24}
NAMES = ("output", "x", "weight", "bias")


def in_double(*arguments: Tensor, **options: float) -> tuple[Tensor, ...]:
    """Compute y, dx, dweight and dbias in float64."""
    return run(reference, *(t.double() for t in arguments), **options)


def run(op: Callable[..., Tensor], *arguments: Tensor, **options: float) -> tuple[Tensor, ...]:
    """Compute y, dx, dweight and dbias with the op, of x, weight, bias and the gradient of y."""
    *leaves, grad = (t.detach() for t in arguments)
    leaves = [t.requires_grad_() for t in leaves]
    y = op(*leaves, **options)
    return (y.detach(), *torch.autograd.grad(y, leaves, grad))


def assert_right(rms_norm: ModuleType, *arguments: Tensor, **options: float) -> None:
    x, weight, bias, _ = arguments
    dtypes = (x.dtype, x.dtype, weight.dtype, bias.dtype)
    results, expected = run(rms_norm.layer_norm, *arguments, **options), in_double(*arguments, **options)
    for name, dtype, a, b in zip(NAMES, dtypes, results, expected, strict=True):
        assert a.dtype == dtype
        assert a.is_contiguous()
        assert_within(a, b, CASE.tolerance(tuple(x.shape), dtype, name))


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw x, weight, bias and the gradient of y."""
    generator = torch.Generator().manual_seed(1)
    arguments = CASE.make(shape, dtype, generator)
    grad = torch.randn(shape, generator=generator).to(dtype)
    return arguments["x"], arguments["weight"], arguments["bias"], grad


# Numbers


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_output_and_gradients_are_float64_rounded(
    rms_norm: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    assert_right(rms_norm, *inputs(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("wide", ["weight", "bias", "both"])
def test_weight_and_bias_may_each_be_float32(rms_norm: ModuleType, wide: str, dtype: torch.dtype) -> None:
    x, weight, bias, grad = inputs(33, 129, dtype=dtype)
    weight = weight if wide == "bias" else weight.float() + 1e-4
    bias = bias if wide == "weight" else bias.float() + 1e-4
    assert_right(rms_norm, x, weight, bias, grad)


@pytest.mark.parametrize("given", ["neither", "weight", "bias"])
def test_no_weight_is_ones_and_no_bias_is_zeros(rms_norm: ModuleType, given: str) -> None:
    """N37: a norm without affine weights failed later."""
    x, weight, bias, grad = inputs(9, 33)
    ours = (weight if given == "weight" else None, bias if given == "bias" else None)
    filled = (weight if given == "weight" else torch.ones(33), bias if given == "bias" else torch.zeros(33))
    leaves = [t.requires_grad_() for t in (x, *ours) if t is not None]
    y = rms_norm.layer_norm(x, *ours)
    found = iter(torch.autograd.grad(y, leaves, grad))
    expected, *gradients = run(rms_norm.layer_norm, x, *filled, grad)
    assert torch.equal(y, expected)
    for t, gradient in zip((x, *ours), gradients, strict=True):
        assert t is None or torch.equal(next(found), gradient)


@pytest.mark.parametrize("wanted", [c for n in (1, 2) for c in itertools.combinations(range(3), n)], ids=str)
def test_some_gradients_alone_have_the_same_bits(rms_norm: ModuleType, wanted: tuple[int, ...]) -> None:
    x, weight, bias, grad = inputs(70, 257)
    _, *every = run(rms_norm.layer_norm, x, weight, bias, grad)
    leaves = [(x, weight, bias)[i].requires_grad_() for i in wanted]
    found = torch.autograd.grad(rms_norm.layer_norm(x, weight, bias), leaves, grad)
    assert all(torch.equal(a, every[i]) for a, i in zip(found, wanted, strict=True))


def test_statistics_are_saved_in_float32(rms_norm: ModuleType) -> None:
    """N42: a reciprocal root in bfloat16 ruined the gradient."""
    x, weight, bias, _ = inputs(4, 64, dtype=torch.bfloat16)
    saved = rms_norm.layer_norm(x.requires_grad_(), weight, bias).grad_fn.saved_tensors
    assert [t.dtype for t in saved] == [torch.bfloat16] * 3 + [torch.float32] * 3


@pytest.mark.parametrize("columns", [5, 16, 200, 9001])
@pytest.mark.parametrize("center", [1e2, 1e4, 1e6, -1e6])
def test_rows_far_from_zero_are_as_right_as_rows_around_it(rms_norm: ModuleType, center: float, columns: int) -> None:
    """A mean of squares less a squared mean has no digit left there; a mean in float32 leaves four."""
    x, *others = inputs(6, columns)
    assert_right(rms_norm, x + center, *others)


def test_first_elements_far_from_the_rest_do_not_cancel(rms_norm: ModuleType) -> None:
    """The sums start from the mean of the first elements: sums that start far away are made again."""
    x, *others = inputs(6, 3000)
    x[:, :16] += 300
    assert_right(rms_norm, x, *others)
    x[:, :16] = 1e6
    y = rms_norm.layer_norm(x)
    torch.testing.assert_close(y.double(), reference(x.double()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [1e19, 3e38, 1e-19, 1e-30])
def test_rows_of_any_magnitude_have_unit_variance(rms_norm: ModuleType, value: float) -> None:
    """N39: 1e19 squared overflows float32, 1e-30 squared vanishes, and so does -3e38 - 3e38."""
    x, weight, bias, grad = inputs(4, 100)
    x = x / x.abs().max() * value
    y, dx, dweight, dbias = run(rms_norm.layer_norm, x, weight, bias, grad * min(value, 1e30), eps=0.0)
    expected = in_double(x, weight, bias, grad * min(value, 1e30), eps=0.0)
    for a, b in zip((y, dx, dweight, dbias), expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


def test_one_element_at_the_other_end_of_the_range_is_right(rms_norm: ModuleType) -> None:
    """The distance from the mean is twice what a float can hold."""
    x = torch.full((2, 1000), -3e38)
    x[:, 7] = 3e38
    others = inputs(2, 1000)[1:]
    for a, b in zip(run(rms_norm.layer_norm, x, *others, eps=0.0), in_double(x, *others, eps=0.0), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


def test_a_spike_beside_small_values_is_right(rms_norm: ModuleType) -> None:
    """N39."""
    x, *others = inputs(3, 200)
    x[:, 77] = 1e19
    assert_right(rms_norm, x, *others)


def test_long_rows_lose_no_accuracy(rms_norm: ModuleType) -> None:
    """Each float addition of 1.1 onto a long sum rounds the same way."""
    x = torch.full((1, 2**24), 3.0)
    x[:, 1::2] += 2 * math.sqrt(1.1)
    y = rms_norm.layer_norm(x)
    torch.testing.assert_close(y.abs(), torch.ones_like(y), rtol=6e-6, atol=0)


@pytest.mark.parametrize("columns", [1, 3, 7, 16, 33, 1000])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4 / 3, 1e30])
def test_rows_of_equal_elements_give_the_bias(rms_norm: ModuleType, value: float, columns: int) -> None:
    """N39: an all-zero row was 0/0."""
    x, weight, bias, grad = inputs(3, columns)
    x = torch.full_like(x, value)
    y, dx, dweight, dbias = run(rms_norm.layer_norm, x, weight, bias, grad)
    assert torch.equal(y, bias.expand_as(x))
    assert torch.equal(dweight, torch.zeros(columns))
    centered = grad * weight - (grad * weight).mean(-1, keepdim=True)
    torch.testing.assert_close(dx, centered / math.sqrt(EPS), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(dbias, grad.sum(0))
    assert rms_norm.layer_norm(x, eps=0.0).isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("columns", [5, 70])
def test_nan_and_infinity_stay_in_their_row(
    rms_norm: ModuleType, columns: int, value: float, dtype: torch.dtype
) -> None:
    arguments = inputs(5, columns, dtype=dtype)
    x = arguments[0]
    others = [0, 1, 3, 4]
    clean = run(rms_norm.layer_norm, *arguments)
    for column in (0, columns - 1):
        x[2, column] = value
        y, dx, dweight, dbias = run(rms_norm.layer_norm, *arguments)
        assert y[2].isnan().all()
        assert dx[2].isnan().all()
        assert torch.equal(y[others], clean[0][others])
        assert torch.equal(dx[others], clean[1][others])
        assert dweight.isnan().all()
        assert torch.equal(dbias, clean[3])


def test_nan_in_a_gradient_stays_in_its_row_and_column(rms_norm: ModuleType) -> None:
    *arguments, grad = inputs(5, 70)
    grad[2, 33] = math.nan
    _, dx, dweight, dbias = run(rms_norm.layer_norm, *arguments, grad)
    assert dx.isnan().any(1).tolist() == [False, False, True, False, False]
    assert dweight.isnan().nonzero().tolist() == [[33]]
    assert dbias.isnan().nonzero().tolist() == [[33]]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("shape", [(1027, 515), (20000, 24), (70, 9001)], ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(
    rms_norm: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    arguments = inputs(*shape, dtype=dtype)
    results = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        results.append(run(rms_norm.layer_norm, *arguments))
    for other, name in itertools.product(results[1:], range(4)):
        assert torch.equal(results[0][name], other[name])


# Layout


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_are_right_and_results_contiguous(
    rms_norm: ModuleType, view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(2, 64 * 48, generator=generator)
    x = view((noise[0].sign() * (noise[0].abs() + 0.5)).to(dtype))
    grad = view(noise[1].to(dtype))
    weight, bias = torch.randn(2, 2 * x.shape[-1], generator=generator).to(dtype)[:, ::2]
    if x.std(-1, correction=0).min() < 0.5:  # equal elements: y is the bias, and the model of errors has no scale
        assert torch.equal(rms_norm.layer_norm(x, weight, bias), bias.expand_as(x))
        dense = run(rms_norm.layer_norm, *(t.contiguous() for t in (x, weight, bias, grad)))
        assert all(map(torch.equal, run(rms_norm.layer_norm, x, weight, bias, grad), dense))
    else:
        assert_right(rms_norm, x, weight, bias, grad)


def test_rows_with_one_stride_are_not_copied(rms_norm: ModuleType) -> None:
    x = torch.randn(6, 5, 100)
    weight, bias = torch.ones(2, 40)
    for view in (x[..., 7:47], x[0, :, 3:43], x[::2, 1:2, :40], x[0, 0, :40].expand(9, 40)):
        assert "aten::clone" not in operators(rms_norm.layer_norm, view, weight, bias)
    assert "aten::clone" in operators(rms_norm.layer_norm, x.transpose(0, 1)[..., :40], weight, bias)


def test_an_expanded_gradient_is_not_copied_and_right(rms_norm: ModuleType) -> None:
    x, weight, bias, grad = inputs(6, 40)
    assert_right(rms_norm, x, weight, bias, grad[:1].expand(6, 40))
    assert_right(rms_norm, x, weight, bias, grad[0, 0].expand(6, 40))


def test_offsets_beyond_32_bits_are_right(rms_norm: ModuleType) -> None:
    """N18: rows in front of and behind element 2**31, in x and in y."""
    columns = 512
    near = inputs(2, columns, dtype=torch.bfloat16)
    x, grad = (
        torch.empty(2**31 + 2 * columns, dtype=torch.bfloat16)  # untouched pages cost no memory
        .as_strided((2, columns), (2**31 + columns, 1))
        .copy_(t)
        for t in (near[0], near[3])
    )
    found = run(rms_norm.layer_norm, x, near[1], near[2], grad)
    assert all(map(torch.equal, found, run(rms_norm.layer_norm, *near)))

    rows = 2**31 // columns + 1
    y = rms_norm.layer_norm(x[:1].expand(rows, columns), near[1], near[2])
    assert torch.equal(y[-2:], y[:1].expand(2, columns))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0), (2, 0, 7), (2, 0, 0)], ids=str)
def test_empty_inputs_give_empty_outputs_and_zero_weight_gradients(
    rms_norm: ModuleType, shape: tuple[int, ...]
) -> None:
    """N34."""
    x, columns = torch.empty(shape), shape[-1]
    y, dx, *sums = run(rms_norm.layer_norm, x, torch.ones(columns), torch.ones(columns), torch.empty(shape))
    assert y.shape == dx.shape == shape
    for gradient in sums:
        assert torch.equal(gradient, torch.zeros(columns))


# Errors


BadCall = tuple[Callable[[Any, Tensor], object], str]


def bad_weights(name: str) -> dict[str, BadCall]:
    """Calls with a bad weight or bias."""

    def call(op: Any, x: Tensor, bad: Tensor) -> object:  # noqa: ANN401 (op is any callable)
        return op(x, **{name: bad})

    return {
        f"{name} too long": (
            lambda op, x: call(op, x, torch.ones(9, device=x.device)),
            f"layer_norm: {name} has 9 elements, last dim of x has 8",
        ),
        f"{name} with two dims": (lambda op, x: call(op, x, x), rf"layer_norm: {name} has shape \(4, 8\)"),
        f"{name} of another half type": (
            lambda op, x: call(op, x.half(), torch.ones(8, device=x.device).bfloat16()),
            f"layer_norm: {name} is BFloat16.* dtype of x, Half",
        ),
        f"{name} on another device": (
            lambda op, x: call(op, x, torch.ones(8, device="meta" if x.is_cpu else "cpu")),
            f"layer_norm: {name} is on meta.* device of x, cpu",
        ),
    }


BAD_CALLS: dict[str, BadCall] = {
    "x without dims": (lambda op, x: op(x[0, 0]), "layer_norm: x has no dims"),
    "x of doubles": (lambda op, x: op(x.double()), "layer_norm: x is Double"),
    "x of integers": (lambda op, x: op(x.long()), "layer_norm: x is Long"),
    "negative eps": (lambda op, x: op(x, eps=-1.0), "layer_norm: eps is -1,"),
    "eps that is no number": (lambda op, x: op(x, eps=math.nan), "layer_norm: eps is nan,"),
    "infinite eps": (lambda op, x: op(x, eps=math.inf), "layer_norm: eps is inf,"),
    **bad_weights("weight"),
    **bad_weights("bias"),
}


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("call", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(
    rms_norm: ModuleType, call: Callable[[Any, Tensor], object], message: str, *, grad_mode: bool
) -> None:
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=message):
        call(rms_norm.layer_norm, torch.ones(4, 8))


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_argument_is_refused_without_data_too(rms_norm: ModuleType, name: str) -> None:
    """Tracing sees shapes and dtypes alone; what it lets through would fail when the compiled code runs."""
    with pytest.raises(RuntimeError, match="layer_norm: (x|weight|bias|eps) "):
        BAD_CALLS[name][0](rms_norm.layer_norm, torch.ones(4, 8, device="meta"))


BACKWARD: dict[str, Any] = {
    "grad": torch.ones(4, 8),
    "x": torch.ones(4, 8),
    "weight": torch.ones(8),
    "bias": torch.ones(8),
    "mean": torch.ones(4),
    "mean_rest": torch.ones(4),
    "rstd": torch.ones(4),
    "want_dx": True,
    "want_dweight": True,
    "want_dbias": True,
}
BAD_GRADIENTS = {
    "grad of another dtype": ({"grad": torch.ones(4, 8).half()}, "grad is .*(Half|float16).* dtype of x, "),
    "grad of another shape": ({"grad": torch.ones(3, 8)}, r"grad has shape \(3, 8\)"),
    "too few means": ({"mean": torch.ones(3)}, r"mean has shape \(3,?\), must be that of x, \(4, 8\), but"),
    "too few rests": ({"mean_rest": torch.ones(3)}, r"mean_rest has shape \(3,?\), must be"),
    "statistics of another dtype": ({"rstd": torch.ones(4).half()}, "rstd is .*(Half|float16)"),
    "a gradient of no weight": ({"weight": None}, "want_dweight is true without a weight"),
    "a gradient of no bias": ({"bias": None}, "want_dbias is true without a bias"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("change", "message"), BAD_GRADIENTS.values(), ids=BAD_GRADIENTS.keys())
def test_a_bad_gradient_is_named_with_its_value(
    rms_norm: ModuleType, device: str, change: dict[str, Any], message: str
) -> None:
    arguments = {**BACKWARD, **change}.values()
    with pytest.raises(RuntimeError, match=f"layer_norm_backward: {message}"):
        rms_norm.functional.ops.layer_norm_backward(*(t.to(device) if isinstance(t, Tensor) else t for t in arguments))


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("through", ["function", "raw op"])
def test_second_derivatives_raise(rms_norm: ModuleType, through: str, *, allow_unused: bool) -> None:
    """None in place of a second derivative would be taken for zero."""
    x, weight, bias, _ = inputs(4, 8)
    x.requires_grad_()
    raw = rms_norm.functional.ops.layer_norm
    y = rms_norm.layer_norm(x, weight, bias) if through == "function" else raw(x, weight, bias, EPS)[0]
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="layer_norm has no second derivative"):
        torch.autograd.grad(dx.sum(), x, allow_unused=allow_unused)


# torch around the op


def backward_of(rows: int, dtype: torch.dtype, wanted: tuple[bool, bool, bool]) -> tuple[Any, ...]:
    weights = (torch.ones(9) if want else None for want in wanted[1:])
    statistics = (torch.ones(rows) for _ in range(3))
    return (*(torch.ones(rows, 9, dtype=dtype),) * 2, *weights, *statistics, *wanted)


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "forward": ("layer_norm", lambda: (*(t.requires_grad_() for t in inputs(4, 33)[:3]), EPS)),
    "forward of x alone": ("layer_norm", lambda: (inputs(4, 33)[0].requires_grad_(), None, None, EPS)),
    "forward of a view": ("layer_norm", lambda: (torch.ones(9, 4).t().requires_grad_(), None, None, EPS)),
    "forward of no rows": ("layer_norm", lambda: (torch.ones(0, 9), torch.ones(9), torch.ones(9), EPS)),
    "backward": ("layer_norm_backward", lambda: backward_of(4, torch.float32, (True, True, True))),
    "backward, dx alone": ("layer_norm_backward", lambda: backward_of(4, torch.float32, (True, False, False))),
    "backward, weights alone": ("layer_norm_backward", lambda: backward_of(4, torch.bfloat16, (False, True, True))),
    "backward, dbias alone": ("layer_norm_backward", lambda: backward_of(4, torch.bfloat16, (False, False, True))),
    "backward of no rows": ("layer_norm_backward", lambda: backward_of(0, torch.float32, (True, True, True))),
}


@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(rms_norm: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    op = getattr(rms_norm.functional.ops, name).default
    assert set(torch.library.opcheck(op, arguments()).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_compiled_is_eager_bit_for_bit(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    """N43, C11: numbers changed under compile, several shapes threw."""
    torch.compiler.reset()
    compiled = torch.compile(rms_norm.layer_norm, fullgraph=True)
    for shape in [(4, 33), (7, 33), (2, 3, 64)]:
        arguments = inputs(*shape, dtype=dtype)
        eager = run(rms_norm.layer_norm, *arguments)
        assert all(map(torch.equal, run(compiled, *arguments), eager))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_leaves_the_dtype_of_x(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    x, weight, bias, grad = inputs(4, 33, dtype=dtype)
    arguments = (x, weight.float(), bias.float(), grad)
    with torch.autocast("cpu", torch.bfloat16):
        inside = run(rms_norm.layer_norm, *arguments)
    assert inside[0].dtype == dtype
    assert all(map(torch.equal, inside, run(rms_norm.layer_norm, *arguments)))


def test_torch_func_is_refused_by_name(rms_norm: ModuleType) -> None:
    x, weight, bias, _ = inputs(4, 33)
    for transformed in (
        torch.func.grad(lambda x: rms_norm.layer_norm(x, weight, bias).sum()),
        torch.func.vmap(rms_norm.layer_norm),
    ):
        with pytest.raises(NotImplementedError, match="layer_norm: torch.func transforms"):
            transformed(x)


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_forward_mode_is_refused_and_no_tangent_is_dropped(rms_norm: ModuleType, *, grad_mode: bool) -> None:
    x, weight, bias, _ = inputs(4, 33)
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="jvp"):
            rms_norm.layer_norm(dual, weight, bias)


def test_inference_mode_gives_the_same_bits(rms_norm: ModuleType) -> None:
    x, weight, bias, _ = inputs(4, 33)
    expected = rms_norm.layer_norm(x.requires_grad_(), weight, bias)
    with torch.inference_mode():
        assert torch.equal(rms_norm.layer_norm(x, weight, bias), expected)
    with torch.no_grad():
        assert not rms_norm.layer_norm(x, weight, bias).requires_grad


# Layers


LAYERS = {"TorchLayerNorm": "LayerNorm"}


@kernels.use_kernel_forward_from_hub("TorchLayerNorm")
class TorchLayerNorm(nn.LayerNorm):
    """nn.LayerNorm that `kernelize` may replace."""


MODULES: dict[str, Callable[[], TorchLayerNorm]] = {
    "one dim": lambda: TorchLayerNorm(24, eps=1e-3),
    "two dims": lambda: TorchLayerNorm((4, 6), eps=1e-3),
    "no bias": lambda: TorchLayerNorm(24, bias=False),
    "two dims, no bias": lambda: TorchLayerNorm((4, 6), bias=False),
    "not affine": lambda: TorchLayerNorm(24, elementwise_affine=False),
    "two dims, not affine": lambda: TorchLayerNorm((4, 6), elementwise_affine=False),
}


def train(module: Callable[[Tensor], Tensor], parameters: Iterator[nn.Parameter], x: Tensor) -> list[Tensor]:
    """y and every gradient of a training step."""
    x = x.detach().requires_grad_()
    y = module(x)
    weighted = (y * torch.linspace(-1, 1, y.numel()).to(y.dtype).view(y.shape)).sum()
    return [y.detach(), *torch.autograd.grad(weighted, [x, *parameters])]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())
def test_kernelize_keeps_what_torch_layer_norm_computes(
    rms_norm_repo: Path, make: Callable[[], TorchLayerNorm], dtype: torch.dtype, *, compiled: bool
) -> None:
    torch.compiler.reset()
    theirs = make().to(dtype)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours = kernelized(copy.deepcopy(theirs), LAYERS, rms_norm_repo)
    forward = torch.compile(ours, fullgraph=True) if compiled else ours
    x = (1e-2 * inputs(5, *theirs.normalized_shape)[0]).to(dtype)  # small: eps decides
    rounding = 2 * torch.finfo(dtype).eps + 16 * torch.finfo(torch.float32).eps
    for a, b in zip(train(forward, ours.parameters(), x), train(theirs, theirs.parameters(), x), strict=True):
        torch.testing.assert_close(a, b, rtol=rounding, atol=rounding * float(b.detach().abs().max()))


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=["bfloat16", "float16"])
def test_a_float32_layer_serves_half_types(rms_norm_repo: Path, dtype: torch.dtype) -> None:
    theirs = TorchLayerNorm(64)
    nn.init.normal_(theirs.bias)
    ours = kernelized(copy.deepcopy(theirs), LAYERS, rms_norm_repo)
    x = inputs(2, 3, 64, dtype=dtype)[0]
    torch.testing.assert_close(ours(x), theirs(x))
    ours(x).sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in ours.parameters())


def test_a_layer_of_another_half_type_is_taken_as_float32(rms_norm_repo: Path) -> None:
    layer = kernelized(TorchLayerNorm(64).half(), LAYERS, rms_norm_repo)
    x = inputs(3, 64)[0]
    torch.testing.assert_close(layer(x), F.layer_norm(x, (64,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_layer_keeps_the_dtype_that_torch_gives_under_autocast(rms_norm_repo: Path, dtype: torch.dtype) -> None:
    theirs = TorchLayerNorm(64)
    ours = kernelized(copy.deepcopy(theirs), LAYERS, rms_norm_repo)
    x = inputs(3, 64, dtype=dtype)[0]
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(ours(x), theirs(x))


def test_the_layer_refuses_a_shape_that_does_not_end_right(rms_norm_repo: Path) -> None:
    """As many elements in another order would be normalized without a word."""
    layer = kernelized(TorchLayerNorm((4, 6)), LAYERS, rms_norm_repo)
    with pytest.raises(ValueError, match=r"x has shape \(2, 6, 4\), must end in \(4, 6\)"):
        layer(torch.ones(2, 6, 4))


def bert() -> nn.Module:
    """Draw a small BERT, whose LayerNorms are torch's own; biases and weights of norms too."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=99,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model: nn.Module = BertModel(config)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.2)
            nn.init.normal_(module.bias, 0.0, 0.2)
    return model.train()


def with_marked_norms(model: nn.Module) -> nn.Module:
    """Let `kernelize` replace every nn.LayerNorm of a model."""
    for module in model.modules():
        if type(module) is nn.LayerNorm:
            module.__class__ = TorchLayerNorm
    return model


def step(model: Callable[..., Any], parameters: list[nn.Parameter]) -> list[Tensor]:
    tokens = torch.randint(99, (2, 11), generator=torch.Generator().manual_seed(3))
    hidden = model(input_ids=tokens).last_hidden_state
    direction = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(4)).to(hidden.dtype)
    return [hidden.detach(), *torch.autograd.grad((hidden * direction).sum(), parameters)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernelized_model_trains_as_itself(rms_norm_repo: Path, dtype: torch.dtype, *, compiled: bool) -> None:
    """Output and gradients are no farther from those in float64 than twice what torch's own are."""
    torch.compiler.reset()
    theirs = bert().to(dtype)
    ours = kernelized(with_marked_norms(bert().to(dtype)), LAYERS, rms_norm_repo)
    assert swapped_layers(ours) == 5 * ["LayerNorm"]
    forward = torch.compile(ours, fullgraph=True) if compiled else ours

    def trained(module: nn.Module) -> list[nn.Parameter]:
        return [p for name, p in module.named_parameters() if "pooler" not in name]

    exact = bert().to(dtype).double()
    truth, expected, found = (
        step(call, trained(module)) for call, module in ((exact, exact), (theirs, theirs), (forward, ours))
    )
    assert all(a.dtype == b.dtype for a, b in zip(found, expected, strict=True))
    assert farthest(found, truth) <= 2 * farthest(expected, truth)


def farthest(found: list[Tensor], truth: list[Tensor]) -> float:
    """The largest difference beside the largest element of its tensor."""
    pairs = zip(found, truth, strict=True)
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-3)) for a, b in pairs)


def test_a_row_of_equal_elements_has_a_gradient_whatever_their_size(rms_norm: ModuleType) -> None:
    """Lanes behind the row hold a zero, which is far from a mean of 1e36."""
    for size, columns, dtype in ((2e36, 4, torch.float32), (3e38, 19, torch.float32), (-3e38, 5, torch.bfloat16)):
        x = torch.full((2, columns), size, dtype=dtype, requires_grad=True)
        grad = torch.arange(columns).to(dtype).expand(2, columns)
        (dx,) = torch.autograd.grad(rms_norm.layer_norm(x), x, grad)
        expected = (grad.double() - grad.double().mean()) / EPS**0.5
        assert_within(dx, expected.expand(2, columns), Tolerance(2 * torch.finfo(dtype).eps, 1e-3))


# Tiers


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_every_tier_is_right_for_every_tail(results_in_tier: InTier, isa: str, dtype: torch.dtype) -> None:
    for columns in SIZES:
        results = results_in_tier("layer_norm", isa)[f"{dtype} {columns}"]
        expected = in_double(*tier.inputs(dtype, columns))
        for name, a, b in zip(NAMES, results, expected, strict=True):
            assert_within(a, b, CASE.tolerance((ROWS, columns), dtype, name))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_every_tier_rounds_every_kind_of_float_to_even(results_in_tier: InTier, isa: str, dtype: torch.dtype) -> None:
    """The bfloat16 instruction alone makes zero of subnormals."""
    expected = (every_kind_of_float() + 0.0).to(dtype)  # the bias is added to zero: no negative zero
    assert_same_bits(results_in_tier("layer_norm", isa)[f"{dtype} rounded"], expected)


def test_the_best_tier_is_the_default(rms_norm: ModuleType) -> None:
    assert "HUBKERNELS_ISA" not in os.environ
    assert rms_norm.functional.ops.layer_norm_isa() == USABLE_TIERS[0]


@pytest.mark.usefixtures("threads")
def test_a_forked_child_computes_what_its_parent_did(rms_norm: ModuleType, tmp_path: Path) -> None:
    """The child has none of its parent's threads; it says so to torch, as a worker of a DataLoader does."""
    torch.set_num_threads(2)
    arguments = inputs(512, 512)
    expected = run(rms_norm.layer_norm, *arguments)
    output = tmp_path / "child.pt"
    child = os.fork()
    if child == 0:  # the child leaves without a word of pytest's
        try:
            torch.set_num_threads(1)
            torch.save(run(rms_norm.layer_norm, *arguments), output)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(map(torch.equal, torch.load(output), expected))
