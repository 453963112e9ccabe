"""`ms_deform_attn` on a GPU, from the very file that was built on a machine without one.

`artifact.py` tells where it is. The client takes no part, and of the builder the form of a case alone: a machine with
a GPU needs torch and pytest.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="no torch is installed")
import torch
from torch import Tensor

from tests.cases.ms_deform_attn import CASE, SHAPES, grid_sample_form, reference
from tests.gpu.artifact import load_artifact

if not torch.cuda.is_available():
    pytest.skip("this machine has no GPU that torch can use", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NAMES = ("output", *CASE.gradients)
SHAPE = SHAPES["the registry's"]
SMALL = SHAPES["encoder, small"]
NAN = math.nan
INFINITY = math.inf

MORE_SHAPES = {
    **SHAPES,
    "encoder, two images": (2, 1700, 8, 32, 4, 40, 32, 20, 16, 10, 10),
    "encoder of narrow maps": (90, 74, 11, 32, 4, 1, 37, 37, 1),
    "encoder, few channels": (40, 208, 8, 16, 2, 13, 16),
    "encoder, wide heads": (70, 120, 8, 64, 3, 10, 12),
    "encoder, odd channels": (60, 120, 10, 33, 3, 10, 12),
    "encoder, four channels": (60, 120, 10, 4, 3, 10, 12),
    "more channels than a group has": (90, 100, 8, 160, 2, 10, 12),
    "more samples than lanes": (90, 100, 8, 32, 37, 10, 12),
    "five heads": (3, 200, 5, 24, 3, 9, 7, 4, 5),
    "queries in runs": (8, 1300, 8, 32, 4, 20, 20, 10, 10),
    "65 images": (65, 11, 2, 32, 4, 9, 7, 5, 4),
    "154 images": (154, 3, 2, 32, 4, 9, 7, 5, 4),
    "64 levels": (2, 9, 2, 8, 1, *(64 * (3, 2))),
}


@pytest.fixture(scope="module")
def ms_deform_attn() -> ModuleType:
    return load_artifact("ms-deform-attn")


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(mode=True)
    yield
    torch.use_deterministic_algorithms(mode=False)


def inputs(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32) -> tuple[dict[str, Any], Tensor]:
    """Draw the arguments and the gradient of the output, all on the device."""
    generator = torch.Generator().manual_seed(sum(shape))
    arguments = {name: t.cuda() for name, t in CASE.make(shape, dtype, generator).items()}
    batch, queries, heads, channels = shape[:4]
    return arguments, torch.randn(batch, queries, heads * channels, generator=generator).to("cuda", dtype)


def in_double(arguments: dict[str, Any], grad: Tensor) -> tuple[Tensor, ...]:
    """Compute the output and the three gradients in float64."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in arguments.items()}
    leaves = [wide[name].detach().requires_grad_() for name in CASE.gradients]
    with torch.device("cuda"):
        out = reference(**{**wide, **dict(zip(CASE.gradients, leaves, strict=True))})
    return (out.detach(), *torch.autograd.grad(out, leaves, grad.double()))


def run(op: Callable[..., Tensor], arguments: dict[str, Any], grad: Tensor) -> tuple[Tensor, ...]:
    """Compute the output and the three gradients with the op."""
    leaves = [arguments[name].detach().requires_grad_() for name in CASE.gradients]
    out = op(**{**arguments, **dict(zip(CASE.gradients, leaves, strict=True))})
    return (out.detach(), *torch.autograd.grad(out, leaves, grad))


def assert_within(found: Tensor, wanted: Tensor, shape: tuple[int, ...], name: str) -> None:
    bounds = CASE.tolerance(shape, found.dtype, name)
    torch.testing.assert_close(
        found.double(), wanted, rtol=bounds.relative, atol=bounds.absolute, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )


def assert_right(
    ms_deform_attn: ModuleType, arguments: dict[str, Any], grad: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, ...]:
    results = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    for name, actual, expected in zip(NAMES, results, in_double(arguments, grad), strict=True):
        assert actual.dtype == arguments["value" if name == "output" else name].dtype
        assert actual.is_contiguous()
        assert_within(actual, expected, shape, name)
    return results


def starts_of(shapes: Tensor) -> Tensor:
    areas = shapes.prod(1)
    return areas.cumsum(0) - areas


# Numbers


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", MORE_SHAPES.values(), ids=MORE_SHAPES)
def test_output_and_gradients_are_float64_rounded(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    assert_right(ms_deform_attn, *inputs(shape, dtype), shape)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", MORE_SHAPES.values(), ids=MORE_SHAPES)
def test_deterministic_gradients_are_right_and_the_same_again(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(shape, dtype)
    first = assert_right(ms_deform_attn, arguments, grad, shape)
    for _ in range(3):
        assert all(map(torch.equal, run(ms_deform_attn.ms_deform_attn, arguments, grad), first))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [SHAPES["encoder"], SHAPES["decoder"], MORE_SHAPES["five heads"]], ids=str)
def test_all_but_the_gradient_of_value_are_the_same_again(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(shape, dtype)
    first = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    for _ in range(3):
        again = run(ms_deform_attn.ms_deform_attn, arguments, grad)
        assert all(torch.equal(again[i], first[i]) for i in (0, 2, 3))


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("wide", [("sampling_locations",), ("attention_weights",), CASE.gradients[1:]], ids=str)
def test_float32_locations_and_weights_serve_half_types(
    ms_deform_attn: ModuleType, wide: tuple[str, ...], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(SMALL, dtype)
    arguments.update({name: inputs(SMALL)[0][name] for name in wide})
    assert_right(ms_deform_attn, arguments, grad, SMALL)


def test_grid_sample_agrees(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs(MORE_SHAPES["encoder, two images"])
    ours, theirs = (run(op, arguments, grad) for op in (ms_deform_attn.ms_deform_attn, grid_sample_form))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[3], theirs[3], rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("size", [1e-34, 1e-30, 1e-12, 1e12, 1e30], ids=str)
def test_deterministic_sums_keep_gradients_of_any_magnitude(ms_deform_attn: ModuleType, size: float) -> None:
    arguments, grad = inputs(SMALL)
    expected = in_double(arguments, grad * size)[1] / size
    found = run(ms_deform_attn.ms_deform_attn, arguments, grad * size)[1]
    torch.testing.assert_close(found.double() / size, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("chosen", [c for n in (1, 2) for c in itertools.combinations(CASE.gradients, n)], ids=str)
@pytest.mark.usefixtures("deterministic")
def test_some_gradients_alone_have_the_same_bits(ms_deform_attn: ModuleType, chosen: tuple[str, ...]) -> None:
    arguments, grad = inputs(SMALL)
    every = dict(zip(NAMES, run(ms_deform_attn.ms_deform_attn, arguments, grad), strict=True))
    leaves = {name: arguments[name].detach().requires_grad_() for name in chosen}
    out = ms_deform_attn.ms_deform_attn(**{**arguments, **leaves})
    for name, found in zip(chosen, torch.autograd.grad(out, list(leaves.values()), grad), strict=True):
        assert torch.equal(found, every[name])


# Locations

OUTSIDE = [NAN, INFINITY, -INFINITY, 1e30, -1e30, 3e38, 1.5, -0.5]
LAYOUTS = {"a row a warp": (1, 3, 2, 16, 2, 9, 7), "odd": (1, 3, 2, 17, 2, 9, 7), "tiles": (8, 1100, 8, 32, 2, 25, 44)}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("shape", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1], ids=["x", "y"])
@pytest.mark.parametrize("place", OUTSIDE)
def test_a_location_outside_or_not_finite_adds_nothing(
    ms_deform_attn: ModuleType, place: float, axis: int, shape: tuple[int, ...]
) -> None:
    arguments, grad = inputs(shape)
    arguments["sampling_locations"][0, 1, 1, 0, 0, axis] = place
    without = copy.deepcopy(arguments)
    without["attention_weights"][0, 1, 1, 0, 0] = 0
    expected = run(ms_deform_attn.ms_deform_attn, without, grad)
    for weight in (0.5, INFINITY, NAN):
        arguments["attention_weights"][0, 1, 1, 0, 0] = weight
        found = run(ms_deform_attn.ms_deform_attn, arguments, grad)
        assert all(bool(t.isfinite().all()) for t in found)
        assert all(map(torch.equal, found, expected))
    assert found[2][0, 1, 1, 0, 0].tolist() == [0, 0]
    assert found[3][0, 1, 1, 0, 0] == 0


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (1 / 6, 0.25, 1.0),
        (0.5, 0.25, 10.0),
        (0.5, 0.75, 1e4),
        (5 / 6, 0.75, 1e5),
        (0.5, 0.5, (10 + 1e4) / 2),
        (0.0, 0.0, 0.25),
        (1.0, 1.0, 1e5 / 4),
        (1.0, 0.0, 25.0),
        (-1 / 6, 0.25, 0.0),
        (0.5, 1.25, 0.0),
    ],
)
def test_pixels_are_where_the_field_has_them(ms_deform_attn: ModuleType, x: float, y: float, expected: float) -> None:
    value = 10.0 ** torch.arange(6.0, device="cuda").view(1, 6, 1, 1)
    location = torch.tensor([x, y], device="cuda").view(1, 1, 1, 1, 1, 2)
    found = ms_deform_attn.ms_deform_attn(value, [(2, 3)], location, torch.ones(1, 1, 1, 1, 1, device="cuda"))
    assert found.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.usefixtures("deterministic")  # hundreds of queries add to one pixel: in no order, float32 rounds more
@pytest.mark.parametrize("extent", [7, 134, 4097, 100_003, 2**22], ids=str)
def test_a_location_beside_a_whole_pixel_is_in_its_own_cell(ms_deform_attn: ModuleType, extent: int) -> None:
    generator = torch.Generator().manual_seed(0)
    columns = torch.cat([torch.randint(extent, (3000,), generator=generator), torch.tensor([0, extent - 1])])
    steps = torch.randint(-3, 4, columns.shape, generator=generator)
    x = ((columns.double() + 0.5) / extent).float() * (1 + steps * 2.0**-24)
    x = x[(x.double() * extent - 0.5) % 1 != 0]  # there the gradient has two values
    arguments = {
        "value": torch.randn(1, extent, 1, 3, generator=generator).cuda(),
        "spatial_shapes": torch.tensor([[1, extent]]).cuda(),
        "sampling_locations": torch.stack([x, torch.full_like(x, 0.4)], -1).view(1, -1, 1, 1, 1, 2).cuda(),
        "attention_weights": torch.ones(1, x.numel(), 1, 1, 1).cuda(),
    }
    grad = torch.randn(1, x.numel(), 3, generator=generator).cuda()
    found, wanted = run(ms_deform_attn.ms_deform_attn, arguments, grad), in_double(arguments, grad)
    for actual, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4e-7 * expected.abs().max().item())


def test_infinite_pixels_reach_only_the_samples_that_read_them(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs((1, 40, 2, 16, 1, 9, 7))
    clean = ms_deform_attn.ms_deform_attn(**arguments)
    arguments["value"][0, 0, 0] = INFINITY
    arguments["value"][0, 62, 1] = NAN
    found, spoilt = ms_deform_attn.ms_deform_attn(**arguments), ~in_double(arguments, grad)[0].isfinite()
    assert 0 < spoilt.sum() < spoilt.numel()
    assert torch.equal(~found.isfinite(), spoilt)
    assert torch.equal(found[~spoilt], clean[~spoilt])


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("value", [NAN, INFINITY])
def test_what_is_not_finite_in_a_gradient_stays_with_its_query(ms_deform_attn: ModuleType, value: float) -> None:
    arguments, grad = inputs((1, 30, 2, 17, 4, 5, 4))
    arguments["sampling_locations"][0, 7, 0, 0, 0] = 9.0  # outside: its gradients are zero all the same
    clean = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    grad[0, 7, 3] = value
    _, of_value, *rest = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert of_value[..., 4:].isfinite().all()
    assert not of_value[..., 3].isfinite().all()
    others = [q for q in range(30) if q != 7]
    for found, wanted in zip(rest, clean[2:], strict=True):
        assert torch.equal(found[:, others], wanted[:, others])
        assert (found[0, 7, 0, 0, 0] == 0).all()


# Layout

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "every second element": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "one element on": lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
    "two elements on": lambda t: torch.cat([t.new_zeros(2), t.flatten()])[2:].view(t.shape),
    "four elements on": lambda t: torch.cat([t.new_zeros(4), t.flatten()])[4:].view(t.shape),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("shape", [(2, 3, 2, 16, 4, 9, 7), (9, 1100, 8, 16, 3, 25, 44)], ids=["spread", "tiles"])
def test_views_are_right(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(shape, dtype)
    viewed = {**arguments, **{name: view(arguments[name]) for name in CASE.gradients}}
    assert_right(ms_deform_attn, viewed, view(grad), shape)


def test_offsets_beyond_32_bits_are_right(ms_deform_attn: ModuleType) -> None:
    heads, channels, height, width = 64, 256, 64, 64
    batch = 2**31 // (heads * channels * height * width) + 2
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("this GPU has too little memory")
    near, grad = inputs((1, 3, heads, channels, 1, height, width), torch.bfloat16)
    value = torch.zeros(batch, height * width, heads, channels, dtype=torch.bfloat16, device="cuda")
    value[-1] = near["value"][0]
    arguments = {**near, "value": value}
    for name in CASE.gradients[1:]:
        arguments[name] = near[name].expand(batch, *near[name].shape[1:]).clone()
    grads = grad.expand(batch, *grad.shape[1:])
    found = run(ms_deform_attn.ms_deform_attn, arguments, grads)
    expected = in_double(near, grad)
    for name, actual, wanted in zip(NAMES, found, expected, strict=True):
        assert_within(actual[-1:], wanted, (1, 3, heads, channels, 1, height, width), name)
    assert not found[0][:-1].any()


EMPTY = {name: shape for name, shape in SHAPES.items() if name.startswith("no ")}


@pytest.mark.parametrize("shape", EMPTY.values(), ids=EMPTY)
def test_empty_inputs_give_zeros(ms_deform_attn: ModuleType, shape: tuple[int, ...]) -> None:
    arguments, grad = inputs(shape)
    for name, t in zip(NAMES, run(ms_deform_attn.ms_deform_attn, arguments, grad), strict=True):
        assert t.shape == (grad.shape if name == "output" else arguments[name].shape)
        assert not t.any()


# Shapes of the maps

PLACES = ("cuda", "cpu")


@pytest.mark.parametrize("of_starts", PLACES)
@pytest.mark.parametrize("of_shapes", PLACES)
@pytest.mark.parametrize("shape", [SHAPE, (8, 1100, 8, 32, 2, 25, 44)], ids=["spread", "tiles"])
def test_shapes_and_starts_may_be_on_either_device(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], of_shapes: str, of_starts: str
) -> None:
    arguments, grad = inputs(shape)
    expected = ms_deform_attn.ms_deform_attn(**arguments)
    value, shapes, locations, weights = arguments.values()
    places = (shapes.to(of_shapes), starts_of(shapes).to(of_starts))
    assert torch.equal(ms_deform_attn.ms_deform_attn_forward(value, *places, locations, weights, 64), expected)
    grads = ms_deform_attn.ms_deform_attn_backward(value, *places, locations, weights, grad, 64)
    for name, found, wanted in zip(NAMES[1:], grads, in_double(arguments, grad)[1:], strict=True):
        assert_within(found, wanted, shape, name)
    listed = [tuple(pair) for pair in shapes.tolist()]
    assert torch.equal(ms_deform_attn.ms_deform_attn(value, listed, locations, weights), expected)


@pytest.mark.parametrize("mode", [False, True], ids=["atomics", "deterministic"])
@pytest.mark.parametrize("change", ["a pixel more", "a pixel less", "no side", "a start", "beyond all"])
@pytest.mark.parametrize("of_starts", PLACES)
def test_maps_on_the_device_that_do_not_fit_give_nan(
    ms_deform_attn: ModuleType, change: str, of_starts: str, *, mode: bool
) -> None:
    """They are not waited for, so nothing can be raised; nothing of value is read."""
    arguments, grad = inputs()
    value, shapes, locations, weights = arguments.values()
    starts = starts_of(shapes)
    if change == "a start":
        starts[1] += 1
    else:
        shapes[1] = torch.tensor(
            {"a pixel more": (7, 1), "a pixel less": (5, 1), "no side": (0, 6)}.get(change, (2**40, 2))
        )
    starts = starts.to(of_starts)
    out = ms_deform_attn.ms_deform_attn_forward(value, shapes, starts, locations, weights, 64)
    torch.use_deterministic_algorithms(mode=mode)
    try:
        grads = ms_deform_attn.ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, 64)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert all(bool(t.isnan().all()) for t in (out, *grads))


# torch around the op


def test_the_stream_of_the_caller_is_taken(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs(SMALL)
    doubled = {**arguments, "value": 2 * arguments["value"]}
    wanted = in_double(doubled, grad)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
        arguments["value"].mul_(2)
        found = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    side.synchronize()
    for name, actual, expected in zip(NAMES, found, wanted, strict=True):
        assert_within(actual, expected, SMALL, name)


@pytest.mark.parametrize("mode", [False, True], ids=["atomics", "deterministic"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_graph_replays_both_directions(ms_deform_attn: ModuleType, dtype: torch.dtype, *, mode: bool) -> None:
    arguments, grad = inputs(SMALL, dtype)
    other = inputs(SMALL, dtype)[0]["value"].flip(1)
    torch.use_deterministic_algorithms(mode=mode)
    try:
        run(ms_deform_attn.ms_deform_attn, arguments, grad)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    arguments["value"].copy_(other)
    for _ in range(2):
        graph.replay()
    for name, actual, expected in zip(NAMES, found, in_double(arguments, grad), strict=True):
        assert_within(actual, expected, SMALL, name)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one GPU")
def test_the_device_of_the_tensor_is_taken(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs(SMALL)
    there = {name: t.to("cuda:1") for name, t in arguments.items()}
    found = run(ms_deform_attn.ms_deform_attn, there, grad.to("cuda:1"))
    assert torch.cuda.current_device() == 0
    for name, actual, expected in zip(NAMES, found, in_double(arguments, grad), strict=True):
        assert actual.device == there["value"].device
        assert_within(actual.to("cuda:0"), expected, SMALL, name)


def raw(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32, *, grad: bool = True) -> tuple[Any, ...]:
    arguments, _ = inputs(shape, dtype)
    for name in CASE.gradients:
        arguments[name].requires_grad_(grad)
    value, shapes, locations, weights = arguments.values()
    return value, shapes, starts_of(shapes), locations, weights


def raw_backward(*wanted: bool, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    return torch.ones(2, 3, 8, dtype=dtype, device="cuda"), *raw(dtype=dtype, grad=False), *wanted


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "forward": ("ms_deform_attn", raw),
    "forward without starts": ("ms_deform_attn", lambda: (*raw()[:2], None, *raw()[3:])),
    "forward of half values": ("ms_deform_attn", lambda: raw(dtype=torch.bfloat16)),
    "forward of nothing": ("ms_deform_attn", lambda: raw(EMPTY["no queries"])),
    "backward, deterministic": ("ms_deform_attn_backward", lambda: raw_backward(True, True, True, True)),
    "backward, locations and weights": ("ms_deform_attn_backward", lambda: raw_backward(False, True, True)),
    "backward of halves": ("ms_deform_attn_backward", lambda: raw_backward(True, False, False, True, dtype=torch.half)),
}


@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS)
def test_opcheck_passes(ms_deform_attn: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    op = getattr(ms_deform_attn.functional.ops, name).default
    assert set(torch.library.opcheck(op, arguments()).values()) == {"SUCCESS"}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_compiled_is_eager_bit_for_bit(ms_deform_attn: ModuleType, dtype: torch.dtype) -> None:
    torch.compiler.reset()
    compiled = torch.compile(ms_deform_attn.ms_deform_attn, fullgraph=True)
    for shape in (SHAPE, (2, 5, *SHAPE[2:]), (1, 7, 3, 16, 2, 3, 3, 2, 2)):
        arguments, grad = inputs(shape, dtype)
        eager = run(ms_deform_attn.ms_deform_attn, arguments, grad)
        assert all(map(torch.equal, run(compiled, arguments, grad), eager))


def test_autocast_leaves_the_dtypes(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs(dtype=torch.bfloat16)
    arguments["attention_weights"] = arguments["attention_weights"].float()
    with torch.autocast("cuda", torch.float16):
        inside = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert [t.dtype for t in inside] == [torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.float32]
    assert torch.equal(inside[0], ms_deform_attn.ms_deform_attn(**arguments))


@pytest.mark.parametrize("memory", [0xFF, 0x7F])
def test_every_element_is_written(ms_deform_attn: ModuleType, memory: int) -> None:
    """What the allocator hands out has the bytes of whoever had it before."""
    for shape in (SMALL, MORE_SHAPES["encoder, odd channels"]):
        arguments, grad = inputs(shape, torch.bfloat16)
        taken = [torch.full((2**24,), memory, dtype=torch.uint8, device="cuda") for _ in range(20)]
        del taken
        assert_right(ms_deform_attn, arguments, grad, shape)


BAD_CALLS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "dtype": ("value is Double, must be Float", lambda a: {"value": a["value"].double()}),
    "partner": ("attention_weights is Half, must be", lambda a: {"attention_weights": a["attention_weights"].half()}),
    "device": (
        "sampling_locations is not on the device of value, CUDA 0",
        lambda a: {"sampling_locations": a["sampling_locations"].cpu()},
    ),
    "dims": (r"value has shape \(2, 30, 8\)", lambda a: {"value": a["value"].flatten(2)}),
    "pixels": ("spatial_shapes has 31 pixels, value has 30", lambda _: {"spatial_shapes": [(4, 6), (7, 1)]}),
    "no side": (r"spatial_shapes\[1\] is \(0, 6\)", lambda _: {"spatial_shapes": [(4, 6), (0, 6)]}),
    "shapes": ("spatial_shapes is Int, must be Long", lambda a: {"spatial_shapes": a["spatial_shapes"].int()}),
    "levels": (r"spatial_shapes has shape \(1, 2\)", lambda a: {"spatial_shapes": a["spatial_shapes"][:1]}),
}


@pytest.mark.parametrize(("message", "change"), BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_argument_is_named(
    ms_deform_attn: ModuleType, message: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    arguments, _ = inputs()
    with pytest.raises(RuntimeError, match=f"ms_deform_attn: {message}"), torch.no_grad():
        ms_deform_attn.ms_deform_attn(**{**arguments, **change(arguments)})


def test_more_levels_than_a_launch_takes_are_refused(ms_deform_attn: ModuleType) -> None:
    arguments, _ = inputs((1, 2, 1, 4, 1, *(65 * (1, 1))))
    with pytest.raises(RuntimeError, match="has 65 levels, must be at most 64 on CUDA"):
        ms_deform_attn.ms_deform_attn(**arguments)
