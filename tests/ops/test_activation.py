"""The activations of the package activation, its tiers and layers. N and C numbers are reports from the field."""

from __future__ import annotations

import functools
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from tests.cases import gelu, gelu_and_mul, rope, silu_and_mul
from tests.ops import activation_tier as tier
from tests.ops import views
from tests.ops.compare import assert_within
from tests.ops.sweep import SIZES
from tests.ops.tiers import TIERS
from tests.ops.views import operators

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from hubkernels.check.opcase import Tolerance
    from tests.ops.conftest import InTier


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

F = nn.functional
NAMES = ("float32", "bfloat16", "float16")
DTYPES = [getattr(torch, name) for name in NAMES]
Formula = dict[str, "Callable[..., Tensor]"]

REFERENCES: Formula = {
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": gelu.reference,
    "gelu tanh": functools.partial(gelu.reference, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
GATED_REFERENCES: Formula = {
    "silu": silu_and_mul.reference,
    "gelu": gelu_and_mul.reference,
    "gelu tanh": functools.partial(gelu_and_mul.reference, approximate="tanh"),
}
TORCH: Formula = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu tanh": functools.partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


def results(call: Callable[..., Tensor], *arguments: Tensor) -> tuple[Tensor, ...]:
    """What a function returns and, for the last argument as the gradient of that, the gradients of the others."""
    *leaves, grad = arguments
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    y = call(*leaves)
    return (y.detach(), *torch.autograd.grad(y, leaves, grad.to(y.dtype)))


def in_double(call: Callable[..., Tensor], *arguments: Tensor) -> tuple[Tensor, ...]:
    return results(call, *(t.double() for t in arguments))


def assert_right(
    call: Callable[..., Tensor], reference: Callable[..., Tensor], *arguments: Tensor
) -> tuple[Tensor, ...]:
    """Hold a function and its gradients against float64."""
    found = results(call, *arguments)
    dtype = arguments[0].dtype
    for name, actual, expected in zip(("output", "x", "up"), found, in_double(reference, *arguments), strict=False):
        assert actual.dtype == dtype
        assert actual.is_contiguous()
        assert_within(actual, expected, tolerance(dtype, name))
    return found


def tolerance(dtype: torch.dtype, name: str) -> Tolerance:
    """The widest of the cases: their slopes and exponents bound those of silu and quick_gelu too."""
    return gelu_and_mul.tolerance((), dtype, name)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Draw elements from the tails to the linear part of an activation, within what the error model covers."""
    noise = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return noise.clamp(-gelu.LARGEST, gelu.LARGEST).to(dtype)


@pytest.fixture(params=REFERENCES)
def name(request: pytest.FixtureRequest) -> str:
    """Each function of one tensor."""
    chosen: str = request.param
    return chosen


@pytest.fixture(params=GATED_REFERENCES)
def gate(request: pytest.FixtureRequest) -> str:
    """Each function of a gate and its up."""
    chosen: str = request.param
    return chosen


dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)


# Numbers


@dtypes
@pytest.mark.parametrize("shape", [(), (1,), (7, 1), (5, 17), (3, 1023), (2, 3, 4, 96), (70001,)], ids=str)
def test_output_and_gradient_are_float64_rounded(
    activation: ModuleType, name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, grad = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=2)
    assert_right(tier.activations(activation)[name], REFERENCES[name], x, grad)


@dtypes
@pytest.mark.parametrize("shape", [(1,), (7, 1), (5, 17), (3, 1023), (2, 3, 4, 96), (70001,)], ids=str)
def test_packed_and_apart_are_float64_rounded_and_the_same_bits(
    activation: ModuleType, gate: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """C02: a layer and the bare function disagreed on halves of a chunk."""
    call, reference = tier.gated(activation)[gate], GATED_REFERENCES[gate]
    x, up, grad = (draw(*shape, dtype=dtype, seed=seed) for seed in range(3))
    y, dx, dup = assert_right(call, reference, x, up, grad)
    packed, dpacked = assert_right(call, reference, torch.cat((x, up), -1), grad)
    assert torch.equal(packed, y)
    assert torch.equal(dpacked, torch.cat((dx, dup), -1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_every_half_number_is_one_ulp_from_float64(activation: ModuleType, name: str, dtype: torch.dtype) -> None:
    """And the derivative within the rounding of float32 around it, of every finite number that there is."""
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    x = x[x.isfinite()]
    y, dx = results(tier.activations(activation)[name], x, torch.ones_like(x))
    expected, slope = in_double(REFERENCES[name], x, torch.ones_like(x))
    slope = slope.nan_to_num(0.0)  # infinity times zero, where the cube of x is infinite
    slope = torch.where(x > 1e3, 1.0, slope)
    assert (ordered(y) - ordered(expected.to(dtype))).abs().max() <= 1
    assert_within(dx, slope, tolerance(dtype, "x"))


def ordered(x: Tensor) -> Tensor:
    """Number the values of a half type, both zeros as one."""
    bits = x.view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.parametrize(("lowest", "ours"), [(-2.0, 8), (-5.0, 40), (-10.0, 240)], ids=["middle", "tail", "far tail"])
@pytest.mark.parametrize("kind", ["gelu", "gelu tanh"])
def test_gelu_keeps_the_digits_of_negative_numbers(
    activation: ModuleType, kind: str, lowest: float, ours: float
) -> None:
    """In units of 2**-24 of the value; 1 + erf and 1 + tanh lose up to all of it, and torch with them."""
    x = torch.linspace(lowest, 0, 100_001)[:-1]
    expected = REFERENCES[kind](x.double())

    def error(call: Callable[..., Tensor]) -> float:
        return float(((call(x).double() - expected) / expected).abs().max()) * 2**24

    assert error(tier.activations(activation)[kind]) <= ours
    assert error(TORCH[kind]) > error(tier.activations(activation)[kind])


@dtypes
def test_infinity_has_the_limits_and_nan_stays_where_it_is(
    activation: ModuleType, name: str, dtype: torch.dtype
) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 1.0], dtype=dtype)
    y, dx = results(tier.activations(activation)[name], x, torch.ones(4))
    assert y[:2].tolist() == [math.inf, 0]
    assert dx[:2].tolist() == [1, 0]
    assert y.isnan().tolist() == dx.isnan().tolist() == [False, False, True, False]


def test_huge_and_tiny_numbers_are_right(activation: ModuleType, name: str) -> None:
    """A cube overflows from 7e12 on, where gradients elsewhere are NaN."""
    x = torch.tensor([3e38, 1e20, 1e5, -1e5, -1e20, -3e38, 1e-40, -1e-40, 0.0, -0.0])
    y, dx = results(tier.activations(activation)[name], x, torch.ones(10))
    half = 0.5 * x[6:8]
    torch.testing.assert_close(y, torch.cat((x[:3], torch.zeros(3), half, torch.zeros(2))), rtol=1e-6, atol=1e-44)
    assert dx.tolist() == [1, 1, 1, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]
    assert math.copysign(1, y[-1]) == -1


@pytest.mark.parametrize("wanted", [0, 1], ids=["x", "up"])
def test_one_gradient_alone_has_the_same_bits(activation: ModuleType, gate: str, wanted: int) -> None:
    call = tier.gated(activation)[gate]
    leaves, grad = [draw(70, 257), draw(70, 257, seed=2)], draw(70, 257, seed=3)
    both = results(call, *leaves, grad)[1:]
    leaves[wanted].requires_grad_()
    (alone,) = torch.autograd.grad(call(*leaves), leaves[wanted], grad)
    assert torch.equal(alone, both[wanted])


def test_backward_keeps_the_inputs_alone(activation: ModuleType) -> None:
    """What it needs it computes anew: no tensor of the size of y is kept."""
    x, up = draw(4, 8).requires_grad_(), draw(4, 8).requires_grad_()
    saved = activation.silu_and_mul(x, up).grad_fn.saved_tensors
    assert {t.data_ptr() for t in saved} == {x.data_ptr(), up.data_ptr()}


@pytest.mark.usefixtures("threads")
@dtypes
@pytest.mark.parametrize("shape", [(1027, 514), (200_002,), (20_000, 2)], ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(
    activation: ModuleType, gate: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x, grad = draw(*shape, dtype=dtype), draw(*shape[:-1], shape[-1] // 2, dtype=dtype, seed=2)
    found = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        found.append(results(tier.gated(activation)[gate], x, grad))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.usefixtures("threads")
def test_a_forked_child_goes_on_with_one_thread(activation: ModuleType) -> None:
    """As a worker of a DataLoader does. With more, libgomp itself stops after a fork, under torch's ops too."""
    torch.set_num_threads(2)
    x, grad = draw(512, 1024), draw(512, 512, seed=2)
    expected = results(activation.silu_and_mul, x, grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            y = activation.silu_and_mul(x)
            dx, _ = activation.functional.ops.silu_and_mul_backward(grad, x, None, True, False)
            code = 0 if all(map(torch.equal, (y, dx), expected)) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# Layout


@pytest.mark.parametrize("columns", [*range(1, 70), 320, 640, 1000, 1408, 2047, 2048, 2049, 2816, 3333, 4095, 4096])
def test_every_width_is_right(activation: ModuleType, columns: int) -> None:
    """C20: widths such as 320, 640, 1408 and 2816 were wrong or NaN."""
    x, grad = draw(3, 2 * columns, dtype=torch.bfloat16), draw(3, columns, dtype=torch.bfloat16, seed=2)
    assert_right(activation.silu_and_mul, GATED_REFERENCES["silu"], x, grad)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    **views.VIEWS,
    "one element repeated everywhere (N11)": lambda x: x[:1].expand(5, 40),
    "last dims of a swapped batch": lambda x: x.reshape(2, 32, 48).transpose(1, 2),
}


@dtypes
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_are_right_and_results_contiguous(
    activation: ModuleType, view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    x, up, grad = (view(draw(64 * 48, dtype=dtype, seed=seed)) for seed in range(3))
    assert_right(activation.gelu, REFERENCES["gelu"], x, grad)
    assert_right(activation.silu_and_mul, GATED_REFERENCES["silu"], x, up, grad)
    assert_right(activation.silu_and_mul, GATED_REFERENCES["silu"], x, up.contiguous(), grad)
    half = x.shape[-1] // 2
    assert_right(activation.silu_and_mul, GATED_REFERENCES["silu"], x[..., : 2 * half], grad[..., :half])


@dtypes
def test_halves_of_one_tensor_are_right(activation: ModuleType, gate: str, dtype: torch.dtype) -> None:
    """C02: x (2, 128, 1536), its first half chunked off; the gradient goes back to the whole."""
    whole, grad = draw(2, 128, 1536, dtype=dtype), draw(2, 128, 768, dtype=dtype, seed=2)
    call = tier.gated(activation)[gate]
    by_halves = results(lambda x: call(*x.chunk(2, -1)), whole, grad)
    assert all(map(torch.equal, by_halves, results(call, whole, grad)))
    half = whole.chunk(2, -1)[0]
    assert torch.equal(activation.gelu(half), activation.gelu(half.contiguous()))


def test_rows_with_one_stride_are_not_copied(activation: ModuleType) -> None:
    x = torch.randn(6, 5, 100)
    for view in (x[..., 7:47], x[0, :, 3:43], x[::2, 1:2, :40], x[0, 0, :40].expand(9, 40)):
        assert "aten::clone" not in operators(activation.gelu, view)
        assert "aten::clone" not in operators(activation.silu_and_mul, view)
        assert "aten::clone" not in operators(activation.silu_and_mul, view, view)
    assert "aten::clone" in operators(activation.gelu, x.transpose(0, 1)[..., :40])


def test_offsets_beyond_32_bits_are_right(activation: ModuleType) -> None:
    """N18: rows in front of and behind element 2**31, in x and in y."""
    columns = 512
    near = draw(2, 2 * columns, dtype=torch.bfloat16), draw(2, columns, dtype=torch.bfloat16, seed=2)
    far = [
        torch.empty(2**31 + 2 * t.shape[1], dtype=torch.bfloat16)  # untouched pages cost no memory
        .as_strided(t.shape, (2**31 + t.shape[1], 1))
        .copy_(t)
        for t in near
    ]
    expected = results(activation.silu_and_mul, *near)
    assert all(map(torch.equal, results(activation.silu_and_mul, *far), expected))

    rows = 2**31 // columns + 1
    y = activation.silu_and_mul(near[0][:1].expand(rows, 2 * columns))
    assert torch.equal(y[-2:], expected[0][:1].expand(2, columns))


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 6), (2, 0, 0)], ids=str)
def test_empty_inputs_give_empty_outputs(activation: ModuleType, shape: tuple[int, ...]) -> None:
    """N34."""
    half = (*shape[:-1], shape[-1] // 2)
    for call, wanted in ((activation.gelu, shape), (activation.silu_and_mul, half)):
        y, dx = results(call, torch.empty(shape), torch.empty(wanted))
        assert y.shape == wanted
        assert dx.shape == shape
    assert activation.silu_and_mul(torch.empty(shape), torch.empty(shape)).shape == shape


# Errors


def other(x: Tensor, *shape: int) -> Tensor:
    return torch.ones(shape, device=x.device)


BAD_CALLS: dict[str, tuple[str, Callable[[Any, Tensor], object], str]] = {
    "x of doubles": ("silu", lambda op, x: op(x.double()), "silu: x is Double"),
    "x of integers": ("gelu", lambda op, x: op(x.long()), "gelu: x is Long"),
    "packed x of doubles": ("silu_and_mul", lambda op, x: op(x.double()), "silu_and_mul: x is Double"),
    "packed x without dims": ("silu_and_mul", lambda op, x: op(x[0, 0]), "silu_and_mul: x has no dims"),
    "an odd number of columns": (
        "gelu_and_mul",
        lambda op, x: op(x[:, :7]),
        "gelu_and_mul: last dim of x has 7 elements, must be even",
    ),
    "up of another shape": (
        "silu_and_mul",
        lambda op, x: op(x, x[:3]),
        r"silu_and_mul: up has shape \(3, 8\), must be the shape of x, \(4, 8\)",
    ),
    "up that would be repeated": (
        "silu_and_mul",
        lambda op, x: op(x, other(x, 8)),
        r"silu_and_mul: up has shape \(8,?\)",
    ),
    "up of another dtype": (
        "gelu_and_mul",
        lambda op, x: op(x, x.half()),
        "gelu_and_mul: up is Half, must be the dtype of x, Float",
    ),
    "up on another device": (
        "silu_and_mul",
        lambda op, x: op(x, torch.ones(4, 8, device="meta" if x.is_cpu else "cpu")),
        "silu_and_mul: up is on meta.* device of x, cpu",
    ),
    "x on another device": (
        "silu_and_mul",
        lambda op, x: op(x.to("meta"), torch.ones(4, 8)),
        "silu_and_mul: up is on cpu.* device of x, meta",
    ),
}


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("function", "call", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(
    activation: ModuleType, function: str, call: Callable[[Any, Tensor], object], message: str, *, grad_mode: bool
) -> None:
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=message):
        call(getattr(activation, function), torch.ones(4, 8))


@pytest.mark.parametrize("which", BAD_CALLS)
def test_a_bad_argument_is_refused_without_data_too(activation: ModuleType, which: str) -> None:
    """Tracing sees shapes and dtypes alone; what it lets through would fail when the compiled code runs."""
    function, call, _ = BAD_CALLS[which]
    with pytest.raises(RuntimeError, match=f"{function}: (x|up|last dim of x) "):
        call(getattr(activation, function), torch.ones(4, 8, device="meta"))


def test_an_unknown_approximation_is_named(activation: ModuleType) -> None:
    for name in ("gelu", "gelu_and_mul"):
        with pytest.raises(ValueError, match=f'^{name}: approximate is \'erf\', must be "none" or "tanh"'):
            getattr(activation, name)(torch.ones(4), approximate="erf")


def test_an_argument_of_another_type_is_named(activation: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"^silu: x is \[1.0\], must be a tensor$"):
        activation.silu([1.0])
    with pytest.raises(TypeError, match="^gelu_and_mul: up is 'tanh', must be a tensor or None$"):
        activation.gelu_and_mul(torch.ones(4), "tanh")


BAD_GRADIENTS: dict[str, tuple[Callable[[Tensor], tuple[Any, ...]], str]] = {
    "of another dtype": (
        lambda x: (x.half(), x, x, True, True),
        "grad is (Half|torch.float16), must be the dtype of x",
    ),
    "of another shape": (lambda x: (x[:3], x, x, True, True), r"grad has shape \(3, 8\)"),
    "of the shape of packed x": (
        lambda x: (x, x, None, True, False),
        r"grad has shape \(4, 8\), must be the shape of a half of x",
    ),
    "of up, which there is not": (lambda x: (x[:, :4], x, None, True, True), "want_dup is true without up"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("arguments", "message"), BAD_GRADIENTS.values(), ids=BAD_GRADIENTS.keys())
def test_a_bad_gradient_is_named_with_its_value(
    activation: ModuleType, arguments: Callable[[Tensor], tuple[Any, ...]], message: str, device: str
) -> None:
    with pytest.raises(RuntimeError, match=f"silu_and_mul_backward: {message}"):
        activation.functional.ops.silu_and_mul_backward(*arguments(torch.ones(4, 8, device=device)))


def test_a_gradient_of_another_shape_is_refused(activation: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=r"gelu_backward: grad has shape \(3, 8\), must be the shape of x, \(4, 8\)"):
        activation.functional.ops.gelu_backward(torch.ones(3, 8), torch.ones(4, 8))


ALL = ("silu", "gelu", "gelu_tanh", "quick_gelu", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")


def raw(activation: ModuleType, op: str) -> Callable[[Tensor], Tensor]:
    """Call a raw op with one tensor."""
    found = getattr(activation.functional.ops, op)
    return (lambda x: found(x, None)) if op.endswith("_and_mul") else found


def public(activation: ModuleType, op: str) -> Callable[[Tensor], Tensor]:
    """Call the function of a raw op with one tensor."""
    if "_tanh" in op:
        return functools.partial(getattr(activation, op.replace("_tanh", "")), approximate="tanh")
    call: Callable[[Tensor], Tensor] = getattr(activation, op)
    return call


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("through", [public, raw], ids=["function", "raw op"])
@pytest.mark.parametrize("op", ALL)
def test_second_derivatives_raise(
    activation: ModuleType, op: str, through: Callable[..., Callable[[Tensor], Tensor]], *, allow_unused: bool
) -> None:
    """None in place of a second derivative would be taken for zero."""
    x = draw(4, 8).requires_grad_()
    (dx,) = torch.autograd.grad(through(activation, op)(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{op} has no second derivative"):
        torch.autograd.grad(dx.sum(), x, allow_unused=allow_unused)


# torch around the op


def leaf(*shape: int) -> Tensor:
    return draw(*shape).requires_grad_()


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    **{f"forward of {op}": (op, lambda: (leaf(4, 33),)) for op in ALL[:4]},
    **{f"forward of {op}": (op, lambda: (leaf(4, 34), None)) for op in ALL[4:]},
    **{f"forward of {op} apart": (op, lambda: (leaf(4, 33), leaf(4, 33))) for op in ALL[4:]},
    **{f"backward of {op}": (f"{op}_backward", lambda: (draw(4, 33), draw(4, 33))) for op in ALL[:4]},
    **{
        f"backward of {op}": (f"{op}_backward", lambda: (draw(4, 17), draw(4, 34), None, True, False)) for op in ALL[4:]
    },
    **{
        f"backward of {op} apart, dup alone": (
            f"{op}_backward",
            lambda: (draw(4, 34), draw(4, 34), draw(4, 34), False, True),
        )
        for op in ALL[4:]
    },
    "forward of a view": ("gelu", lambda: (draw(9, 4).t().requires_grad_(),)),
    "forward of no dims": ("gelu", lambda: (leaf(),)),
    "forward of half of a chunk": ("silu_and_mul", lambda: (*draw(4, 32).chunk(2, -1),)),
    "forward of no rows": ("silu_and_mul", lambda: (leaf(0, 8), None)),
    "backward of no rows": ("silu_and_mul_backward", lambda: (draw(0, 4), draw(0, 8), None, True, False)),
}


@pytest.mark.parametrize(("op", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(activation: ModuleType, op: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    found = getattr(activation.functional.ops, op).default
    assert set(torch.library.opcheck(found, arguments()).values()) == {"SUCCESS"}


@dtypes
def test_compiled_is_eager_bit_for_bit(activation: ModuleType, dtype: torch.dtype) -> None:
    """N43, C11: numbers changed under compile, several shapes threw."""

    def model(x: Tensor, up: Tensor) -> Tensor:
        y: Tensor = activation.silu_and_mul(x, up)
        y = activation.gelu(activation.quick_gelu(activation.silu(y)))
        y = activation.gelu(y, approximate="tanh")
        gated: Tensor = activation.gelu_and_mul(y, approximate="tanh")
        return gated

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True)
    for shape in [(4, 34), (7, 34), (2, 3, 64)]:
        x, up = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=2)
        grad = draw(*shape[:-1], shape[-1] // 2, dtype=dtype, seed=3)
        eager = results(model, x, up, grad)
        assert all(map(torch.equal, results(compiled, x, up, grad), eager))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_leaves_the_dtype_of_x(activation: ModuleType, dtype: torch.dtype) -> None:
    x, grad = draw(4, 66, dtype=dtype), draw(4, 33, dtype=dtype, seed=2)
    with torch.autocast("cpu", torch.bfloat16):
        inside = results(activation.silu_and_mul, x, grad)
    assert inside[0].dtype == dtype
    assert all(map(torch.equal, inside, results(activation.silu_and_mul, x, grad)))


def test_torch_func_is_refused_by_name(activation: ModuleType) -> None:
    x = draw(4, 34)
    for transformed in (
        torch.func.grad(lambda x: activation.silu_and_mul(x).sum()),
        torch.func.vmap(activation.silu_and_mul),
    ):
        with pytest.raises(NotImplementedError, match="silu_and_mul: torch.func transforms"):
            transformed(x)


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_forward_mode_is_refused_and_no_tangent_is_dropped(activation: ModuleType, *, grad_mode: bool) -> None:
    x = draw(4, 34)
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
        for call in (activation.gelu, activation.silu_and_mul):
            with pytest.raises(RuntimeError, match="jvp"):
                call(dual)


def test_inference_mode_gives_the_same_bits(activation: ModuleType) -> None:
    x = draw(4, 34)
    expected = activation.silu_and_mul(x.requires_grad_())
    with torch.inference_mode():
        assert torch.equal(activation.silu_and_mul(x), expected)
    with torch.no_grad():
        assert not activation.silu_and_mul(x).requires_grad


# Tiers


class InDouble:
    """The functions of the package in float64, as the script of a tier wants them."""

    silu = staticmethod(REFERENCES["silu"])
    gelu = staticmethod(gelu.reference)
    quick_gelu = staticmethod(REFERENCES["quick_gelu"])
    silu_and_mul = staticmethod(silu_and_mul.reference)
    gelu_and_mul = staticmethod(gelu_and_mul.reference)

    @staticmethod
    def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Any:  # noqa: ANN401
        return rope.reference(q.double(), k.double(), cos.double(), sin.double(), interleaved=interleaved)


@functools.cache
def in_double_of_tier(dtype: torch.dtype, size: int) -> dict[str, tuple[Tensor, ...]]:
    """The results of the script in float64, of the same numbers."""
    return dict(tier.small_results(InDouble, dtype, size, torch.float64))  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", TIERS)
@dtypes
def test_every_tier_is_right_for_every_tail(results_in_tier: InTier, isa: str, dtype: torch.dtype) -> None:
    for size in SIZES:
        expected = in_double_of_tier(dtype, size)
        found = results_in_tier("activation", isa)[f"{dtype} {size}"]
        assert found.keys() == expected.keys()
        for which, wanted in expected.items():
            names = ("output",) * 2 + ("x",) * 2 if which.startswith("rope") else ("output", "x", "up")
            for part, a, b in zip(names, found[which], wanted, strict=False):
                bound = tolerance(dtype, part)
                assert_within(a, b, bound if "rope" not in which else rope_tolerance(dtype))


def rope_tolerance(dtype: torch.dtype) -> Tolerance:
    """Angles are below 12 there, where those of the case are below 1."""
    bound = rope.tolerance((), dtype, "output")
    return type(bound)(bound.relative, 12 * bound.absolute)
