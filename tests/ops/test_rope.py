"""The op rope. N numbers are reports from the field of what went wrong elsewhere. Its tiers: test_activation.py."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from tests.cases.rope import CASE, SHAPES, angles, reference
from tests.ops.compare import assert_within
from tests.ops.views import operators

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own

DTYPES = [getattr(torch, name) for name in CASE.dtypes]
SMALL = {name: shape for name, shape in SHAPES.items() if math.prod(shape) < 2**22}

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=CASE.dtypes)


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def results(call: Callable[..., Any], q: Tensor, k: Tensor, *grads: Tensor, **arguments: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    """Both results and both gradients."""
    q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
    turned = call(q, k, **arguments)
    return (*(t.detach() for t in turned), *torch.autograd.grad(turned, (q, k), grads))


def assert_right(activation: ModuleType, q: Tensor, k: Tensor, **arguments: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
    """Hold rope and its gradients against float64."""
    grads = draw(*q.shape, dtype=q.dtype, seed=3), draw(*k.shape, dtype=k.dtype, seed=4)
    found = results(activation.rope, q, k, *grads, **arguments)
    double = {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in arguments.items()
    }
    expected = results(reference, q.double(), k.double(), *(grad.double() for grad in grads), **double)
    for actual, wanted in zip(found, expected, strict=True):
        assert actual.dtype == q.dtype
        assert actual.is_contiguous()
        assert_within(actual, wanted, CASE.tolerance((), q.dtype, "output"))
    return found


def heads(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Draw q and k as models have them: heads next to each other in memory, seen as a dim before the tokens."""
    arguments = CASE.make(shape, dtype, torch.Generator().manual_seed(1))
    return arguments["q"], arguments["k"]


def tables(tokens: int, columns: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    cos, sin = angles(tokens, columns)
    return {"cos": cos.to(dtype), "sin": sin.to(dtype)}


# Numbers


@dtypes
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize("shape", SMALL.values(), ids=SMALL.keys())
def test_results_and_gradients_are_float64_rounded(
    activation: ModuleType, shape: tuple[int, ...], dtype: torch.dtype, *, interleaved: bool
) -> None:
    """Also for angles that differ between the elements of a pair."""
    q, k = heads(shape, dtype)
    assert_right(activation, q, k, **tables(shape[3], shape[4], dtype), interleaved=interleaved)
    free = {name: draw(shape[3], shape[4], seed=seed).clamp(-1, 1) for seed, name in enumerate(("cos", "sin"))}
    assert_right(activation, q, k, **free, interleaved=interleaved)


@dtypes
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize(("size", "rotary_dim"), [(80, 32), (34, 2), (67, 64), (1100, 1030)])
def test_a_part_of_a_head_is_turned_and_the_rest_copied(
    activation: ModuleType, size: int, rotary_dim: int, dtype: torch.dtype, *, interleaved: bool
) -> None:
    q, k = heads((2, 4, 2, 5, size), dtype)
    q[0, 0, 0, -1] = math.nan
    cos_sin = tables(5, rotary_dim, dtype)
    turned = activation.rope(q, k, **cos_sin, interleaved=interleaved)
    assert torch.equal(turned[0][..., rotary_dim:].nan_to_num(), q[..., rotary_dim:].nan_to_num())
    alone = activation.rope(q[..., :rotary_dim], k[..., :rotary_dim], **cos_sin, interleaved=interleaved)
    assert all(torch.equal(a[..., :rotary_dim], b) for a, b in zip(turned, alone, strict=True))
    assert_right(activation, q.nan_to_num(), k, **cos_sin, interleaved=interleaved)


@dtypes
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize("size", [2, 34, 64, 1030])
def test_a_column_for_each_pair_is_one_for_each_element(
    activation: ModuleType, size: int, dtype: torch.dtype, *, interleaved: bool
) -> None:
    q, k = heads((2, 4, 2, 5, size), dtype)
    once = {name: table[:, : size // 2] for name, table in tables(5, size, dtype).items()}
    repeated = {
        name: table.repeat_interleave(2, -1) if interleaved else table.repeat(1, 2) for name, table in once.items()
    }
    short = assert_right(activation, q, k, **once, rotary_dim=size, interleaved=interleaved)
    grads = draw(*q.shape, dtype=dtype, seed=3), draw(*k.shape, dtype=dtype, seed=4)
    long = results(activation.rope, q, k, *grads, **repeated, interleaved=interleaved)
    assert all(map(torch.equal, short, long))


@pytest.mark.parametrize("ids_dtype", [torch.int64, torch.int32], ids=["int64", "int32"])
@pytest.mark.parametrize(
    "position_ids",
    [[0, 1, 2, 3], [9, 0, 4, 4], [[3, 2, 1, 0]], [[5, 5, 5, 5], [0, 9, 1, 8]]],
    ids=["in order", "out of order and repeated", "one batch", "each batch its own"],
)
def test_any_position_ids_are_rows_of_the_tables(
    activation: ModuleType, position_ids: list[Any], ids_dtype: torch.dtype
) -> None:
    q, k = heads((2, 4, 2, 4, 32))
    ids = torch.tensor(position_ids, dtype=ids_dtype)
    whole = tables(10, 32)
    found = assert_right(activation, q, k, **whole, position_ids=ids)
    rows = {name: table[ids.long()] for name, table in whole.items()}
    assert all(map(torch.equal, found, assert_right(activation, q, k, **rows)))
    strided = torch.stack((ids, ids), -1)[..., 0]
    assert all(map(torch.equal, found, assert_right(activation, q, k, **whole, position_ids=strided)))


@dtypes
def test_a_quarter_turn_and_no_turn_are_exact(activation: ModuleType, dtype: torch.dtype) -> None:
    q, k = heads((1, 2, 1, 3, 8), dtype)
    zero, one = torch.zeros(3, 8), torch.ones(3, 8)
    assert all(map(torch.equal, activation.rope(q, k, one, zero), (q, k)))
    halves, _ = activation.rope(q, k, zero, one)
    assert torch.equal(halves, torch.cat((-q[..., 4:], q[..., :4]), -1))
    pairs, _ = activation.rope(q, k, zero, one, interleaved=True)
    assert torch.equal(pairs, torch.stack((-q[..., 1::2], q[..., ::2]), -1).flatten(-2))


def test_float32_is_the_formula_bit_for_bit(activation: ModuleType) -> None:
    q, k = heads((2, 4, 2, 17, 64))
    cos_sin: dict[str, Any] = tables(17, 64)
    assert all(map(torch.equal, activation.rope(q, k, **cos_sin), reference(q, k, **cos_sin)))


@dtypes
def test_float32_tables_serve_half_types(activation: ModuleType, dtype: torch.dtype) -> None:
    q, k = heads((1, 4, 2, 9, 34), dtype)
    assert_right(activation, q, k, **tables(9, 34))


@pytest.mark.parametrize("wanted", [0, 1], ids=["q", "k"])
def test_one_gradient_alone_has_the_same_bits(activation: ModuleType, wanted: int) -> None:
    leaves = list(heads((2, 4, 2, 9, 34)))
    grads = [torch.randn_like(leaf) for leaf in leaves]
    both = results(activation.rope, *leaves, *grads, **tables(9, 34))[2:]
    for needs in (leaves[wanted], *leaves):  # one leaf alone, then one result alone
        needs.requires_grad_()
        turned = activation.rope(*leaves, **tables(9, 34))
        (alone,) = torch.autograd.grad(turned[wanted], leaves[wanted], grads[wanted])
        assert torch.equal(alone, both[wanted])


@pytest.mark.usefixtures("threads")
@dtypes
def test_bits_do_not_depend_on_the_number_of_threads(activation: ModuleType, dtype: torch.dtype) -> None:
    q, k = heads((3, 8, 2, 301, 64), dtype)
    grads = [torch.randn_like(t) for t in (q, k)]
    found = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        found.append(results(activation.rope, q, k, *grads, **tables(301, 64, dtype)))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


# Layout


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "as transformers has it": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "part of a fused projection": lambda x: torch.cat((x, x), 1)[:, x.shape[1] :],
    "part of a head": lambda x: torch.cat((x, x), -1)[..., 3 : 3 + x.shape[-1]],
    "every second element": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "every second token": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one head repeated": lambda x: x[:, :1].expand(x.shape),
    "one element repeated (N11)": lambda x: x[..., :1].expand(x.shape),
    "heads behind elements": lambda x: x.transpose(1, 3).contiguous().transpose(1, 3),
}


@pytest.mark.parametrize("unsqueeze_dim", [1, 2, -2])
@dtypes
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_views_are_right_and_results_contiguous(
    activation: ModuleType, view: Callable[[Tensor], Tensor], dtype: torch.dtype, unsqueeze_dim: int
) -> None:
    q, k = draw(2, 4, 3, 34, dtype=dtype), draw(2, 4, 3, 34, dtype=dtype, seed=2)
    q, k = (q, k[:, :2]) if unsqueeze_dim == 1 else (q.transpose(1, 2), k[:, :2].transpose(1, 2))
    arguments: dict[str, Any] = {**tables(3, 34, dtype), "unsqueeze_dim": unsqueeze_dim}
    found = assert_right(activation, view(q), view(k), **arguments)
    grads = draw(*q.shape, dtype=dtype, seed=3), draw(*k.shape, dtype=dtype, seed=4)
    assert all(map(torch.equal, found, results(activation.rope, view(q).clone(), view(k).clone(), *grads, **arguments)))
    seen = results(activation.rope, q, k, *map(view, grads), **arguments)
    dense = results(activation.rope, q, k, *(view(grad).contiguous() for grad in grads), **arguments)
    assert all(map(torch.equal, seen, dense))


def test_strided_tables_are_right(activation: ModuleType) -> None:
    q, k = heads((2, 4, 2, 5, 34))
    cos_sin = tables(5, 34)
    grads = [torch.randn_like(t) for t in (q, k)]
    expected = results(activation.rope, q, k, *grads, **cos_sin)
    views: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda t: t.repeat_interleave(2, 0)[::2],
        lambda t: t.repeat_interleave(2, 1)[:, ::2],
        lambda t: t.t().contiguous().t(),
        lambda t: t.expand(2, 5, 34),
        lambda t: t.unsqueeze(0),
        lambda t: t.expand(2, 5, 34).transpose(0, 1).contiguous().transpose(0, 1),
    )
    for view in views:
        strided = {name: view(table) for name, table in cos_sin.items()}
        assert all(map(torch.equal, results(activation.rope, q, k, *grads, **strided), expected))


def test_views_are_not_copied(activation: ModuleType) -> None:
    q, k = heads((2, 4, 2, 5, 34))
    assert "aten::clone" not in operators(lambda: activation.rope(q, k, **tables(5, 34)))


def test_offsets_beyond_32_bits_are_right(activation: ModuleType) -> None:
    """N15, N16: products of sizes that do not fit in 32 bits."""
    shape = (2, 2, 2, 34)
    near = draw(*shape, dtype=torch.bfloat16), draw(*shape, dtype=torch.bfloat16, seed=2)
    grads = near[::-1]
    expected = results(activation.rope, *near, *grads, **tables(2, 34))

    def far(x: Tensor) -> Tensor:
        memory = torch.empty(2**31 + 200, dtype=torch.bfloat16)  # untouched pages cost no memory
        return memory.as_strided(shape, (2**31, 100, 50, 1)).copy_(x)

    q, k, grad_q, grad_k = map(far, (*near, *grads))
    assert all(map(torch.equal, results(activation.rope, q, k, grad_q, grad_k, **tables(2, 34)), expected))

    tokens = 2**31 // 128 + 2
    one, angle = near[0][:1, :1, :1].repeat(1, 1, 1, 4)[..., :128], torch.ones(1, 128)
    many, _ = activation.rope(
        one.expand(1, 1, tokens, 128), one[:, :0].expand(1, 0, tokens, 128), *(angle.expand(tokens, 128),) * 2
    )
    first, _ = activation.rope(one, one, angle, angle)
    assert torch.equal(many[:, :, -2:], first.expand(1, 1, 2, 128))


# Errors


def call(op: Callable[..., Any], x: Tensor, **changed: Any) -> object:  # noqa: ANN401
    """Call with q and k of x, (2, 4, 3, 8), and tables that fit, but for what is changed."""
    arguments = {"q": x, "k": x, "cos": x[0, 0], "sin": x[0, 0], **changed}
    return op(**arguments)


BAD_CALLS: dict[str, tuple[Callable[[Tensor], dict[str, Any]], str]] = {
    "q of doubles": (lambda x: {"q": x.double()}, "q is (Double|torch.float64)"),
    "k of another dtype": (lambda x: {"k": x.half()}, "k is (Half|torch.float16), must be the dtype of q"),
    "q of three dims": (lambda x: {"q": x[0]}, r"q has shape \(4, 3, 8\), must have four dims"),
    "k of another number of tokens": (
        lambda x: {"k": x[:, :, :2]},
        r"k has shape \(2, 4, 2, 8\), must be that of q, \(2, 4, 3, 8\), but for dim 1, the heads",
    ),
    "k of another number of batches": (lambda x: {"k": x[:1]}, r"k has shape \(1, 4, 3, 8\)"),
    "k of other heads": (lambda x: {"k": x[..., :6], "rotary_dim": 6, "cos": x[0, 0, :, :6]}, "k has shape"),
    "heads in dim 3": (lambda _: {"unsqueeze_dim": 3}, "unsqueeze_dim is 3, must be 1 or 2"),
    "an odd rotary_dim": (lambda _: {"rotary_dim": 7}, "rotary_dim is 7, must be even and positive"),
    "no rotary_dim": (lambda _: {"rotary_dim": 0}, "rotary_dim is 0, must be even and positive"),
    "a rotary_dim too large": (lambda _: {"rotary_dim": 16}, "rotary_dim is 16, last dim of q has 8 elements"),
    "tables of other columns": (lambda _: {"rotary_dim": 6}, "cos has 8 columns, must have rotary_dim, 6, or half"),
    "sin of other columns": (lambda x: {"sin": x[0, 0, :, :6]}, "sin has 6 columns, must have rotary_dim, 8"),
    "tables of another dtype": (
        lambda x: {"cos": x[0, 0].double()},
        "cos is (Double|torch.float64), must be (Float|float32) or the dtype of q",
    ),
    "sin of another dtype than cos": (
        lambda x: {"q": x.half(), "k": x.half(), "sin": x[0, 0].half()},
        "sin is (Half|torch.float16), must be the dtype of cos",
    ),
    "sin of another shape than cos": (lambda x: {"sin": x[0, 0, :1]}, r"sin has shape \(1, 8\), must be the shape"),
    "tables of another number of tokens": (
        lambda x: {"cos": x[0, 0, :2], "sin": x[0, 0, :2]},
        r"cos has shape \(2, 8\), q has 2 batches of 3 tokens",
    ),
    "tables of another number of batches": (
        lambda x: {"cos": x[0, :3], "sin": x[0, :3]},
        r"cos has shape \(3, 3, 8\), q has 2 batches of 3 tokens",
    ),
    "tables with a dim of heads": (lambda x: {"cos": x, "sin": x}, r"cos has shape \(2, 4, 3, 8\), q has"),
    "position_ids that are no integers": (
        lambda x: {"position_ids": x[0, 0, :, 0]},
        "position_ids is (Float|torch.float32), must be",
    ),
    "position_ids for another number of tokens": (
        lambda x: {"position_ids": x[0, 0, 0].long()},
        r"position_ids has shape \(8,?\), q has 2 batches of 3 tokens",
    ),
    "position_ids and a row for each token of each batch": (
        lambda x: {"position_ids": x[0, 0, :, 0].long(), "cos": x[:, 0], "sin": x[:, 0]},
        r"cos has shape \(2, 3, 8\), must have two dims with position_ids",
    ),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize(("changed", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_bad_argument_is_named_with_its_value(
    activation: ModuleType, changed: Callable[[Tensor], dict[str, Any]], message: str, device: str, *, grad_mode: bool
) -> None:
    """Without data too: what tracing lets through would fail when the compiled code runs."""
    x = torch.ones(2, 4, 3, 8, device=device)
    with torch.set_grad_enabled(grad_mode), pytest.raises(RuntimeError, match=f"rope: {message}"):
        call(activation.rope, x, **changed(x))


@pytest.mark.parametrize("which", ["k", "cos", "sin", "position_ids"])
def test_another_device_is_named(activation: ModuleType, which: str) -> None:
    x = torch.ones(2, 4, 3, 8)
    right = {"k": x, "cos": x[0, 0], "sin": x[0, 0], "position_ids": x[0, 0, :, 0].long()}
    with pytest.raises(RuntimeError, match=f"rope: {which} is on meta, must be on the device of q, cpu"):
        call(activation.rope, x, **{**right, which: right[which].to("meta")})


@pytest.mark.parametrize(("position", "batch"), [(-1, 0), (10, 0), (10, 1), (2**31 + 1, 1)])
def test_a_position_without_a_row_is_named(activation: ModuleType, position: int, batch: int) -> None:
    """It would be read from memory that is not the table's."""
    q, k = heads((2, 4, 2, 4, 32))
    ids = torch.zeros(2, 4, dtype=torch.int64)
    ids[batch, 2] = position
    with pytest.raises(RuntimeError, match=f"rope: position_ids has {position}, cos has 10 rows"):
        activation.rope(q, k, **tables(10, 32), position_ids=ids)


@pytest.mark.parametrize("through", ["function", "raw op"])
@pytest.mark.parametrize("which", ["cos", "sin"])
def test_tables_that_want_a_gradient_are_refused(activation: ModuleType, which: str, through: str) -> None:
    """None in place of their gradient would be taken for zero."""
    q, k = heads((1, 2, 1, 3, 8))
    cos_sin = tables(3, 8)
    cos_sin[which].requires_grad_()
    op = activation.rope if through == "function" else raw(activation)
    with pytest.raises(NotImplementedError, match=f"rope: {which} requires grad"):
        op(q, k, *cos_sin.values())
    with torch.no_grad():
        op(q, k, *cos_sin.values())


def raw(activation: ModuleType) -> Callable[..., Any]:
    """Call the raw op with the options of its public function."""
    return lambda q, k, cos, sin: activation.functional.ops.rope(q, k, cos, sin, None, cos.shape[-1], False, 1)


def test_a_backward_of_nothing_is_refused(activation: ModuleType) -> None:
    for device in ("cpu", "meta"):
        table = torch.ones(3, 8, device=device)
        with pytest.raises(RuntimeError, match="rope_backward: grad_q and grad_k are both missing"):
            activation.functional.ops.rope_backward(None, None, table, table, None, 8, False, 1)


def test_an_argument_of_another_type_is_named(activation: ModuleType) -> None:
    q, k = heads((1, 2, 1, 3, 8))
    cos, sin = tables(3, 8).values()
    for arguments, name in (((q, None, cos, sin), "k"), ((q, k, None, sin), "cos"), ((q, k, cos, 1.0), "sin")):
        with pytest.raises(TypeError, match=f"rope: {name} is (None|1.0), must be a tensor$"):
            activation.rope(*arguments)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_table_is_held_against_the_gradient_that_is_there(activation: ModuleType, device: str) -> None:
    grad, table = torch.ones(1, 2, 3, 8, device=device), torch.ones(4, 8, device=device)
    backward = activation.functional.ops.rope_backward
    with pytest.raises(RuntimeError, match=r"cos has shape \(4, 8\), grad_k has 1 batches of 3 tokens"):
        backward(None, grad, table, table, None, 8, False, 1)
    with pytest.raises(RuntimeError, match="cos is .*, must be .* or the dtype of grad_q, "):
        backward(grad.half(), None, table.bfloat16(), table.bfloat16(), None, 8, False, 1)


@pytest.mark.parametrize("allow_unused", [False, True])
@pytest.mark.parametrize("through", ["function", "raw op"])
def test_second_derivatives_raise(activation: ModuleType, through: str, *, allow_unused: bool) -> None:
    """None in place of a second derivative would be taken for zero."""
    q, k = (t.requires_grad_() for t in heads((1, 2, 1, 3, 8)))
    op = activation.rope if through == "function" else raw(activation)
    turned = op(q, k, *tables(3, 8).values())
    (dq,) = torch.autograd.grad(turned[0].square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="rope has no second derivative"):
        torch.autograd.grad(dq.sum(), q, allow_unused=allow_unused)


# torch around the op


def arguments(**changed: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The arguments of the raw op."""
    q, k = (t.requires_grad_() for t in heads((2, 4, 2, 3, 10)))
    whole = {"q": q, "k": k, **tables(3, 8), "ids": None, "size": 8, "interleaved": False, "dim": 1, **changed}
    return tuple(whole.values())


def backward_arguments(**changed: Any) -> tuple[Any, ...]:  # noqa: ANN401
    q, k = heads((2, 4, 2, 3, 10))
    return arguments(**{"q": q, "k": k, **changed})


OPCHECKS: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "forward": ("rope", arguments),
    "forward, interleaved": ("rope", lambda: arguments(interleaved=True)),
    "forward, tokens first": ("rope", lambda: arguments(q=draw(2, 3, 4, 10), k=draw(2, 3, 1, 10), dim=2)),
    "forward with positions": ("rope", lambda: arguments(ids=torch.tensor([[2, 0, 0]]))),
    "forward, a column a pair": ("rope", lambda: arguments(**tables(3, 4))),
    "forward of no tokens": ("rope", lambda: arguments(q=draw(2, 4, 0, 10), k=draw(2, 1, 0, 10), **tables(0, 8))),
    "backward": ("rope_backward", backward_arguments),
    "backward, q alone": ("rope_backward", lambda: backward_arguments(k=None)),
    "backward, k alone": ("rope_backward", lambda: backward_arguments(q=None)),
    "backward with positions": ("rope_backward", lambda: backward_arguments(ids=torch.tensor([2, 0, 0]))),
}


@pytest.mark.parametrize(("op", "make"), OPCHECKS.values(), ids=OPCHECKS.keys())
def test_opcheck_passes(activation: ModuleType, op: str, make: Callable[[], tuple[Any, ...]]) -> None:
    found = getattr(activation.functional.ops, op).default
    assert set(torch.library.opcheck(found, make()).values()) == {"SUCCESS"}


@dtypes
def test_compiled_is_eager_bit_for_bit(activation: ModuleType, dtype: torch.dtype) -> None:
    """N43."""
    for interleaved, ids in itertools.product((False, True), (None, torch.tensor([[4, 4, 0], [0, 1, 2]]))):
        torch.compiler.reset()
        call = functools.partial(activation.rope, interleaved=interleaved, position_ids=ids)
        compiled = torch.compile(call, fullgraph=True)
        for tokens, size in [(3, 34), (3, 64)]:
            q, k = heads((2, 4, 2, tokens, size), dtype)
            grads = [torch.randn_like(t) for t in (q, k)]
            cos_sin = tables(tokens if ids is None else 5, size)
            eager = results(call, q, k, *grads, **cos_sin)
            assert all(map(torch.equal, results(compiled, q, k, *grads, **cos_sin), eager))


def test_a_model_compiled_for_any_number_of_tokens_is_right(activation: ModuleType) -> None:
    torch.compiler.reset()
    compiled = torch.compile(activation.rope, fullgraph=True, dynamic=True)
    for tokens in (3, 7, 20):
        q, k = heads((2, 4, 2, tokens, 34))
        grads = [torch.randn_like(t) for t in (q, k)]
        eager = results(activation.rope, q, k, *grads, **tables(tokens, 34))
        assert all(map(torch.equal, results(compiled, q, k, *grads, **tables(tokens, 34)), eager))


def test_autocast_leaves_the_dtypes(activation: ModuleType) -> None:
    q, k = heads((2, 4, 2, 3, 34))
    expected = activation.rope(q, k, **tables(3, 34))
    with torch.autocast("cpu", torch.bfloat16):
        inside = activation.rope(q, k, **tables(3, 34))
    assert all(map(torch.equal, inside, expected))


def test_torch_func_is_refused_by_name(activation: ModuleType) -> None:
    q, k = heads((2, 4, 2, 3, 34))
    cos_sin = tables(3, 34)
    for transformed in (
        torch.func.grad(lambda q: activation.rope(q, k, **cos_sin)[0].sum()),
        torch.func.vmap(lambda q: activation.rope(q[None], k[:1], **cos_sin)),
    ):
        with pytest.raises(NotImplementedError, match="rope: torch.func transforms"):
            transformed(q)


@pytest.mark.parametrize("grad_mode", [True, False], ids=["grad", "no grad"])
def test_forward_mode_is_refused_and_no_tangent_is_dropped(activation: ModuleType, *, grad_mode: bool) -> None:
    q, k = heads((2, 4, 2, 3, 34))
    with torch.autograd.forward_ad.dual_level(), torch.set_grad_enabled(grad_mode):
        dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="jvp"):
            activation.rope(dual, k, **tables(3, 34))
