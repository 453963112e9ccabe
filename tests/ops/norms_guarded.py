"""Run the norms where the next byte is not ours: `python -m tests.ops.norms_guarded REPO`.

Each result has to be that of plain copies, bit for bit.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import ModuleType

import kernels
import torch

from tests.ops.guard import PLACES, Place, before_a_guard, far_apart, with_gaps_before_a_guard
from tests.ops.norms import NORMS, Norm
from tests.ops.sweep import DTYPES

COLUMNS = (1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1023, 2049)


def check(op: ModuleType, norm: Norm, shape: tuple[int, int], dtype: torch.dtype, place: Place) -> None:
    """Compare the op on placed arguments with the op on plain ones."""
    drawn = norm.draw(*shape, dtype=dtype)
    flat = before_a_guard if place in {with_gaps_before_a_guard, far_apart} else place
    expected = norm.run(op, drawn)
    placed = {name: flat(t) if name == "weight" else place(t) for name, t in drawn.items()}
    for name, found in norm.run(op, placed).items():
        assert torch.equal(found, expected[name]), f"{norm.case.op} {shape} {dtype} {place.__name__} {name}"
    if norm.case.op == "add_rms_norm":
        x, residual = place(drawn["x"]), place(drawn["residual"])
        op.add_rms_norm_(x, residual, flat(drawn["weight"]))
        assert torch.equal(x, expected["output 0"])
        assert torch.equal(residual, expected["output 1"])


def main(repo: Path) -> None:
    """Run every case, and say how many there were."""
    op = kernels.get_local_kernel(repo)
    count = 0
    for norm, dtype in itertools.product(NORMS.values(), DTYPES):
        for columns, rows, place in itertools.product(COLUMNS, (1, 5), PLACES):
            check(op, norm, (rows, columns), dtype, place)
            count += 1
        check(op, norm, (3, 77), dtype, far_apart)
        count += 1
    print(f"{op.cpu_isa()}: {count} cases")  # noqa: T201 - for the test that started this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
