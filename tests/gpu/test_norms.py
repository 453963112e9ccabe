"""The norms on a GPU: outputs and gradients of every op, and what torch does around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="no torch is installed")
import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase
from tests.cases.add_rms_norm import CASE as ADD
from tests.cases.gated_rms_norm import CASE as GATED
from tests.cases.layer_norm import CASE as LAYER
from tests.cases.rms_norm import CASE as RMS
from tests.gpu import artifacts

if not torch.cuda.is_available():
    pytest.skip("this machine has no GPU that torch can use", allow_module_level=True)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Results = dict[str, Tensor]


@dataclass(frozen=True)
class Norm:
    """case: what is known of the op. options: how it is called beyond that. outputs: how many it has."""

    case: OpCase
    outputs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("output",) if self.outputs == 1 else tuple(f"output {n}" for n in range(self.outputs))

    def draw(self, *shape: int, dtype: torch.dtype = torch.float32) -> Results:
        """Draw the arguments, and the gradient of each output."""
        generator = torch.Generator("cuda").manual_seed(shape[-1])
        with torch.device("cuda"):
            arguments = self.case.make(shape, dtype, generator)
            drawn = {name: arguments[name] for name in self.case.gradients}
            return drawn | {name: torch.randn(shape, generator=generator).to(dtype) for name in self.output_names}

    def run(self, kernel: ModuleType, drawn: Results) -> Results:
        return self.run_with(getattr(kernel, self.case.op), drawn)

    def in_double(self, drawn: Results) -> Results:
        return self.run_with(self.case.reference, {name: t.double() for name, t in drawn.items()})

    def run_with(self, function: Callable[..., Any], drawn: Results) -> Results:
        """Compute outputs and gradients with a function that is called as the op is."""
        arguments = {name: drawn[name].detach().requires_grad_() for name in self.case.gradients}
        found = function(*arguments.values(), **self.options)
        outputs = found if isinstance(found, tuple) else (found,)
        cotangents = [drawn[name] for name in self.output_names]
        gradients = torch.autograd.grad(outputs, tuple(arguments.values()), cotangents)
        results = {name: t.detach() for name, t in zip(self.output_names, outputs, strict=True)}
        return results | dict(zip(arguments, gradients, strict=True))


NORMS = {
    "rms": Norm(RMS),
    "add": Norm(ADD, outputs=2),
    "gate, then norm": Norm(GATED),
    "norm, then gate": Norm(GATED, options={"norm_before_gate": True}),
    "layer": Norm(LAYER),
}
every_norm = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

WIDTHS: dict[str, tuple[int, ...]] = {
    "three warps a row": (37, 768),
    "a row for each group of lanes": (1000, 24),
    "half of a warp's lanes have a second vector": (300, 640),
    "groups that end early": (1543, 256),
    "many groups": (20011, 128),
    "a block a row": (600, 4096),
    "the widest row of a block": (40, 8192),
    "wider than a block": (9, 16384),
    "two passes": (5, 40000),
    "long and ragged": (70, 5123),
}
CASES = [
    pytest.param(norm, shape, id=f"{name}-{of}")
    for name, norm in NORMS.items()
    for of, shape in {**norm.case.shapes, **WIDTHS}.items()
]


@pytest.fixture(scope="module")
def kernel() -> ModuleType:
    return artifacts.load("rms-norm")


def assert_within(norm: Norm, shape: tuple[int, ...], dtype: torch.dtype, found: Results, wanted: Results) -> None:
    for name, ours in found.items():
        of = norm.case.tolerance(shape, dtype, name)
        assert ours.dtype == dtype
        assert ours.shape == wanted[name].shape
        error = (ours.double() - wanted[name]).abs()
        bound = of.absolute + of.relative * wanted[name].abs()
        assert bool((error <= bound).all()), f"{name}: {float((error / bound).max())} of what is allowed"


def assert_same_bits(found: Results, wanted: Results) -> None:
    for name, ours in found.items():
        integer = {2: torch.int16, 4: torch.int32}[ours.element_size()]
        assert torch.equal(ours.contiguous().view(integer), wanted[name].contiguous().view(integer)), name


@every_dtype
@pytest.mark.parametrize(("norm", "shape"), CASES)
def test_outputs_and_gradients_are_those_of_float64(
    kernel: ModuleType, norm: Norm, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    drawn = norm.draw(*shape, dtype=dtype)
    assert_within(norm, shape, dtype, norm.run(kernel, drawn), norm.in_double(drawn))


@every_norm
def test_a_float32_weight_of_half_rows_has_a_float32_gradient(kernel: ModuleType, norm: Norm) -> None:
    shape = (513, 1024)
    drawn = norm.draw(*shape, dtype=torch.bfloat16)
    wide = {name: drawn[name].float() for name in ("weight", "bias") if name in drawn}
    found = norm.run(kernel, drawn | wide)
    wanted = norm.in_double(drawn)
    for name in wide:
        assert found[name].dtype == torch.float32
        of = norm.case.tolerance(shape, torch.float32, name)
        torch.testing.assert_close(found[name].double(), wanted[name], rtol=of.relative, atol=of.absolute)


def test_layer_norm_takes_a_weight_and_a_bias_of_two_types(kernel: ModuleType) -> None:
    drawn = NORMS["layer"].draw(65, 512, dtype=torch.bfloat16)
    x, weight, bias = drawn["x"], drawn["weight"], drawn["bias"]
    wanted = kernel.layer_norm(x, weight, bias)
    assert torch.equal(kernel.layer_norm(x, weight.float(), bias), wanted)
    assert torch.equal(kernel.layer_norm(x, weight, bias.float()), wanted)
    assert torch.equal(kernel.layer_norm(x, None, None), kernel.layer_norm(x, torch.ones_like(weight), bias * 0))


# Bits

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "columns of a wider one": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "one element on": lambda x: torch.cat((x, x), -1)[..., 1 : x.shape[-1] + 1],
    "unaligned base": lambda x: torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape),
    "every second row": lambda x: x.repeat_interleave(2, 0)[::2],
    "transposed": lambda x: x.t().contiguous().t(),
    "expanded": lambda x: x[:1].expand_as(x),
}


@every_dtype
@pytest.mark.parametrize("columns", [128, 1024, 4096, 9000])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@every_norm
def test_a_view_has_the_bits_of_its_copy(
    kernel: ModuleType, norm: Norm, view: Callable[[Tensor], Tensor], columns: int, dtype: torch.dtype
) -> None:
    drawn = norm.draw(137, columns, dtype=dtype)
    seen = {name: t if t.dim() == 1 else view(t) for name, t in drawn.items()}
    copies = {name: t.clone(memory_format=torch.contiguous_format) for name, t in seen.items()}
    assert_same_bits(norm.run(kernel, seen), norm.run(kernel, copies))


@every_dtype
@pytest.mark.parametrize("shape", [(4096, 1024), (142568, 256), (4096, 4096), (300, 16384)], ids=str)
@every_norm
def test_each_run_has_the_same_bits(kernel: ModuleType, norm: Norm, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    drawn = norm.draw(*shape, dtype=dtype)
    wanted = norm.run(kernel, drawn)
    for _ in range(3):
        assert_same_bits(norm.run(kernel, drawn), wanted)


@every_dtype
@pytest.mark.parametrize("columns", [7, 128, 4096, 5123, 20000, 40000])
def test_a_sum_is_normed_as_it_is_rounded_and_in_place_is_the_same(
    kernel: ModuleType, columns: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator("cuda").manual_seed(columns)
    x, residual = torch.randn((2, 67, columns), generator=generator, device="cuda").to(dtype).unbind()
    weight = torch.randn(columns, generator=generator, device="cuda").to(dtype)
    y, summed = kernel.add_rms_norm(x, residual, weight, 1e-5, weight_offset=0.5)
    assert torch.equal(summed, x + residual)
    assert torch.equal(y, kernel.rms_norm(summed, weight, 1e-5, weight_offset=0.5))
    for name in ("columns of a wider one", "unaligned base", "every second row", "transposed"):
        left, right = VIEWS[name](x), VIEWS[name](residual)
        kernel.add_rms_norm_(left, right, weight, 1e-5, weight_offset=0.5)
        assert torch.equal(left, y)
        assert torch.equal(right, summed)


def test_in_place_what_shares_memory_is_refused(kernel: ModuleType) -> None:
    x = torch.ones(4, 64, device="cuda")
    with pytest.raises(RuntimeError, match="add_rms_norm_: x shares memory with residual"):
        kernel.add_rms_norm_(x, x)
    with pytest.raises(RuntimeError, match="add_rms_norm_: residual of shape .* some of its elements share memory"):
        kernel.add_rms_norm_(x, x[:1].clone().expand_as(x))


# Magnitudes


@pytest.mark.parametrize("value", [1e-38, 1e-30, 1e-22, 1e19, 1e30, 1e38])
@pytest.mark.parametrize("columns", [7, 256, 4096, 70000])
def test_sums_of_any_magnitude_have_unit_mean_square(kernel: ModuleType, columns: int, value: float) -> None:
    x, residual = (torch.full((5, columns), value, device="cuda") for _ in range(2))
    y, _ = kernel.add_rms_norm(x, residual, eps=0.0)
    torch.testing.assert_close(y, torch.ones_like(y), rtol=1e-5, atol=0)
    kernel.add_rms_norm_(x, residual, eps=0.0)
    assert torch.equal(x, y)
    gate = torch.full_like(x, 50.0)
    torch.testing.assert_close(kernel.gated_rms_norm(residual / 64, gate, eps=0.0), torch.ones_like(y))


@pytest.mark.parametrize("shift", [0.0, 1.0, 1e3, 1e6, -1e8, 1e20, 2e38])
@pytest.mark.parametrize("columns", [8, 256, 4096, 70000])
def test_layer_norm_far_from_zero_is_that_of_float64(kernel: ModuleType, columns: int, shift: float) -> None:
    generator = torch.Generator("cuda").manual_seed(columns)
    spread = max(1.0, abs(shift) * 2**-20)
    x = shift + spread * torch.randn((33, columns), generator=generator, device="cuda")
    x.requires_grad_()
    grad = torch.randn(x.shape, generator=generator, device="cuda")
    y = kernel.layer_norm(x)
    (dx,) = torch.autograd.grad(y, x, grad)
    wide = x.detach().double().requires_grad_()
    reference = LAYER.reference(wide)
    (dx64,) = torch.autograd.grad(reference, wide, grad.double())
    torch.testing.assert_close(y.double(), reference, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dx.double() * spread, dx64 * spread, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("value", [0.1, 3e38, -1e-38, 12345.678])
@pytest.mark.parametrize("columns", [1, 7, 256, 4096, 70000])
def test_equal_elements_have_no_variance(kernel: ModuleType, columns: int, value: float) -> None:
    x = torch.full((3, columns), value, device="cuda")
    assert not kernel.layer_norm(x, None, None, 1e-5).any()
    assert bool(kernel.layer_norm(x, None, None, 0.0).isnan().all())


@every_norm
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("columns", [24, 4096])
def test_nan_and_infinity_stay_in_their_row(kernel: ModuleType, norm: Norm, columns: int, value: float) -> None:
    drawn = norm.draw(9, columns)
    clean = norm.run(kernel, drawn)
    drawn["x"][4, 3] = value
    found = norm.run(kernel, drawn)
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    for name in ("x", *norm.output_names):
        assert torch.equal(found[name][others], clean[name][others])
    assert bool(found[norm.output_names[0]][4, 3].isnan())


def test_a_gate_may_be_shut(kernel: ModuleType) -> None:
    drawn = NORMS["gate, then norm"].draw(5, 64)
    drawn["gate"][:, ::2] = -math.inf
    for before in (False, True):
        y = kernel.gated_rms_norm(drawn["x"], drawn["gate"], drawn["weight"], norm_before_gate=before)
        assert not y[:, ::2].any()
        assert bool(y[:, 1::2].isfinite().all())


# torch around the ops


@every_norm
def test_no_rows_have_a_weight_gradient_of_zero(kernel: ModuleType, norm: Norm) -> None:
    found = norm.run(kernel, norm.draw(0, 64))
    assert found["weight"].shape == (64,)
    assert not found["weight"].any()


@every_norm
def test_only_what_is_wanted_is_computed(kernel: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(37, 512)
    wanted = norm.run(kernel, drawn)
    for name in norm.case.gradients:
        arguments = {of: drawn[of].detach().requires_grad_(of == name) for of in norm.case.gradients}
        found = getattr(kernel, norm.case.op)(*arguments.values(), **norm.options)
        outputs = found if isinstance(found, tuple) else (found,)
        pairs = [(y, drawn[of]) for y, of in zip(outputs, norm.output_names, strict=True) if y.requires_grad]
        (one,) = torch.autograd.grad([y for y, _ in pairs], arguments[name], [dy for _, dy in pairs])
        assert torch.equal(one, wanted[name])


@every_norm
def test_the_stream_of_the_caller_is_taken(kernel: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(2048, 4096, dtype=torch.bfloat16)
    later = norm.draw(2048, 4096, dtype=torch.bfloat16)
    later["x"] = later["x"].flip(0).contiguous()
    wanted = norm.run(kernel, later)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
        drawn["x"].copy_(later["x"])
        found = norm.run(kernel, drawn)
    side.synchronize()
    assert_same_bits(found, wanted)


@every_norm
def test_a_graph_replays_outputs_and_gradients(kernel: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(300, 512)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        norm.run(kernel, drawn)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = norm.run(kernel, drawn)
    drawn["x"].copy_(drawn["x"].flip(0))
    graph.replay()
    assert_same_bits(found, norm.run(kernel, drawn))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one GPU")
@every_norm
def test_the_device_of_the_tensors_is_taken(kernel: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(64, 512)
    wanted = norm.run(kernel, drawn)
    found = norm.run(kernel, {name: t.to("cuda:1") for name, t in drawn.items()})
    assert torch.cuda.current_device() == 0
    assert_same_bits({name: t.to("cuda:0") for name, t in found.items()}, wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own import of inductor
@every_norm
def test_compiled_is_eager_bit_for_bit(kernel: ModuleType, norm: Norm) -> None:
    torch.compiler.reset()
    drawn = norm.draw(32, 96, dtype=torch.bfloat16)
    compiled = torch.compile(getattr(kernel, norm.case.op), fullgraph=True)
    assert_same_bits(norm.run_with(compiled, drawn), norm.run(kernel, drawn))


@every_norm
def test_autocast_changes_no_dtype(kernel: ModuleType, norm: Norm) -> None:
    drawn = norm.draw(16, 64)
    wanted = norm.run(kernel, drawn)
    with torch.autocast("cuda", torch.bfloat16):
        assert_same_bits(norm.run(kernel, drawn), wanted)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device="cuda")


def wanted(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(ones(*shape).requires_grad_() for shape in shapes)


ROWS = (4, 33)
OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "rms": ("rms_norm", lambda: (*wanted(ROWS, (33,)), 1e-6, 0.5)),
    "rms backward": ("rms_norm_backward", lambda: (ones(*ROWS), ones(*ROWS), ones(33), ones(4), 0.0, True, True)),
    "add": ("add_rms_norm", lambda: (*wanted(ROWS, ROWS, (33,)), 1e-6, 0.5)),
    "add in place": ("add_rms_norm_", lambda: (ones(*ROWS), ones(*ROWS), ones(33), 1e-6, 0.5)),
    "add in place of views": ("add_rms_norm_", lambda: (ones(9, 4).t(), ones(9, 4).t(), None, 1e-6, 0.0)),
    "add backward": (
        "add_rms_norm_backward",
        lambda: (ones(*ROWS), ones(*ROWS), ones(*ROWS), ones(33), ones(4), 0.0, True, True),
    ),
    "gated": ("gated_rms_norm", lambda: (*wanted(ROWS, ROWS, (33,)), 1e-6, 0.5, False)),
    "norm before gate": ("gated_rms_norm", lambda: (*wanted(ROWS, ROWS), None, 1e-6, 0.0, True)),
    "gated backward": (
        "gated_rms_norm_backward",
        lambda: (ones(*ROWS), ones(*ROWS), ones(*ROWS), ones(33), ones(4), 0.0, False, True, True, True),
    ),
    "layer": ("layer_norm", lambda: (*wanted(ROWS, (33,), (33,)), 1e-5)),
    "layer backward": (
        "layer_norm_backward",
        lambda: (ones(*ROWS), ones(*ROWS), ones(33), ones(33), ones(4), ones(4), ones(4), True, True, True),
    ),
    "layer backward, dbias alone": (
        "layer_norm_backward",
        lambda: (ones(*ROWS), ones(*ROWS), None, ones(33), ones(4), ones(4), ones(4), False, False, True),
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(kernel: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    torch.library.opcheck(getattr(kernel.functional.ops, name).default, arguments())


REFUSED: dict[str, tuple[str, Callable[[ModuleType, Tensor, Tensor], Any]]] = {
    "residual elsewhere": ("add_rms_norm: residual", lambda k, x, w: k.add_rms_norm(x, x.cpu(), w)),
    "residual of another shape": ("add_rms_norm: residual has shape", lambda k, x, w: k.add_rms_norm(x, x[:1], w)),
    "gate of another dtype": ("gated_rms_norm: gate is", lambda k, x, w: k.gated_rms_norm(x, x.half(), w)),
    "bias too short": ("layer_norm: bias has 63 elements", lambda k, x, w: k.layer_norm(x, w, w[:-1])),
    "bias elsewhere": ("layer_norm: bias", lambda k, x, w: k.layer_norm(x, w, w.cpu())),
    "x in double": ("layer_norm: x is", lambda k, x, w: k.layer_norm(x.double(), w)),
    "eps below zero": ("gated_rms_norm: eps is -1", lambda k, x, w: k.gated_rms_norm(x, x, w, -1.0)),
    "rstd of another shape": (
        "rms_norm_backward: rstd has shape",
        lambda k, x, w: k.functional.ops.rms_norm_backward(x, x, w, w, 0.0, True, True),
    ),
    "a gradient of no bias": (
        "layer_norm_backward: want_dbias is true without a bias",
        lambda k, x, w: k.functional.ops.layer_norm_backward(x, x, w, None, *[x[:, 0].clone()] * 3, True, True, True),
    ),
}


@pytest.mark.parametrize(("words", "call"), REFUSED.values(), ids=REFUSED)
def test_a_bad_argument_is_named(
    kernel: ModuleType, words: str, call: Callable[[ModuleType, Tensor, Tensor], Any]
) -> None:
    with pytest.raises(RuntimeError, match=words), torch.no_grad():
        call(kernel, ones(5, 64), ones(64))


@every_norm
def test_offsets_beyond_32_bits_are_right(kernel: ModuleType, norm: Norm) -> None:
    columns = 4096
    rows = 2**31 // columns + 8
    if torch.cuda.mem_get_info()[0] < 10 * rows * columns * 2:
        pytest.skip("this GPU has too little memory")
    few = norm.draw(16, columns, dtype=torch.bfloat16)
    drawn = dict(few)
    for name, t in few.items():
        if t.dim() == 2:
            drawn[name] = t.new_zeros(rows, columns)
            drawn[name][-16:] = t
    found = norm.run(kernel, drawn)
    expected = norm.run(kernel, few)
    for name in norm.output_names:
        assert torch.equal(found[name][-16:], expected[name])
    assert torch.equal(found["x"][-16:], expected["x"])
    torch.testing.assert_close(found["weight"], expected["weight"])
    torch.cuda.empty_cache()
