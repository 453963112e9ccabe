"""Run ms_deform_attn where the next byte is not ours: `python -m tests.ops.ms_deform_attn_guarded REPO`.

Each result has to be that of a plain copy, bit for bit.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType

import kernels
import torch

from tests.cases.ms_deform_attn import CASE
from tests.ops.guard import Place, after_a_guard, at_the_end_of_an_allocation, before_a_guard
from tests.ops.ms_deform_attn_tier import hard_inputs, inputs, results_of
from tests.ops.sweep import DTYPES

PLACES: tuple[Place, ...] = (before_a_guard, after_a_guard, at_the_end_of_an_allocation)
SHAPES = (
    *((1, 7, 2, channels, 2, 2, 3, 1, 1) for channels in (*range(1, 36), 63, 64, 65, 112)),
    *((2, 2, 3, channels, 1, 9, 7) for channels in (16, 32, 48, 64, 112)),  # in place
    *((1, 5, 2, 16, points, 3, 5) for points in (*range(1, 20), 90)),
    *((1, queries, 2, 16, 3, 2, 3) for queries in (1, 63, 64, 65, 129)),
    (1, 777, 1, 16, 2, 9, 7),  # in chunks
)


def check(op: ModuleType, shape: tuple[int, ...], dtype: torch.dtype, place: Place) -> None:
    """Compare the op on placed arguments with the op on plain ones."""
    arguments, grad = inputs(shape, dtype)
    expected = results_of(op, arguments, grad)
    placed = {**arguments, **{name: place(arguments[name]) for name in CASE.gradients}}
    for a, b in zip(results_of(op, placed, place(grad)), expected, strict=True):
        assert torch.equal(a, b), f"{shape} {dtype} {place.__name__}"


def main(repo: Path) -> None:
    """Run every case, and say how many there were."""
    op = kernels.get_local_kernel(repo)
    count = 0
    for dtype, shape, place in itertools.product(DTYPES, SHAPES, PLACES):
        check(op, shape, dtype, place)
        count += 1
    for place in PLACES:  # a wrong address would be far away
        arguments, grad = hard_inputs()
        placed = {**arguments, **{name: place(arguments[name]) for name in CASE.gradients}}
        results_of(op, placed, place(grad))
        count += 1
    print(f"{op.cpu_isa()}: {count} cases")  # noqa: T201 - for the test that started this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
