"""Run layer_norm where the next byte is not ours: `python -m tests.ops.layer_norm_guarded REPO`.

Each result has to be that of a plain copy, bit for bit.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType

import kernels
import torch

from tests.ops.guard import (
    COLUMNS,
    PLACES,
    Place,
    at_the_end_of_an_allocation,
    before_a_guard,
    far_apart,
    with_gaps_before_a_guard,
)
from tests.ops.layer_norm_tier import results_of
from tests.ops.sweep import DTYPES


def check(op: ModuleType, shape: tuple[int, int], dtype: torch.dtype, place: Place) -> None:
    """Compare the op on placed arguments with the op on plain ones."""
    generator = torch.Generator().manual_seed(shape[1])
    x, grad = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    weight, bias = (torch.randn(shape[1], generator=generator).to(dtype) for _ in range(2))
    flat = before_a_guard if place in {with_gaps_before_a_guard, far_apart} else place
    expected = results_of(op, x, weight, bias, grad)
    for weight_dtype in {dtype, torch.float32}:
        placed = (flat(t.to(weight_dtype)) for t in (weight, bias))
        found = results_of(op, place(x), *placed, place(grad))
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a.to(b.dtype), b), f"{shape} {dtype} {place.__name__}"


def main(repo: Path) -> None:
    """Run every case, and say how many there were."""
    op = kernels.get_local_kernel(repo)
    count = 0
    for dtype, columns, rows, place in itertools.product(DTYPES, COLUMNS, (1, 5), PLACES):
        check(op, (rows, columns), dtype, place)
        count += 1
    for dtype, rows in itertools.product(DTYPES, (2, 3)):
        check(op, (rows, 77), dtype, far_apart)
        count += 1
    for dtype, shape in itertools.product(DTYPES, ((0, 64), (4, 0), (0, 0))):
        check(op, shape, dtype, at_the_end_of_an_allocation)
        count += 1
    print(f"{op.functional.ops.layer_norm_isa()}: {count} cases")  # noqa: T201 - for the test that started this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
