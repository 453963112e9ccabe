"""The op rms_norm. N and C numbers are reports from the field of what went wrong elsewhere."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernels
import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tests.cases.rms_norm import CASE, EPS, reference
from tests.ops import rms_norm_tier as tier
from tests.ops.compare import assert_same_bits, assert_within
from tests.ops.kernelized import kernelized
from tests.ops.sweep import SIZES
from tests.ops.tiers import TIERS
from tests.ops.views import VIEWS, operators

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.ops.conftest import InTier


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

F = nn.functional
DTYPES = [getattr(torch, name) for name in CASE.dtypes]
SHAPES = {name: shape for name, shape in CASE.shapes.items() if math.prod(shape) < 2**24}


def in_double(x: Tensor, weight: Tensor, grad: Tensor, **options: float) -> tuple[Tensor, ...]:
    """Compute y, dx and dweight in float64."""
    x, weight = (t.detach().double().requires_grad_() for t in (x, weight))
    y = reference(x, weight, **options)
    return (y.detach(), *torch.autograd.grad(y, (x, weight), grad.double()))


def run(op: Callable[..., Tensor], x: Tensor, weight: Tensor, grad: Tensor, **options: float) -> tuple[Tensor, ...]:
    """Compute y, dx and dweight with the op."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = op(x, weight, **options)
    return (y.detach(), *torch.autograd.grad(y, (x, weight), grad))


def assert_right(rms_norm: ModuleType, x: Tensor, weight: Tensor, grad: Tensor, **options: float) -> None:
    results = run(rms_norm.rms_norm, x, weight, grad, **options)
    for name, actual, expected in zip(
        ("output", "x", "weight"), results, in_double(x, weight, grad, **options), strict=True
    ):
        dtype = weight.dtype if name == "weight" else x.dtype
        assert actual.dtype == dtype
        assert actual.is_contiguous()
        assert_within(actual, expected, CASE.tolerance(tuple(x.shape), dtype, name))


def inputs(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Draw x, weight and the gradient of y."""
    generator = torch.Generator().manual_seed(1)
    arguments = CASE.make(shape, dtype, generator)
    return arguments["x"], arguments["weight"], torch.randn(shape, generator=generator).to(dtype)


# Numbers


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_output_and_gradients_are_float64_rounded(
    rms_norm: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    assert_right(rms_norm, *inputs(*shape, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_half_types_are_one_ulp_from_float64(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    """C03: a user could not tell whether a change of logits was a bug."""
    x, weight, _ = inputs(512, 1024, dtype=dtype)
    y = rms_norm.rms_norm(x, weight)
    expected = reference(x.double(), weight.double()).to(dtype)
    assert (y.view(torch.int16).int() - expected.view(torch.int16).int()).abs().max() <= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_a_float32_weight_serves_half_types(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    x, weight, grad = inputs(33, 129, dtype=dtype)
    assert_right(rms_norm, x, weight.float() + 1e-4, grad)


def test_weight_offset_is_added_in_float32(rms_norm: ModuleType) -> None:
    """N25: in bfloat16 1 + 0.00390625 is 1."""
    x, _, grad = inputs(6, 2, dtype=torch.bfloat16)
    weight = torch.tensor([0.00390625, 15.8125], dtype=torch.bfloat16)
    assert_right(rms_norm, x, weight, grad, eps=EPS, weight_offset=1.0)
    y = rms_norm.rms_norm(torch.ones(1, 2), weight.float(), 0.0, weight_offset=1.0)
    assert y.tolist() == [[1.00390625, 16.8125]]


def test_no_weight_is_a_weight_of_ones(rms_norm: ModuleType) -> None:
    """N37: a norm without affine weights failed later."""
    x, _, grad = inputs(9, 33)
    x.requires_grad_()
    y = rms_norm.rms_norm(x)
    (dx,) = torch.autograd.grad(y, x, grad)
    expected, expected_dx, _ = run(rms_norm.rms_norm, x, torch.ones(33), grad)
    assert torch.equal(y, expected)
    assert torch.equal(dx, expected_dx)


@pytest.mark.parametrize("wanted", ["x", "weight"])
def test_one_gradient_alone_has_the_same_bits(rms_norm: ModuleType, wanted: str) -> None:
    x, weight, grad = inputs(70, 257)
    _, *both = run(rms_norm.rms_norm, x, weight, grad)
    leaf = (x if wanted == "x" else weight).requires_grad_()
    (alone,) = torch.autograd.grad(rms_norm.rms_norm(x, weight), leaf, grad)
    assert torch.equal(alone, both[0 if wanted == "x" else 1])


def test_statistics_are_saved_in_float32(rms_norm: ModuleType) -> None:
    """N42: a reciprocal root in bfloat16 ruined the gradient."""
    x, weight, _ = inputs(4, 64, dtype=torch.bfloat16)
    saved = rms_norm.rms_norm(x.requires_grad_(), weight).grad_fn.saved_tensors
    assert [t.dtype for t in saved] == [torch.bfloat16, torch.bfloat16, torch.float32]


@pytest.mark.parametrize("value", [1e19, 3e38, 1e-19, 1e-30, 1e-38])
def test_rows_of_any_magnitude_have_unit_mean_square(rms_norm: ModuleType, value: float) -> None:
    """N39: 1e19 squared overflows float32, 1e-30 squared vanishes."""
    y = rms_norm.rms_norm(torch.full((2, 100), value), eps=0.0)
    torch.testing.assert_close(y, torch.ones(2, 100), rtol=1e-6, atol=0)


def test_gradients_of_huge_rows_are_right(rms_norm: ModuleType) -> None:
    """With eps = 0 a scaled row and gradient scale dweight and leave y and dx."""
    x, weight, grad = inputs(4, 50)
    y, dx, dweight = run(rms_norm.rms_norm, x * 2.0**64, weight, grad * 2.0**64, eps=0.0)
    expected = run(rms_norm.rms_norm, x, weight, grad, eps=0.0)
    torch.testing.assert_close((y, dx, dweight / 2.0**64), expected)


def test_a_spike_beside_small_values_is_right(rms_norm: ModuleType) -> None:
    """N39."""
    x, weight, grad = inputs(3, 200)
    x[:, 77] = 1e19
    assert_right(rms_norm, x, weight, grad)


def test_long_rows_lose_no_accuracy(rms_norm: ModuleType) -> None:
    """Each float addition of 1.1 onto a long sum rounds the same way."""
    y = rms_norm.rms_norm(torch.full((1, 2**24), math.sqrt(1.1)))
    torch.testing.assert_close(y, torch.ones_like(y), rtol=2e-6, atol=0)


def test_zero_rows_give_zero(rms_norm: ModuleType) -> None:
    """N39: an all-zero row was 0/0."""
    x = torch.zeros(3, 40)
    y, dx, dweight = run(rms_norm.rms_norm, x, torch.ones(40), torch.ones_like(x))
    assert torch.equal(y, x)
    assert torch.equal(dx, torch.full_like(x, 1 / math.sqrt(EPS)))
    assert torch.equal(dweight, torch.zeros(40))


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_stay_in_their_row(rms_norm: ModuleType, value: float, dtype: torch.dtype) -> None:
    x, weight, _ = inputs(5, 70, dtype=dtype)
    clean = rms_norm.rms_norm(x, weight)
    x[2, 33] = value
    y = rms_norm.rms_norm(x, weight)
    torch.testing.assert_close(y[2], F.rms_norm(x[2].float(), (70,), weight.float(), EPS).to(dtype), equal_nan=True)
    assert torch.equal(y[[0, 1, 3, 4]], clean[[0, 1, 3, 4]])


def test_nan_in_a_gradient_stays_in_its_row_and_column(rms_norm: ModuleType) -> None:
    x, weight, grad = inputs(5, 70)
    grad[2, 33] = math.nan
    _, dx, dweight = run(rms_norm.rms_norm, x, weight, grad)
    assert dx.isnan().any(1).tolist() == [False, False, True, False, False]
    assert dweight.isnan().nonzero().tolist() == [[33]]


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
        results.append(run(rms_norm.rms_norm, *arguments))
    for other, name in itertools.product(results[1:], range(3)):
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
    weight = torch.randn(2 * x.shape[-1], generator=generator).to(dtype)[::2]
    assert_right(rms_norm, x, weight, grad)


def test_rows_with_one_stride_are_not_copied(rms_norm: ModuleType) -> None:
    x = torch.randn(6, 5, 100)
    weight = torch.ones(40)
    for view in (x[..., 7:47], x[0, :, 3:43], x[::2, 1:2, :40], x[0, 0, :40].expand(9, 40)):
        assert "aten::clone" not in operators(rms_norm.rms_norm, view, weight)
    assert "aten::clone" in operators(rms_norm.rms_norm, x.transpose(0, 1)[..., :40], weight)


def test_offsets_beyond_32_bits_are_right(rms_norm: ModuleType) -> None:
    """N18: rows in front of and behind element 2**31, in x and in y."""
    columns = 512
    near = inputs(2, columns, dtype=torch.bfloat16)
    weight = near[1]
    x, grad = (
        torch.empty(2**31 + 2 * columns, dtype=torch.bfloat16)  # untouched pages cost no memory
        .as_strided((2, columns), (2**31 + columns, 1))
        .copy_(t)
        for t in (near[0], near[2])
    )
    assert all(map(torch.equal, run(rms_norm.rms_norm, x, weight, grad), run(rms_norm.rms_norm, *near)))

    rows = 2**31 // columns + 1
    y = rms_norm.rms_norm(x[:1].expand(rows, columns), weight)
    assert torch.equal(y[-2:], y[:1].expand(2, columns))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0), (2, 0, 7), (2, 0, 0)], ids=str)
def test_empty_inputs_give_empty_outputs_and_zero_weight_gradients(
    rms_norm: ModuleType, shape: tuple[int, ...]
) -> None:
    """N34."""
    y, dx, dweight = run(rms_norm.rms_norm, torch.empty(shape), torch.ones(shape[-1]), torch.empty(shape))
    assert y.shape == dx.shape == shape
    assert torch.equal(dweight, torch.zeros(shape[-1]))


# Errors


BAD_CALLS: dict[str, tuple[Callable[[Any, Tensor], object], str]] = {
    "x without dims": (lambda op, x: op(x[0, 0]), "rms_norm: x has no dims"),
    "x of doubles": (lambda op, x: op(x.double()), "rms_norm: x is Double"),
    "x of integers": (lambda op, x: op(x.long()), "rms_norm: x is Long"),
    "weight too long": (
        lambda op, x: op(x, torch.ones(9, device=x.device)),
        "rms_norm: weight has 9 elements, last dim of x has 8",
    ),
    "weight with two dims": (lambda op, x: op(x, x), r"rms_norm: weight has shape \(4, 8\)"),
    "weight of another half type": (
        lambda op, x: op(x.half(), torch.ones(8, device=x.device).bfloat16()),
        "rms_norm: weight is BFloat16.* dtype of x, Half",
    ),
    "weight on another device": (
        lambda op, x: op(x, torch.ones(8, device="meta" if x.is_cpu else "cpu")),
        "rms_norm: weight is on meta.* device of x, cpu",
    ),
    "x on another device": (
        lambda op, x: op(x.to("meta"), torch.ones(8)),
        "rms_norm: weight is on cpu.* device of x, meta",
    ),
    "negative eps": (lambda op, x: op(x, None, -1.0), "rms_norm: eps is -1,"),
    "eps that is no number": (lambda op, x: op(x, None, math.nan), "rms_norm: eps is nan,"),
    "offset without weight": (lambda op, x: op(x, weight_offset=1.0), "rms_norm: weight_offset is 1"),
    "offset that is no number": (
        lambda op, x: op(x, torch.ones(8, device=x.device), weight_offset=math.nan),
        "rms_norm: weight_offset is nan,",
    ),
}


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("call", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(
    rms_norm: ModuleType, call: Callable[[Any, Tensor], object], message: str, *, grad_mode: bool
) -> None:
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=message):
        call(rms_norm.rms_norm, torch.ones(4, 8))


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_argument_is_refused_without_data_too(rms_norm: ModuleType, name: str) -> None:
    """Tracing sees shapes and dtypes alone; what it lets through would fail when the compiled code runs."""
    with pytest.raises(RuntimeError, match="rms_norm: (x|weight|eps|weight_offset) "):
        BAD_CALLS[name][0](rms_norm.rms_norm, torch.ones(4, 8, device="meta"))


BAD_GRADIENTS: dict[str, tuple[Callable[[Tensor, Tensor], tuple[Tensor, Tensor, bool]], str]] = {
    "grad of another dtype": (lambda g, r: (g.half(), r, False), "grad is .*(Half|float16)"),
    "grad of another shape": (lambda g, r: (g[:3], r, False), r"grad has shape \(3, 8\)"),
    "too few statistics": (lambda g, r: (g, r[:3], False), r"rstd has shape \(3,?\), must be that of x, \(4, 8\), but"),
    "statistics of another shape": (lambda g, r: (g, r.view(2, 2), False), r"rstd has shape \(2, 2\), must be"),
    "statistics of another dtype": (lambda g, r: (g, r.half(), False), "rstd is .*, must be [Ff]loat"),
    "statistics with gaps": (lambda g, r: (g, r.repeat(2)[::2], False), "rstd is not contiguous"),
    "a gradient of no weight": (lambda g, r: (g, r, True), "want_dweight is true without a weight"),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("change", "message"), BAD_GRADIENTS.values(), ids=BAD_GRADIENTS.keys())
def test_a_bad_gradient_is_named_with_its_value(
    rms_norm: ModuleType, device: str, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, bool]], message: str
) -> None:
    x = torch.ones(4, 8, device=device)
    grad, rstd, want_dweight = change(x, torch.ones(4, device=device))
    with pytest.raises(RuntimeError, match=f"rms_norm_backward: {message}"):
        rms_norm.functional.ops.rms_norm_backward(grad, x, None, rstd, 0.0, True, want_dweight)


def test_statistics_on_another_device_are_refused(rms_norm: ModuleType) -> None:
    x = torch.ones(4, 8, device="meta")
    with pytest.raises(RuntimeError, match="rstd is on cpu, must be on the device of x, meta"):
        rms_norm.functional.ops.rms_norm_backward(x, x, None, torch.ones(4), 0.0, True, False)


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("through", ["function", "raw op"])
def test_second_derivatives_raise(rms_norm: ModuleType, through: str, *, allow_unused: bool) -> None:
    """None in place of a second derivative would be taken for zero."""
    x, weight, _ = inputs(4, 8)
    x.requires_grad_()
    raw = rms_norm.functional.ops.rms_norm
    y = rms_norm.rms_norm(x, weight) if through == "function" else raw(x, weight, EPS, 0.0)[0]
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="rms_norm has no second derivative"):
        torch.autograd.grad(dx.sum(), x, allow_unused=allow_unused)


# torch around the op


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "forward": ("rms_norm", lambda: (*(t.requires_grad_() for t in inputs(4, 33)[:2]), EPS, 0.5)),
    "forward without weight": ("rms_norm", lambda: (inputs(4, 33)[0].requires_grad_(), None, EPS, 0.0)),
    "forward of a view": ("rms_norm", lambda: (torch.ones(9, 4).t().requires_grad_(), None, EPS, 0.0)),
    "backward": (
        "rms_norm_backward",
        lambda: (*(torch.ones(4, 9),) * 2, torch.ones(9), torch.ones(4), 0.0, True, True),
    ),
    "backward, dx alone": (
        "rms_norm_backward",
        lambda: (*(torch.ones(4, 9),) * 2, None, torch.ones(4), 0.0, True, False),
    ),
    "backward, dweight alone, of another dtype": (
        "rms_norm_backward",
        lambda: (*(torch.ones(4, 9).bfloat16(),) * 2, torch.ones(9), torch.ones(4), 0.0, False, True),
    ),
    "forward of no rows": ("rms_norm", lambda: (torch.ones(0, 9), torch.ones(9), EPS, 0.0)),
    "backward of no rows": (
        "rms_norm_backward",
        lambda: (*(torch.ones(0, 9),) * 2, torch.ones(9), torch.ones(0), 0.0, True, True),
    ),
}


@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(rms_norm: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    op = getattr(rms_norm.functional.ops, name).default
    assert set(torch.library.opcheck(op, arguments()).values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_compiled_is_eager_bit_for_bit(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    """N43, C11: numbers changed under compile, several shapes threw."""
    torch.compiler.reset()
    compiled = torch.compile(rms_norm.rms_norm, fullgraph=True)
    for shape in [(4, 33), (7, 33), (2, 3, 64)]:
        arguments = inputs(*shape, dtype=dtype)
        eager = run(rms_norm.rms_norm, *arguments)
        assert all(map(torch.equal, run(compiled, *arguments), eager))


def test_a_compiled_model_around_the_op_is_right(rms_norm: ModuleType) -> None:
    def model(x: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
        y: Tensor = rms_norm.rms_norm(x * 2, weight, weight_offset=1.0)
        return (y * grad).sum()

    torch.compiler.reset()
    x, weight, grad = inputs(4, 33)
    x.requires_grad_()
    weight.requires_grad_()
    eager = torch.autograd.grad(model(x, weight, grad), (x, weight))
    compiled = torch.autograd.grad(torch.compile(model, fullgraph=True)(x, weight, grad), (x, weight))
    torch.testing.assert_close(compiled, eager)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_leaves_the_dtype_of_x(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    x, weight, grad = inputs(4, 33, dtype=dtype)
    weight = weight.float()
    with torch.autocast("cpu", torch.bfloat16):
        inside = run(rms_norm.rms_norm, x, weight, grad)
    assert inside[0].dtype == dtype
    assert all(map(torch.equal, inside, run(rms_norm.rms_norm, x, weight, grad)))


def test_torch_func_is_refused_by_name(rms_norm: ModuleType) -> None:
    x, weight, _ = inputs(4, 33)
    for transformed in (
        torch.func.grad(lambda x: rms_norm.rms_norm(x, weight).sum()),
        torch.func.vmap(rms_norm.rms_norm),
    ):
        with pytest.raises(NotImplementedError, match="rms_norm: torch.func transforms"):
            transformed(x)


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_forward_mode_is_refused_and_no_tangent_is_dropped(rms_norm: ModuleType, *, grad_mode: bool) -> None:
    x, weight, _ = inputs(4, 33)
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="jvp"):
            rms_norm.rms_norm(dual, weight)


def test_inference_mode_gives_the_same_bits(rms_norm: ModuleType) -> None:
    x, weight, _ = inputs(4, 33)
    expected = rms_norm.rms_norm(x.requires_grad_(), weight)
    with torch.inference_mode():
        assert torch.equal(rms_norm.rms_norm(x, weight), expected)
    with torch.no_grad():
        assert not rms_norm.rms_norm(x, weight).requires_grad


# Layers


@kernels.use_kernel_forward_from_hub("TorchRMSNorm")
class TorchRMSNorm(nn.RMSNorm):
    """nn.RMSNorm that `kernelize` may replace."""


@kernels.use_kernel_forward_from_hub("HubLlamaRMSNorm")
class HubLlamaRMSNorm(LlamaRMSNorm):
    """Llama's, marked here: transformers marks it for some versions of kernels only."""


MODULES: dict[str, Callable[[], TorchRMSNorm]] = {
    "one dim": lambda: TorchRMSNorm(24, eps=1e-3),
    "two dims": lambda: TorchRMSNorm((4, 6), eps=1e-3),
    "no weight": lambda: TorchRMSNorm(24, elementwise_affine=False),
    "two dims, no weight": lambda: TorchRMSNorm((4, 6), elementwise_affine=False),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES.keys())
def test_kernelize_keeps_what_torch_rms_norm_computes(
    rms_norm_repo: Path, make: Callable[[], TorchRMSNorm], dtype: torch.dtype, *, compiled: bool
) -> None:
    torch.compiler.reset()
    theirs, ours = make().to(dtype), kernelized(make().to(dtype), {"TorchRMSNorm": "RMSNorm"}, rms_norm_repo)
    forward = torch.compile(ours, fullgraph=True) if compiled else ours
    x = (1e-3 * inputs(5, *theirs.normalized_shape)[0]).to(dtype)  # small: eps decides
    torch.testing.assert_close(forward(x), theirs(x))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_kernelize_keeps_what_llama_rms_norm_computes(
    rms_norm_repo: Path, dtype: torch.dtype, *, compiled: bool
) -> None:
    """A training step too. Theirs rounds twice, and its gradients in between."""
    rounding = torch.finfo(dtype).eps + 4 * torch.finfo(torch.float32).eps
    for weight_dtype in (dtype, torch.float32):
        torch.compiler.reset()
        theirs = LlamaRMSNorm(64).to(weight_dtype)
        ours = kernelized(HubLlamaRMSNorm(64).to(weight_dtype), {"HubLlamaRMSNorm": "LlamaRMSNorm"}, rms_norm_repo)
        forward = torch.compile(ours, fullgraph=True) if compiled else ours
        x = inputs(2, 3, 64, dtype=dtype)[0]
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = forward(a), theirs(b)
        torch.testing.assert_close(y, expected, rtol=rounding, atol=0)
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
        dx, dweight = torch.autograd.grad(y, (a, ours.get_parameter("weight")), grad)
        their_dx, their_dweight = torch.autograd.grad(expected, (b, theirs.weight), grad)
        assert dweight.dtype == weight_dtype
        torch.testing.assert_close(dx, their_dx, rtol=rounding, atol=8 * rounding)
        torch.testing.assert_close(dweight, their_dweight, rtol=2 * rounding, atol=16 * rounding)


def test_the_layer_refuses_a_shape_that_does_not_end_right(rms_norm_repo: Path) -> None:
    """As many elements in another order would be normalized without a word."""
    layer = kernelized(TorchRMSNorm((4, 6)), {"TorchRMSNorm": "RMSNorm"}, rms_norm_repo)
    with pytest.raises(ValueError, match=r"x has shape \(2, 6, 4\), must end in \(4, 6\)"):
        layer(torch.ones(2, 6, 4))


# Tiers


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_every_tier_is_right_for_every_tail(results_in_tier: InTier, isa: str, dtype: torch.dtype) -> None:
    for columns in SIZES:
        results = results_in_tier("rms_norm", isa)[f"{dtype} {columns}"]
        expected = in_double(*tier.inputs(dtype, columns))
        for name, a, b in zip(("output", "x", "weight"), results, expected, strict=True):
            assert_within(a, b, CASE.tolerance((tier.ROWS, columns), dtype, name))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_every_tier_rounds_every_kind_of_float_to_even(results_in_tier: InTier, isa: str, dtype: torch.dtype) -> None:
    """The bfloat16 instruction alone makes zero of subnormals."""
    assert_same_bits(results_in_tier("rms_norm", isa)[f"{dtype} rounded"], tier.every_kind_of_float().to(dtype))
