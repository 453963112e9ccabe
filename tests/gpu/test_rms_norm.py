"""`rms_norm` on a GPU, from the very file that was built on a machine without one.

`artifact.py` tells where it is. Neither the builder nor the client takes part, so that a machine with a GPU needs torch
and pytest alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest

pytest.importorskip("torch", reason="no torch is installed")
import torch
from torch import Tensor

from tests.gpu.artifact import load_artifact

if not torch.cuda.is_available():
    pytest.skip("this machine has no GPU that torch can use", allow_module_level=True)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES: dict[str, tuple[int, ...]] = {
    "no rows": (0, 64),
    "no columns": (4, 0),
    "one dim": (33,),
    "one element": (1, 1),
    "one column": (7, 1),
    "less than one vector": (3, 7),
    "one vector and one element": (5, 17),
    "ragged tail": (5, 1023),
    "three leading dims": (2, 3, 4, 96),
    "runs inside a block": (17000, 8),
    "query norm": (4096, 128),
    "a warp": (100, 1024),
    "two warps a row": (130, 2048),
    "model size": (4096, 4096),
    "widest in registers": (3, 32768),
    "few long rows": (3, 70001),
    "long rows in vectors": (2, 131072),
    "many rows": (300001, 16),
}


@pytest.fixture(scope="module")
def rms_norm() -> ModuleType:
    return load_artifact("rms-norm")


def make(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(shape[-1])
    noise = torch.randn(shape, generator=generator, device="cuda")
    x = torch.where(noise < 0, noise - 0.5, noise + 0.5)
    weight = 1 + 0.25 * torch.randn(shape[-1], generator=generator, device="cuda")
    return x.to(dtype), weight.to(dtype)


def in_double(x: Tensor, weight: Tensor | None, eps: float = 1e-6, weight_offset: float = 0.0) -> Tensor:
    wide = x.double()
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * (weight.double() + weight_offset)


def assert_close(found: Tensor, wanted: Tensor, columns: int) -> None:
    """Once to the dtype, and before that a sum of so many terms in float32."""
    to_dtype = torch.finfo(found.dtype).eps / 2
    smallest = torch.finfo(found.dtype).smallest_normal * torch.finfo(found.dtype).eps
    relative = to_dtype + (4 + math.sqrt(columns)) * 2.0**-24
    error = (found.double() - wanted).abs()
    assert bool((error <= smallest + relative * wanted.abs()).all()), float((error / wanted.abs()).max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_output_is_float64_rounded(rms_norm: ModuleType, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = make(*shape, dtype=dtype)
    for scale in (weight, weight.float(), None):
        y = rms_norm.rms_norm(x, scale, 1e-6)
        assert (y.shape, y.dtype, y.is_contiguous()) == (x.shape, dtype, True)
        assert_close(y, in_double(x, scale), shape[-1])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_offset_is_added_to_the_weight(rms_norm: ModuleType, dtype: torch.dtype) -> None:
    x, weight = make(64, 1000, dtype=dtype)
    found = rms_norm.rms_norm(x, weight, 1e-5, weight_offset=1.0)
    assert_close(found, in_double(x, weight, 1e-5, 1.0), 1000)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "columns of a wider one": lambda x: torch.cat((x, x), -1)[..., : x.shape[-1]],
    "one element on": lambda x: torch.cat((x, x), -1)[..., 1 : x.shape[-1] + 1],
    "every second row": lambda x: x.repeat_interleave(2, 0)[::2],
    "transposed": lambda x: x.t().contiguous().t(),
    "expanded": lambda x: x[:1].expand_as(x),
    "every second column": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "unaligned base": lambda x: torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape),
}


@pytest.mark.parametrize("columns", [1024, 1023])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_are_right(rms_norm: ModuleType, view: Callable[[Tensor], Tensor], columns: int) -> None:
    x, weight = make(37, columns, dtype=torch.bfloat16)
    seen = view(x)
    assert_close(rms_norm.rms_norm(seen, weight), in_double(seen, weight), columns)
    spread = weight.repeat_interleave(2)[::2]
    assert_close(rms_norm.rms_norm(x, spread), in_double(x, weight), columns)


@pytest.mark.parametrize("value", [1e-38, 1e-30, 1e-22, 1e-10, 1e19, 1e30, 3e38])
@pytest.mark.parametrize("columns", [7, 4096, 70000])
def test_rows_of_any_magnitude_have_unit_mean_square(rms_norm: ModuleType, value: float, columns: int) -> None:
    x = torch.full((3, columns), value, device="cuda")
    assert_close(rms_norm.rms_norm(x, eps=0.0), torch.ones_like(x).double(), columns)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_nan_and_infinity_stay_in_their_row(rms_norm: ModuleType, value: float) -> None:
    x, weight = make(5, 64)
    x[2, 3] = value
    y = rms_norm.rms_norm(x, weight)
    assert bool(y[2, 3].isnan())
    others = [0, 1, 3, 4]
    assert_close(y[others], in_double(x[others], weight), 64)


def test_zero_rows_give_zero(rms_norm: ModuleType) -> None:
    assert not rms_norm.rms_norm(torch.zeros(3, 100, device="cuda")).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(8, 96), (3, 5, 1023), (33,), (0, 16)], ids=str)
def test_gradients_are_those_of_float64(rms_norm: ModuleType, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, weight = (t.requires_grad_() for t in make(*shape, dtype=dtype))
    grad = torch.randn(shape, device="cuda").to(dtype)
    found = torch.autograd.grad(rms_norm.rms_norm(x, weight), (x, weight), grad)
    wide = tuple(t.detach().double().requires_grad_() for t in (x, weight))
    wanted = torch.autograd.grad(in_double(wide[0], wide[1]), wide, grad.double())
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=4 * torch.finfo(dtype).eps, atol=3e-5)


def test_the_stream_of_the_caller_is_taken(rms_norm: ModuleType) -> None:
    x, weight = make(4096, 4096, dtype=torch.bfloat16)
    wanted = in_double(2 * x, weight)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
        x.mul_(2)
        y = rms_norm.rms_norm(x, weight)
    side.synchronize()
    assert_close(y, wanted, 4096)


def test_a_graph_replays_it(rms_norm: ModuleType) -> None:
    x, weight = make(64, 512)
    rms_norm.rms_norm(x, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = rms_norm.rms_norm(x, weight)
    x.copy_(make(64, 512)[0].flip(0))
    graph.replay()
    assert_close(y, in_double(x, weight), 512)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has one GPU")
def test_the_device_of_the_tensor_is_taken(rms_norm: ModuleType) -> None:
    x, weight = (t.to("cuda:1") for t in make(64, 512))
    y = rms_norm.rms_norm(x, weight)
    assert y.device == x.device
    assert torch.cuda.current_device() == 0
    assert_close(y, in_double(x, weight), 512)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own import of inductor
def test_compiled_is_eager_bit_for_bit(rms_norm: ModuleType) -> None:
    x, weight = make(32, 96, dtype=torch.bfloat16)
    compiled = torch.compile(rms_norm.rms_norm, fullgraph=True)
    assert torch.equal(compiled(x, weight), rms_norm.rms_norm(x, weight))  # type: ignore[no-untyped-call]


def test_offsets_beyond_32_bits_are_right(rms_norm: ModuleType) -> None:
    columns = 4096
    rows = 2**31 // columns + 8
    if torch.cuda.mem_get_info()[0] < 4 * rows * columns * 2:
        pytest.skip("this GPU has too little memory")
    x = torch.ones(rows, columns, dtype=torch.bfloat16, device="cuda")
    x[-1] = torch.arange(columns, device="cuda").bfloat16()
    y = rms_norm.rms_norm(x)
    assert_close(y[-2:], in_double(x[-2:], None), columns)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("rms_norm: weight has 63 elements, last dim of x has 64", lambda op, x, w: op(x, w[:-1])),
        ("rms_norm: weight", lambda op, x, w: op(x, w.cpu())),
        ("rms_norm: x is", lambda op, x, w: op(x.double(), w.double())),
        ("rms_norm: eps is -1", lambda op, x, w: op(x, w, -1.0)),
        ("rms_norm: weight_offset is 1", lambda op, x, _: op(x, None, weight_offset=1.0)),
    ],
)
def test_a_bad_argument_is_named(
    rms_norm: ModuleType, words: str, call: Callable[[Callable[..., Tensor], Tensor, Tensor], Tensor]
) -> None:
    with pytest.raises(RuntimeError, match=words), torch.no_grad():
        call(rms_norm.rms_norm, *make(5, 64))


def test_ops_without_a_kernel_say_so_by_name(rms_norm: ModuleType) -> None:
    x, weight = make(5, 64)
    with pytest.raises(NotImplementedError, match="add_rms_norm: this version has no kernel for CUDA"):
        rms_norm.add_rms_norm(x, x, weight)
    with pytest.raises(NotImplementedError, match="gated_rms_norm: this version"):
        rms_norm.gated_rms_norm(x, x, weight)
    with pytest.raises(NotImplementedError, match="layer_norm: this version"):
        rms_norm.layer_norm(x, weight)
