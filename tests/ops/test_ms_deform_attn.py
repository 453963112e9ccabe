"""The op ms_deform_attn. M numbers are reports from the field of what went wrong elsewhere."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

import kernels
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection, ResNetConfig
from transformers.models.deformable_detr import modeling_deformable_detr

from tests.cases.ms_deform_attn import CASE, SHAPES, grid_sample_form, reference
from tests.ops import ms_deform_attn_tier as tier
from tests.ops.compare import assert_within
from tests.ops.kernelized import kernelized, swapped_layers
from tests.ops.sweep import SIZES
from tests.ops.tiers import TIERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from tests.ops.conftest import InTier


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

DTYPES = [getattr(torch, name) for name in CASE.dtypes]
HALF_TYPES = [torch.bfloat16, torch.float16]
NAMES = ("output", *CASE.gradients)
SMALL = {name: shape for name, shape in SHAPES.items() if shape[1] < 2000}
SHAPE = SHAPES["the registry's"]
IN_CHUNKS = SHAPES["one head, queries in chunks"]
NAN = math.nan
INFINITY = math.inf


def inputs(shape: tuple[int, ...] = SHAPE, dtype: torch.dtype = torch.float32) -> tuple[dict[str, Any], Tensor]:
    return tier.inputs(shape, dtype)


def in_double(arguments: dict[str, Any], grad: Tensor) -> tuple[Tensor, ...]:
    """Compute the output and the three gradients in float64."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in arguments.items()}
    leaves = [wide[name].detach().requires_grad_() for name in CASE.gradients]
    out = reference(**{**wide, **dict(zip(CASE.gradients, leaves, strict=True))})
    return (out.detach(), *torch.autograd.grad(out, leaves, grad.double()))


def run(op: Callable[..., Tensor], arguments: dict[str, Any], grad: Tensor) -> tuple[Tensor, ...]:
    """Compute the output and the three gradients with the op."""
    leaves = [arguments[name].detach().requires_grad_() for name in CASE.gradients]
    out = op(**{**arguments, **dict(zip(CASE.gradients, leaves, strict=True))})
    return (out.detach(), *torch.autograd.grad(out, leaves, grad))


def assert_right(ms_deform_attn: ModuleType, arguments: dict[str, Any], grad: Tensor, shape: tuple[int, ...]) -> None:
    results = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    for name, actual, expected in zip(NAMES, results, in_double(arguments, grad), strict=True):
        dtype = arguments["value" if name == "output" else name].dtype
        assert actual.dtype == dtype
        assert actual.is_contiguous()
        assert_within(actual, expected, CASE.tolerance(shape, dtype, name))


def starts_of(shapes: Tensor) -> Tensor:
    areas = shapes.prod(1)
    return areas.cumsum(0) - areas


# Numbers


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL.keys())
def test_output_and_gradients_are_float64_rounded(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    assert_right(ms_deform_attn, *inputs(shape, dtype), shape)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("wide", [("sampling_locations",), ("attention_weights",), CASE.gradients[1:]], ids=str)
def test_float32_locations_and_weights_serve_half_types(
    ms_deform_attn: ModuleType, wide: tuple[str, ...], dtype: torch.dtype
) -> None:
    """M09, M10: as autocast makes them. Every gradient has the dtype of its input."""
    shape = SHAPES["encoder, small"]
    arguments, grad = inputs(shape, dtype)
    arguments.update({name: inputs(shape)[0][name] for name in wide})
    assert_right(ms_deform_attn, arguments, grad, shape)


def test_grid_sample_agrees(ms_deform_attn: ModuleType) -> None:
    """What models compute without a kernel, in float32, near the borders too."""
    arguments, grad = inputs(SHAPES["encoder, small"])
    arguments["sampling_locations"] = torch.rand_like(arguments["sampling_locations"]) * 1.2 - 0.1
    ours, theirs = (run(op, arguments, grad) for op in (ms_deform_attn.ms_deform_attn, grid_sample_form))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours[3], theirs[3], rtol=1e-4, atol=1e-4)


def test_the_reference_is_grid_sample_in_float64() -> None:
    """Two formulations that share no line: gathers by index, and torch's op."""
    for shape in (SHAPE, SHAPES["lines of one pixel"], SHAPES["encoder, small"]):
        arguments, grad = inputs(shape)
        wide = {name: t.double() if t.is_floating_point() else t for name, t in arguments.items()}
        for a, b in zip(run(reference, wide, grad.double()), run(grid_sample_form, wide, grad.double()), strict=True):
            torch.testing.assert_close(a, b)


def test_half_types_are_computed_in_float32(ms_deform_attn: ModuleType) -> None:
    """Half through float32 is bit for bit float32 that is then rounded."""
    arguments, grad = inputs(SHAPES["encoder, small"], torch.bfloat16)
    wide = {name: t.float() if t.is_floating_point() else t for name, t in arguments.items()}
    half = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    for a, b in zip(half, run(ms_deform_attn.ms_deform_attn, wide, grad.float()), strict=True):
        assert torch.equal(a, b.bfloat16())


@pytest.mark.parametrize("chosen", [c for n in (1, 2) for c in itertools.combinations(CASE.gradients, n)], ids=str)
@pytest.mark.parametrize("shape", [SHAPES["encoder, small"], IN_CHUNKS], ids=["whole", "in chunks"])
def test_some_gradients_alone_have_the_same_bits(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], chosen: tuple[str, ...]
) -> None:
    arguments, grad = inputs(shape)
    every = dict(zip(NAMES, run(ms_deform_attn.ms_deform_attn, arguments, grad), strict=True))
    leaves = {name: arguments[name].detach().requires_grad_() for name in chosen}
    out = ms_deform_attn.ms_deform_attn(**{**arguments, **leaves})
    for name, found in zip(chosen, torch.autograd.grad(out, list(leaves.values()), grad), strict=True):
        assert torch.equal(found, every[name])


# Locations


OUTSIDE = [NAN, INFINITY, -INFINITY, 1e30, -1e30, 3e38, 1.5, -0.5]


@pytest.mark.parametrize("channels", [16, 17], ids=["in place", "packed"])
@pytest.mark.parametrize("axis", [0, 1], ids=["x", "y"])
@pytest.mark.parametrize("place", OUTSIDE)
def test_a_location_outside_or_not_finite_adds_nothing(
    ms_deform_attn: ModuleType, place: float, axis: int, channels: int
) -> None:
    """M12: extreme offsets gave NaN. Whatever the weight is, the sample is as if it were not there."""
    arguments, grad = inputs((1, 3, 2, channels, 2, 9, 7))
    arguments["sampling_locations"][0, 1, 1, 0, 0, axis] = place
    without = copy.deepcopy(arguments)
    without["attention_weights"][0, 1, 1, 0, 0] = 0
    expected = run(ms_deform_attn.ms_deform_attn, without, grad)
    for weight in (0.5, INFINITY, NAN):
        arguments["attention_weights"][0, 1, 1, 0, 0] = weight
        for found, wanted in zip(run(ms_deform_attn.ms_deform_attn, arguments, grad), expected, strict=True):
            assert found.isfinite().all()
            assert torch.equal(found, wanted)
    _, _, grad_locations, grad_weights = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert grad_locations[0, 1, 1, 0, 0].tolist() == [0, 0]
    assert grad_weights[0, 1, 1, 0, 0] == 0


def one_sample(ms_deform_attn: ModuleType, x: float, y: float) -> Tensor:
    """Sample a map of 2 lines and 3 columns whose pixels are 1, 10, 100, ... at one location."""
    value = 10.0 ** torch.arange(6.0).view(1, 6, 1, 1)
    location = torch.tensor([x, y]).view(1, 1, 1, 1, 1, 2)
    found: Tensor = ms_deform_attn.ms_deform_attn(value, [(2, 3)], location, torch.ones(1, 1, 1, 1, 1))
    return found.view(())


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (1 / 6, 0.25, 1.0),  # the centre of the first pixel
        (0.5, 0.25, 10.0),
        (0.5, 0.75, 1e4),
        (5 / 6, 0.75, 1e5),
        (0.5, 0.5, (10 + 1e4) / 2),
        (0.0, 0.0, 0.25),  # a corner of the map: one pixel, half of each way
        (1.0, 1.0, 1e5 / 4),
        (1.0, 0.0, 25.0),
        (-1 / 6, 0.25, 0.0),  # a whole pixel outside
        (0.5, 1.25, 0.0),
    ],
)
def test_pixels_are_where_the_field_has_them(ms_deform_attn: ModuleType, x: float, y: float, expected: float) -> None:
    """x before y, height before width, align_corners=False, zeros outside."""
    assert one_sample(ms_deform_attn, x, y).item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("extent", [7, 134, 4097, 100_003, 1_000_003, 2**22], ids=str)
def test_a_location_beside_a_whole_pixel_is_in_its_own_cell(ms_deform_attn: ModuleType, extent: int) -> None:
    """Float32 rounds its coordinate up to that pixel, and the next one would be read in place of the one before."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.cat([torch.randint(extent, (3000,), generator=generator), torch.tensor([0, extent - 1])])
    steps = torch.randint(-3, 4, columns.shape, generator=generator)
    x = ((columns.double() + 0.5) / extent).float() * (1 + steps * 2.0**-24)
    x = x[(x.double() * extent - 0.5) % 1 != 0]  # there the gradient has two values
    arguments = {
        "value": torch.randn(1, extent, 1, 3, generator=generator),
        "spatial_shapes": torch.tensor([[1, extent]]),
        "sampling_locations": torch.stack([x, torch.full_like(x, 0.4)], -1).view(1, -1, 1, 1, 1, 2),
        "attention_weights": torch.ones(1, x.numel(), 1, 1, 1),
    }
    grad = torch.randn(1, x.numel(), 3, generator=generator)
    found, wanted = run(ms_deform_attn.ms_deform_attn, arguments, grad), in_double(arguments, grad)
    for actual, expected in zip(found, wanted, strict=True):
        size = expected.abs().max().item()
        torch.testing.assert_close(actual.double(), expected, rtol=0, atol=4e-7 * size)


def test_infinite_pixels_reach_only_the_samples_that_read_them(ms_deform_attn: ModuleType) -> None:
    """A coefficient of zero at a clamped corner would be NaN."""
    arguments, _ = inputs((1, 40, 2, 16, 1, 9, 7))
    clean = ms_deform_attn.ms_deform_attn(**arguments)
    arguments["value"][0, 0, 0] = INFINITY
    arguments["value"][0, 62, 1] = NAN
    found = ms_deform_attn.ms_deform_attn(**arguments)
    wide = {name: t.double() if t.is_floating_point() else t for name, t in arguments.items()}
    spoilt = ~reference(**wide).isfinite()
    assert 0 < spoilt.sum() < spoilt.numel()
    assert torch.equal(~found.isfinite(), spoilt)
    assert torch.equal(found[~spoilt], clean[~spoilt])


@pytest.mark.parametrize("value", [NAN, INFINITY])
def test_what_is_not_finite_in_a_gradient_stays_with_its_query(ms_deform_attn: ModuleType, value: float) -> None:
    arguments, grad = inputs((1, 30, 2, 17, 4, 5, 4))
    arguments["sampling_locations"][0, 7, 0, 0, 0] = 9.0  # outside: its gradients are zero all the same
    clean = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    grad[0, 7, 3] = value
    _, of_value, *rest = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert of_value[..., 4:].isfinite().all()
    others = [q for q in range(30) if q != 7]
    for found, wanted in zip(rest, clean[2:], strict=True):
        assert torch.equal(found[:, others], wanted[:, others])
        assert (found[0, 7, 0, 0, 0] == 0).all()


# Threads


THREADED = {
    "packed": SHAPES["encoder, small"],
    "in place": (3, 130, 8, 32, 4, 40, 50, 20, 25, 10, 13, 5, 7),
    "in chunks": IN_CHUNKS,
    "few samples": SHAPES["rf-detr"],
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("shape", THREADED.values(), ids=THREADED.keys())
def test_bits_do_not_depend_on_the_number_of_threads(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(shape, dtype)
    results = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        results.append(run(ms_deform_attn.ms_deform_attn, arguments, grad))
    for other, index in itertools.product(results[1:], range(4)):
        assert torch.equal(results[0][index], other[index])


def test_packed_and_in_place_give_the_same_bits(ms_deform_attn: ModuleType) -> None:
    """A query alone is read in place, among many it is packed."""
    arguments, _ = inputs((1, 200, 2, 32, 4, 9, 7, 5, 4))
    whole = ms_deform_attn.ms_deform_attn(**arguments)
    for q in (0, 77, 199):
        part = {**arguments, **{n: arguments[n][:, q : q + 1] for n in ("sampling_locations", "attention_weights")}}
        assert torch.equal(ms_deform_attn.ms_deform_attn(**part), whole[:, q : q + 1])


@pytest.mark.usefixtures("threads")
def test_a_forked_child_goes_on_with_one_thread(ms_deform_attn: ModuleType) -> None:
    """As a worker of a DataLoader does. With more, libgomp itself stops after a fork, under torch's ops too."""
    torch.set_num_threads(2)
    arguments, grad = inputs(SHAPES["encoder, small"])
    expected = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            arguments_again, grad_again = inputs(SHAPES["encoder, small"])
            out = ms_deform_attn.ms_deform_attn(**arguments_again)
            starts = starts_of(arguments["spatial_shapes"])
            values = [arguments_again[n] for n in ("sampling_locations", "attention_weights")]
            grads = ms_deform_attn.ms_deform_attn_backward(
                arguments_again["value"], arguments["spatial_shapes"], starts, *values, grad_again, 64
            )
            code = 0 if all(map(torch.equal, (out, *grads), expected)) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


# Layout


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "every second element": lambda t: t.repeat_interleave(2, -1)[..., ::2],
    "every second image": lambda t: t.repeat_interleave(2, 0)[::2],
    "unaligned start": lambda t: torch.cat([t.new_zeros(1), t.flatten()])[1:].view(t.shape),
    "stride of a dim of size 1": lambda t: t.as_strided(
        t.shape, [9 if n == 1 else s for n, s in zip(t.shape, t.stride(), strict=True)]
    ),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("shape", [(2, 3, 2, 16, 4, 9, 7), (1, 40, 1, 17, 1, 3, 2)], ids=["in place", "packed"])
def test_views_are_right_and_results_contiguous(
    ms_deform_attn: ModuleType, shape: tuple[int, ...], view: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    arguments, grad = inputs(shape, dtype)
    plain = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    viewed = {**arguments, **{name: view(arguments[name]) for name in CASE.gradients}}
    assert all(map(torch.equal, run(ms_deform_attn.ms_deform_attn, viewed, view(grad)), plain))
    assert_right(ms_deform_attn, viewed, view(grad), shape)


def test_expanded_inputs_and_gradients_are_right(ms_deform_attn: ModuleType) -> None:
    arguments, _ = inputs((3, 5, 2, 16, 2, 4, 4))
    expanded = {**arguments, **{name: arguments[name][:1].expand_as(arguments[name]) for name in CASE.gradients}}
    grad = torch.ones(1).expand(3, 5, 32)
    plain = {**expanded, **{name: expanded[name].clone() for name in CASE.gradients}}
    found = run(ms_deform_attn.ms_deform_attn, expanded, grad)
    assert all(map(torch.equal, found, run(ms_deform_attn.ms_deform_attn, plain, grad.clone())))


def test_offsets_beyond_32_bits_are_right(ms_deform_attn: ModuleType) -> None:
    """The last image of a value of more than 2**31 elements, in place and packed."""
    heads, channels, height, width = 64, 256, 64, 64
    image = heads * channels * height * width
    batch = 2**31 // image + 2
    near, _ = inputs((1, 1, heads, channels, 1, height, width), torch.bfloat16)
    value = torch.empty(batch, height * width, heads, channels, dtype=torch.bfloat16)  # untouched pages cost nothing
    assert value.numel() > 2**31
    value[-1] = near["value"][0]
    for queries in (1, 3000):
        locations, weights = (near[n].expand(batch, queries, *near[n].shape[2:]) for n in CASE.gradients[1:])
        locations = torch.where((torch.arange(batch) == batch - 1).view(-1, 1, 1, 1, 1, 1), locations, 2.0)
        if queries > 1:  # packed: only a few heads, or it takes minutes
            locations, weights, part = locations[:, :, :1], weights[:, :, :1], value[..., :1, :]
            found = ms_deform_attn.ms_deform_attn(part[-1:], [(height, width)], locations[-1:], weights[-1:])
            expected = ms_deform_attn.ms_deform_attn(
                near["value"][:, :, :1], [(height, width)], *(near[n][:, :, :1] for n in CASE.gradients[1:])
            )
        else:
            found = ms_deform_attn.ms_deform_attn(value, [(height, width)], locations, weights)
            expected = ms_deform_attn.ms_deform_attn(**near)
            assert (found[:-1] == 0).all()
        assert torch.equal(found[-1, -1], expected[0, -1])


EMPTY = {name: shape for name, shape in SHAPES.items() if name.startswith("no ")}


@pytest.mark.parametrize("shape", EMPTY.values(), ids=EMPTY.keys())
def test_empty_inputs_give_zeros(ms_deform_attn: ModuleType, shape: tuple[int, ...]) -> None:
    arguments, grad = inputs(shape)
    out, *grads = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert out.shape == (shape[0], shape[1], shape[2] * shape[3])
    for name, t in zip(NAMES, (out, *grads), strict=True):
        assert name == "output" or t.shape == arguments[name].shape
        assert (t == 0).all()


def test_no_level_is_no_pixel(ms_deform_attn: ModuleType) -> None:
    out = ms_deform_attn.ms_deform_attn(
        torch.ones(2, 0, 3, 4), [], torch.ones(2, 5, 3, 0, 2, 2), torch.ones(2, 5, 3, 0, 2)
    )
    assert torch.equal(out, torch.zeros(2, 5, 12))


# The other ways to call it


@pytest.mark.parametrize("kind", ["tensor", "list of tuples", "tuple of lists"])
def test_shapes_may_be_a_tensor_or_pairs(ms_deform_attn: ModuleType, kind: str) -> None:
    arguments, grad = inputs()
    pairs = arguments["spatial_shapes"].tolist()
    shapes = {
        "tensor": arguments["spatial_shapes"],
        "list of tuples": [*map(tuple, pairs)],
        "tuple of lists": tuple(pairs),
    }
    expected = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    given = {**arguments, "spatial_shapes": shapes[kind]}
    with torch.inference_mode():  # a tensor that this call made and kept would not do for training
        ms_deform_attn.ms_deform_attn(**given)
    assert all(map(torch.equal, run(ms_deform_attn.ms_deform_attn, given, grad), expected))


def test_packed_locations_are_the_same_samples(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs()
    expected = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    flat = {**arguments, **{n: arguments[n].flatten(3, 4) for n in CASE.gradients[1:]}, "num_points": [2, 2]}
    out, *grads = run(ms_deform_attn.ms_deform_attn_packed, flat, grad)
    assert torch.equal(out, expected[0])
    for found, wanted in zip(grads, expected[1:], strict=True):
        assert torch.equal(found.flatten(), wanted.flatten())


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 3], r"num_points is \[1, 3\], must be one count"),
        ([], r"num_points is \[\]"),
        ([-2, -2], r"num_points is \[-2, -2\]"),
        ([3, 3], r"sampling_locations has shape \(2, 3, 2, 4, 2\).* size 6, the sum of num_points \[3, 3\]"),
        ([4], r"spatial_shapes has shape \(2, 2\), must be \(1, 2\)"),
    ],
    ids=str,
)
def test_packed_refuses_counts_that_are_ragged_or_do_not_fit(
    ms_deform_attn: ModuleType, counts: list[int], message: str
) -> None:
    arguments, _ = inputs()
    flat = {**arguments, **{n: arguments[n].flatten(3, 4) for n in CASE.gradients[1:]}}
    with pytest.raises(RuntimeError, match=message):
        ms_deform_attn.ms_deform_attn_packed(**flat, num_points=counts)


@pytest.mark.parametrize("counts", [2, [2.0, 2.0], torch.tensor([2, 2])], ids=str)
def test_packed_refuses_counts_that_are_no_list_of_numbers(ms_deform_attn: ModuleType, counts: object) -> None:
    arguments, _ = inputs()
    flat = {**arguments, **{n: arguments[n].flatten(3, 4) for n in CASE.gradients[1:]}}
    with pytest.raises(TypeError, match="num_points is .*, must be a list of whole numbers, one for each level"):
        ms_deform_attn.ms_deform_attn_packed(**flat, num_points=counts)


def test_an_argument_of_another_type_is_named(ms_deform_attn: ModuleType) -> None:
    arguments, _ = inputs()
    with pytest.raises(TypeError, match="ms_deform_attn: attention_weights is None, must be a tensor$"):
        ms_deform_attn.ms_deform_attn(**{**arguments, "attention_weights": None})


@pytest.mark.parametrize(("batch", "step"), [(1, 64), (2, 1), (3, 2), (5, 64), (7, 3), (64, 64), (66, 64)])
def test_any_batch_goes_with_any_im2col_step(ms_deform_attn: ModuleType, batch: int, step: int) -> None:
    """M03: a batch that the step does not divide was refused."""
    arguments, grad = inputs((batch, *SHAPE[1:]))
    expected = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    value, shapes, locations, weights = arguments.values()
    starts = starts_of(shapes)
    out = ms_deform_attn.ms_deform_attn_forward(value, shapes, starts, locations, weights, step)
    grads = ms_deform_attn.ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, step)
    assert all(map(torch.equal, (out, *grads), expected))


def test_the_calls_of_the_field_are_differentiable_too(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs()
    starts = starts_of(arguments["spatial_shapes"])

    def forward(value: Tensor, spatial_shapes: Tensor, sampling_locations: Tensor, attention_weights: Tensor) -> Tensor:
        out: Tensor = ms_deform_attn.ms_deform_attn_forward(
            value, spatial_shapes, starts, sampling_locations, attention_weights, 64
        )
        return out

    expected = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert all(map(torch.equal, run(forward, arguments, grad), expected))


BAD_COMPAT: dict[str, tuple[Tensor, object, str]] = {
    "a step of zero": (torch.tensor([0, 24]), 0, "im2col_step is 0, must be at least 1"),
    "a step that is a text": (torch.tensor([0, 24]), "a", "im2col_step is a, must be at least 1"),
    "starts of other maps (M22)": (
        torch.tensor([0, 23]),
        64,
        r"level_start_index\[1\] is 23, by spatial_shapes it is 24",
    ),
    "too few starts": (torch.tensor([0]), 64, r"level_start_index has shape \(1\), must be \(2\)"),
    "starts of another dtype": (torch.tensor([0, 24], dtype=torch.int32), 64, "level_start_index is Int, must be Long"),
}


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("starts", "step", "message"), BAD_COMPAT.values(), ids=BAD_COMPAT.keys())
def test_the_calls_of_the_field_check_their_own_arguments(
    ms_deform_attn: ModuleType, direction: str, starts: Tensor, step: object, message: str
) -> None:
    arguments, grad = inputs()
    value, shapes, locations, weights = arguments.values()
    more = (step,) if direction == "forward" else (grad, step)
    with pytest.raises(RuntimeError, match=f"ms_deform_attn.*: {message}"):
        getattr(ms_deform_attn, f"ms_deform_attn_{direction}")(value, shapes, starts, locations, weights, *more)


# Errors


BAD_CALLS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "value of doubles": (lambda a: {"value": a["value"].double()}, "value is Double"),
    "value of three dims": (lambda a: {"value": a["value"][0]}, r"value has shape \(30, 2, 4\)"),
    "locations of another half type": (
        lambda a: {"value": a["value"].half(), "sampling_locations": a["sampling_locations"].bfloat16()},
        "sampling_locations is BFloat16.* dtype of value, Half",
    ),
    "half weights beside float values": (
        lambda a: {"attention_weights": a["attention_weights"].half()},
        "attention_weights is Half.* dtype of value, Float",
    ),
    "locations of another batch": (
        lambda a: {"sampling_locations": a["sampling_locations"][:1]},
        r"sampling_locations has shape \(1, 3, 2, 2, 2, 2\), must be \(2, queries, 2, levels, points, 2\)",
    ),
    "locations of other heads": (
        lambda a: {"sampling_locations": a["sampling_locations"][:, :, :1]},
        r"sampling_locations has shape \(2, 3, 1, 2, 2, 2\)",
    ),
    "locations of three coordinates": (
        lambda a: {"sampling_locations": a["sampling_locations"].repeat(1, 1, 1, 1, 1, 2)[..., :3]},
        r"sampling_locations has shape \(2, 3, 2, 2, 2, 3\)",
    ),
    "locations of five dims": (
        lambda a: {"sampling_locations": a["sampling_locations"].flatten(3, 4)},
        r"sampling_locations has shape \(2, 3, 2, 4, 2\)",
    ),
    "weights of other points": (
        lambda a: {"attention_weights": a["attention_weights"][..., :1]},
        r"attention_weights has shape \(2, 3, 2, 2, 1\), sampling_locations \(2, 3, 2, 2, 2, 2\)",
    ),
    "weights of four dims": (
        lambda a: {"attention_weights": a["attention_weights"].flatten(3)},
        r"attention_weights has shape \(2, 3, 2, 4\)",
    ),
    "shapes of one level": (
        lambda a: {"spatial_shapes": a["spatial_shapes"][:1]},
        r"spatial_shapes has shape \(1, 2\), must be \(2, 2\)",
    ),
    "shapes of int32": (lambda a: {"spatial_shapes": a["spatial_shapes"].int()}, "spatial_shapes is Int, must be Long"),
    "locations on another device": (
        lambda a: {
            "sampling_locations": torch.empty_like(
                a["sampling_locations"], device="meta" if a["value"].is_cpu else "cpu"
            )
        },
        "sampling_locations is on (meta|cpu)",
    ),
}
BAD_NUMBERS: dict[str, tuple[Any, str]] = {
    "fewer pixels than value (M22)": ([(4, 6), (2, 2)], "spatial_shapes has 28 pixels, value has 30"),
    "more pixels than value (M22)": ([(4, 6), (2, 4)], "spatial_shapes has 32 pixels, value has 30"),
    "a height of zero": ([(5, 6), (0, 3)], r"spatial_shapes\[1\] is \(0, 3\), each must be from 1 to 4194304"),
    "negative sizes": ([(-4, -6), (2, 3)], r"spatial_shapes\[0\] is \(-4, -6\)"),
    "an area beyond 64 bits": ([(2**40, 2**40), (2, 3)], r"spatial_shapes\[0\] is \(1099511627776"),
    "an area beyond 30 bits": ([(2**22, 2**22), (2, 3)], "spatial_shapes has 17592186044416 pixels up to level 0"),
    "triples": ([(4, 6, 1), (2, 3, 1)], r"spatial_shapes is .*, must be pairs"),
    "fractions": ([(4.9, 6.9), (2, 3)], r"spatial_shapes is .*, must be pairs of whole numbers"),
    "one pair": ([4, 6], r"spatial_shapes is \[4, 6\], must be pairs"),
    "none at all": (None, "spatial_shapes is None, must be pairs of whole numbers, or a tensor of them"),
    "a number": (5, "spatial_shapes is 5, must be pairs"),
    "sizes beyond 64 bits": ([(2**64, 4), (2, 3)], r"spatial_shapes is .*, must be pairs"),
    "a truth for a size": ([(24, True), (2, 3)], r"spatial_shapes is .*, must be pairs"),
}


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("change", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(
    ms_deform_attn: ModuleType, change: Callable[[dict[str, Any]], dict[str, Any]], message: str, *, grad_mode: bool
) -> None:
    arguments, _ = inputs()
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=f"ms_deform_attn: {message}"):
        ms_deform_attn.ms_deform_attn(**{**arguments, **change(arguments)})


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_argument_is_refused_without_data_too(ms_deform_attn: ModuleType, name: str) -> None:
    """Tracing sees shapes and dtypes alone; what it lets through would fail when the compiled code runs."""
    arguments = {name: t.to("meta") for name, t in inputs()[0].items()}
    with pytest.raises(RuntimeError, match="ms_deform_attn: [a-z_]+ (is|has)"):
        ms_deform_attn.ms_deform_attn(**{**arguments, **BAD_CALLS[name][0](arguments)})


@pytest.mark.parametrize(("shapes", "message"), BAD_NUMBERS.values(), ids=BAD_NUMBERS.keys())
def test_maps_that_are_not_those_of_value_are_refused_before_any_read(
    ms_deform_attn: ModuleType, shapes: list[tuple[int, ...]], message: str
) -> None:
    arguments, _ = inputs()
    with pytest.raises(RuntimeError, match=f"ms_deform_attn: {message}"):
        ms_deform_attn.ms_deform_attn(**{**arguments, "spatial_shapes": shapes})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.half(), "grad is Half.* dtype of value, Float"),
        (lambda g: g[:, :2], r"grad has shape \(2, 2, 8\), must be \(2, 3, 8\)"),
        (lambda g: g.unflatten(2, (2, 4)), r"grad has shape \(2, 3, 2, 4\)"),
    ],
    ids=["dtype", "queries", "dims"],
)
def test_a_bad_gradient_is_named_with_its_value(
    ms_deform_attn: ModuleType, change: Callable[[Tensor], Tensor], message: str
) -> None:
    arguments, grad = inputs()
    value, shapes, locations, weights = arguments.values()
    with pytest.raises(RuntimeError, match=f"ms_deform_attn_backward: {message}"):
        ms_deform_attn.ms_deform_attn_backward(value, shapes, starts_of(shapes), locations, weights, change(grad), 64)


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("of", CASE.gradients)
def test_second_derivatives_raise(ms_deform_attn: ModuleType, of: str, *, allow_unused: bool) -> None:
    """None in place of a second derivative would be taken for zero."""
    arguments, _ = inputs()
    leaf = arguments[of].requires_grad_()
    out = ms_deform_attn.ms_deform_attn(**arguments)
    (first,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match="ms_deform_attn has no second derivative"):
        torch.autograd.grad(first.sum(), leaf, allow_unused=allow_unused)


# torch around the op


def raw(grad: bool = True, shape: tuple[int, ...] = SHAPE, **change: torch.dtype) -> tuple[Any, ...]:  # noqa: FBT001, FBT002
    arguments, _ = inputs(shape)
    for name in CASE.gradients:
        arguments[name] = arguments[name].to(change.get(name, torch.float32)).requires_grad_(grad)
    value, shapes, locations, weights = arguments.values()
    return value, shapes, starts_of(shapes), locations, weights


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "forward": ("ms_deform_attn", raw),
    "forward without starts": ("ms_deform_attn", lambda: (*raw()[:2], None, *raw()[3:])),
    "forward of half values": ("ms_deform_attn", lambda: raw(value=torch.bfloat16)),
    "forward of nothing": ("ms_deform_attn", lambda: raw(shape=EMPTY["no queries"])),
    "backward": ("ms_deform_attn_backward", lambda: (torch.ones(2, 3, 8), *raw(grad=False), True, True, True)),
    "backward, value alone": (
        "ms_deform_attn_backward",
        lambda: (torch.ones(2, 3, 8), *raw(grad=False), True, False, False),
    ),
    "backward, locations alone": (
        "ms_deform_attn_backward",
        lambda: (torch.ones(2, 3, 8).half(), *raw(grad=False, value=torch.half), False, True, False),
    ),
    "backward, weights alone": (
        "ms_deform_attn_backward",
        lambda: (torch.ones(2, 3, 8), *raw(grad=False), False, False, True),
    ),
}


@pytest.mark.parametrize(("name", "arguments"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(ms_deform_attn: ModuleType, name: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
    op = getattr(ms_deform_attn.functional.ops, name).default
    assert set(torch.library.opcheck(op, arguments()).values()) == {"SUCCESS"}


@pytest.mark.parametrize("shapes", ["tensor", "list"])
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
def test_compiled_is_eager_bit_for_bit(ms_deform_attn: ModuleType, dtype: torch.dtype, shapes: str) -> None:
    """M20: neither compiled nor captured. The numbers in the tensor of shapes are not asked for."""
    torch.compiler.reset()
    compiled = torch.compile(ms_deform_attn.ms_deform_attn, fullgraph=True)
    for shape in (SHAPE, (2, 5, *SHAPE[2:]), (1, 7, 3, 16, 2, 3, 3, 2, 2)):
        arguments, grad = inputs(shape, dtype)
        eager = run(ms_deform_attn.ms_deform_attn, arguments, grad)
        if shapes == "list":
            arguments["spatial_shapes"] = [tuple(pair) for pair in arguments["spatial_shapes"].tolist()]
        assert all(map(torch.equal, run(compiled, arguments, grad), eager))


@pytest.mark.parametrize("call", ["ms_deform_attn_packed", "ms_deform_attn_forward", "ms_deform_attn_backward"])
def test_the_other_calls_are_right_compiled(ms_deform_attn: ModuleType, call: str) -> None:
    torch.compiler.reset()
    arguments, grad = inputs()
    value, shapes, locations, weights = arguments.values()
    given: dict[str, tuple[Any, ...]] = {
        "ms_deform_attn_packed": (value, shapes, locations.flatten(3, 4), weights.flatten(3), [2, 2]),
        "ms_deform_attn_forward": (value, shapes, starts_of(shapes), locations, weights, 64),
        "ms_deform_attn_backward": (value, shapes, starts_of(shapes), locations, weights, grad, 64),
    }
    function = getattr(ms_deform_attn, call)
    compiled: Callable[..., Any] = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(*given[call]), function(*given[call]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_leaves_the_dtypes(ms_deform_attn: ModuleType, dtype: torch.dtype) -> None:
    """M09: an autocast that somebody entered leaked in."""
    arguments, grad = inputs(dtype=dtype)
    arguments["attention_weights"] = arguments["attention_weights"].float()
    with torch.autocast("cpu", torch.bfloat16):
        inside = run(ms_deform_attn.ms_deform_attn, arguments, grad)
    assert inside[0].dtype == dtype
    assert all(map(torch.equal, inside, run(ms_deform_attn.ms_deform_attn, arguments, grad)))


def test_torch_func_is_refused_by_name(ms_deform_attn: ModuleType) -> None:
    arguments, _ = inputs()
    value, *rest = arguments.values()
    with pytest.raises(NotImplementedError, match="ms_deform_attn: torch.func transforms"):
        torch.func.grad(lambda value: ms_deform_attn.ms_deform_attn(value, *rest).sum())(value)


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_forward_mode_is_refused_and_no_tangent_is_dropped(ms_deform_attn: ModuleType, *, grad_mode: bool) -> None:
    arguments, _ = inputs()
    value, *rest = arguments.values()
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(value, torch.ones_like(value))  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="jvp"):
            ms_deform_attn.ms_deform_attn(dual, *rest)


@pytest.mark.parametrize("shapes", ["tensor", "list"])
def test_inference_mode_gives_the_same_bits(ms_deform_attn: ModuleType, shapes: str) -> None:
    """Evaluated, a model is trained again: nothing that was made for inference may be saved for backward."""
    arguments, _ = inputs()
    if shapes == "list":
        arguments["spatial_shapes"] = arguments["spatial_shapes"].tolist()
    arguments["value"].requires_grad_()
    with torch.inference_mode():
        found = ms_deform_attn.ms_deform_attn(**arguments)
    expected = ms_deform_attn.ms_deform_attn(**arguments)
    assert torch.equal(found, expected)
    expected.sum().backward()
    with torch.no_grad():
        assert not ms_deform_attn.ms_deform_attn(**arguments).requires_grad


def test_fake_tensors_leave_no_trace(ms_deform_attn: ModuleType) -> None:
    arguments, _ = inputs()
    arguments["spatial_shapes"] = arguments["spatial_shapes"].tolist()
    with FakeTensorMode() as mode:
        fakes = {name: mode.from_tensor(t) if isinstance(t, Tensor) else t for name, t in arguments.items()}
        shape = ms_deform_attn.ms_deform_attn(**fakes).shape
    assert ms_deform_attn.ms_deform_attn(**arguments).shape == shape


# The layer in a model of transformers


LAYER = "MultiScaleDeformableAttention"
MarkedAttention = kernels.use_kernel_forward_from_hub(LAYER)(modeling_deformable_detr.MultiScaleDeformableAttention)


def detr(*, two_stage: bool = False) -> nn.Module:
    """Make a small Deformable-DETR of random weights."""
    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],  # type: ignore[call-arg]
    )
    config = DeformableDetrConfig(
        backbone_config=backbone,
        num_labels=3,  # type: ignore[call-arg] # taken by a base class
        num_queries=9,
        two_stage=two_stage,
        two_stage_num_proposals=9,
        with_box_refine=two_stage,
        d_model=32,
        encoder_layers=2,
        encoder_ffn_dim=32,
        encoder_attention_heads=4,
        decoder_layers=2,
        decoder_ffn_dim=32,
        decoder_attention_heads=4,
        dropout=0.0,
    )
    torch.manual_seed(0)
    model: nn.Module = DeformableDetrForObjectDetection(config)
    for name, parameter in model.named_parameters():
        if "sampling_offsets" in name:  # at first whole pixels, where the gradient jumps and rounding takes a side
            nn.init.uniform_(parameter, -0.4, 0.4)
    return model.train()


def swapped(model: nn.Module, repo: Path) -> nn.Module:
    """Swap every deformable attention of a model, and prove that each was."""
    found = kernelized(model, {LAYER: LAYER}, repo)
    assert swapped_layers(found) == 4 * [LAYER]
    return found


def step(model: nn.Module, forward: Callable[..., Any], dtype: torch.dtype) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Predict, and take the gradients of all parameters."""
    generator = torch.Generator().manual_seed(3)
    pixels = torch.randn(2, 3, 64, 96, generator=generator).to(dtype)
    mask = torch.ones(2, 64, 96, dtype=torch.int64)
    mask[1, :, 70:] = 0  # the second image is narrower
    model.zero_grad()
    found = forward(pixel_values=pixels, pixel_mask=mask)
    (found.logits.float().square().sum() + found.pred_boxes.float().square().sum()).backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found.logits.detach(), found.pred_boxes.detach(), grads


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # transformers' own, when compiled
@pytest.mark.parametrize(
    ("two_stage", "compiled"),
    [(False, False), (True, False), (False, True)],
    ids=["one stage", "two stages", "one stage, compiled"],
)
def test_a_kernelized_deformable_detr_equals_itself(
    ms_deform_attn_repo: Path, *, two_stage: bool, compiled: bool
) -> None:
    torch.compiler.reset()
    theirs = detr(two_stage=two_stage)
    ours = swapped(copy.deepcopy(theirs), ms_deform_attn_repo)
    expected = step(theirs, theirs, torch.float32)
    found = step(ours, torch.compile(ours) if compiled else ours, torch.float32)
    torch.testing.assert_close(found[:2], expected[:2], rtol=1e-4, atol=1e-4)
    assert found[2].keys() == expected[2].keys()
    for name, grad in expected[2].items():
        torch.testing.assert_close(found[2][name], grad, rtol=1e-3, atol=1e-3 * float(grad.abs().max()) + 1e-5)


def test_a_two_stage_model_runs_in_bfloat16(ms_deform_attn_repo: Path) -> None:
    """M11: proposals are made in float32 there, so locations are float32 beside values that are not."""
    model = swapped(detr(two_stage=True), ms_deform_attn_repo).bfloat16()
    logits, boxes, grads = step(model, model, torch.bfloat16)
    assert logits.isfinite().all()
    assert boxes.isfinite().all()
    assert all(grad.isfinite().all() for grad in grads.values())


def test_a_model_under_autocast_trains(ms_deform_attn_repo: Path) -> None:
    model = swapped(detr(), ms_deform_attn_repo)
    with torch.autocast("cpu", torch.bfloat16):
        logits, boxes, grads = step(model, model, torch.float32)
    assert logits.isfinite().all()
    assert boxes.isfinite().all()
    assert all(grad.isfinite().all() and grad.dtype == torch.float32 for grad in grads.values())


def test_the_layer_takes_half_weights_beside_float_values(ms_deform_attn: ModuleType) -> None:
    arguments, grad = inputs()
    value, shapes, locations, weights = arguments.values()
    layer = ms_deform_attn.layers.MultiScaleDeformableAttention()
    pairs = [tuple(pair) for pair in shapes.tolist()]
    found = layer(value, shapes, pairs, starts_of(shapes), locations, weights.bfloat16(), 64)
    expected = ms_deform_attn.ms_deform_attn(value, shapes, locations, weights.bfloat16().float())
    assert torch.equal(found, expected)
    assert grad.shape == found.shape


# Tiers


@functools.cache
def expected_of(sweep: str, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Compute once for all tiers."""
    return in_double(*tier.inputs(tier.SWEEPS[sweep](count), dtype))


@pytest.mark.parametrize("isa", TIERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)
@pytest.mark.parametrize("sweep", tier.SWEEPS)
def test_every_tier_is_right_for_every_tail(results_in_tier: InTier, isa: str, sweep: str, dtype: torch.dtype) -> None:
    for count in SIZES:
        shape = tier.SWEEPS[sweep](count)
        expected = expected_of(sweep, count, dtype)
        for name, a, b in zip(
            NAMES, results_in_tier("ms_deform_attn", isa)[f"{dtype} {sweep} {count}"], expected, strict=True
        ):
            assert_within(a, b, CASE.tolerance(shape, dtype, name))
