"""Run the package activation where the next byte is not ours: `python -m tests.ops.activation_guarded REPO`.

Each result has to be that of a plain copy, bit for bit.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import kernels
import torch
from torch import Tensor

from tests.ops.guard import (
    COLUMNS,
    PLACES,
    Place,
    at_the_end_of_an_allocation,
    before_a_guard,
    far_apart,
    with_gaps_before_a_guard,
)
from tests.ops.sweep import DTYPES


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])).to(dtype)


def check(call: Callable[..., object], leaves: tuple[Tensor, ...], place: Place) -> None:
    """Compare a call on placed arguments and gradients with one on plain ones."""
    expected = results_of(call, leaves, lambda t: t)
    found = results_of(call, tuple(place(leaf) for leaf in leaves), place)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b), f"{call} {[tuple(leaf.shape) for leaf in leaves]} {place.__name__}"


def results_of(call: Callable[..., object], leaves: tuple[Tensor, ...], place: Place) -> tuple[Tensor, ...]:
    leaves = tuple(leaf.detach().requires_grad_() for leaf in leaves)
    result = call(*leaves)
    outputs = (result,) if isinstance(result, Tensor) else tuple(result)  # type: ignore[arg-type]
    grads = []
    for out in outputs:
        if out.numel() == 0:
            grads.append(torch.empty_like(out))
            continue
        rows = draw(*out.shape, dtype=out.dtype).view(-1, out.shape[-1])  # what a place takes
        placed = place(rows)
        grads.append(placed.as_strided(out.shape, strides(out, placed.stride(0))))
    return (*(out.detach() for out in outputs), *torch.autograd.grad(outputs, leaves, grads))


def strides(out: Tensor, row: int) -> tuple[int, ...]:
    """Of rows that are so far apart, in the shape of a result."""
    found, step = [1], row
    for size in reversed(out.shape[:-1]):
        found.append(step)
        step *= size
    return tuple(reversed(found))


def check_rope(op: ModuleType, pairs: int, tokens: int, dtype: torch.dtype, place: Place) -> None:
    """As `check`, of both kinds of pairs, with tables that end where they may."""
    q, k, cos, sin = (draw(tokens, 2 * pairs, dtype=dtype) for _ in range(4))
    flat = before_a_guard if place in {with_gaps_before_a_guard, far_apart} else place
    for interleaved, once in itertools.product((False, True), repeat=2):
        columns = pairs if once else 2 * pairs
        placed = [flat(table[:, :columns].contiguous()) for table in (cos, sin)]

        def call(q: Tensor, k: Tensor, tables: list[Tensor] = placed, way: bool = interleaved) -> object:  # noqa: FBT001
            heads = (x.view(1, 1, tokens, 2 * pairs) for x in (q, k))
            return op.rope(*heads, *tables, rotary_dim=2 * pairs, interleaved=way)

        check(call, (q, k), place)


def main(repo: Path) -> None:
    """Run every case, and say how many there were."""
    op = kernels.get_local_kernel(repo)
    count = 0
    for dtype, columns, rows, place in itertools.product(DTYPES, COLUMNS, (1, 3), PLACES):
        check(op.gelu, (draw(rows, columns, dtype=dtype),), place)
        check(op.silu_and_mul, (draw(rows, 2 * columns, dtype=dtype),), place)
        check(op.silu_and_mul, (draw(rows, columns, dtype=dtype), draw(rows, columns, dtype=dtype)), place)
        check_rope(op, columns, rows, dtype, place)
        count += 4
    for dtype, rows in itertools.product(DTYPES, (2, 3)):
        check(op.gelu, (draw(rows, 77, dtype=dtype),), far_apart)
        check(op.silu_and_mul, (draw(rows, 154, dtype=dtype),), far_apart)
        check_rope(op, 77, rows, dtype, far_apart)
        count += 3
    for dtype, shape in itertools.product(DTYPES, ((0, 64), (4, 0), (0, 0))):
        check(op.gelu, (draw(*shape, dtype=dtype),), at_the_end_of_an_allocation)
        check(op.silu_and_mul, (draw(*shape, dtype=dtype),), at_the_end_of_an_allocation)
        count += 2
    print(f"{op.cpu_isa()}: {count} cases")  # noqa: T201 - for the test that started this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
