"""Run the package activation in the tier of HUBKERNELS_ISA: `python -m tests.ops.activation_tier REPO OUTPUT`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import kernels
import torch
from torch import Tensor

from tests.ops import sweep
from tests.ops.sweep import DTYPES, SIZES, digest

ROWS = 2
LARGE = (
    (2056, 4160),  # written around the caches, every row aligned
    (2056, 4161),  # most rows not
)


def activations(op: ModuleType) -> dict[str, Callable[..., Tensor]]:
    """Every function of one tensor."""
    return {
        "silu": op.silu,
        "gelu": op.gelu,
        "gelu tanh": functools.partial(op.gelu, approximate="tanh"),
        "quick_gelu": op.quick_gelu,
    }


def gated(op: ModuleType) -> dict[str, Callable[..., Tensor]]:
    """Every function of a gate and its up."""
    return {
        "silu": op.silu_and_mul,
        "gelu": op.gelu_and_mul,
        "gelu tanh": functools.partial(op.gelu_and_mul, approximate="tanh"),
    }


def draw(seed: int, *shape: int, dtype: torch.dtype) -> Tensor:
    """Draw elements of size 2."""
    return (2 * sweep.draw(shape, torch.Generator().manual_seed(seed))).to(dtype)


def with_gradients(
    call: Callable[..., object], *leaves: Tensor, compute: torch.dtype | None = None
) -> tuple[Tensor, ...]:
    """Outputs, and the gradients of the leaves for drawn ones of the outputs.

    compute: in this dtype, of the same numbers.
    """
    dtype = leaves[0].dtype
    leaves = tuple(leaf.detach().to(compute or dtype).requires_grad_() for leaf in leaves)
    result = call(*leaves)
    outputs = (result,) if isinstance(result, Tensor) else tuple(result)  # type: ignore[arg-type]
    grads = [draw(7 + i, *out.shape, dtype=dtype).to(out.dtype) for i, out in enumerate(outputs)]
    return (*(out.detach() for out in outputs), *torch.autograd.grad(outputs, leaves, grads))


def rope_inputs(pairs: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draw heads of two elements more than are turned, and angles of their own for each element."""
    shapes = {"q": (1, 2, ROWS, 2 * pairs + 2), "k": (1, 1, ROWS, 2 * pairs + 2)}
    heads = {name: draw(pairs, *shape, dtype=dtype) for name, shape in shapes.items()}
    tables = {name: draw(seed, ROWS, 2 * pairs, dtype=dtype) for seed, name in enumerate(("cos", "sin"))}
    return {**heads, **tables}


def small_results(
    op: ModuleType, dtype: torch.dtype, size: int, compute: torch.dtype | None = None
) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Results and gradients of every function, of rows of so many elements or pairs."""
    run = functools.partial(with_gradients, compute=compute)
    for name, call in activations(op).items():
        yield name, run(call, draw(size, ROWS, size, dtype=dtype))
    for name, call in gated(op).items():
        yield f"{name} packed", run(call, draw(size, ROWS, 2 * size, dtype=dtype))
        yield f"{name} apart", run(call, *draw(size, 2, ROWS, size, dtype=dtype))
    q, k, cos, sin = rope_inputs(size, dtype).values()
    for interleaved in (False, True):
        yield f"rope {interleaved}", run(functools.partial(op.rope, cos=cos, sin=sin, interleaved=interleaved), q, k)


def large_results(op: ModuleType, dtype: torch.dtype, rows: int, columns: int) -> Iterator[tuple[Tensor, ...]]:
    """The same, too large for the caches."""
    yield with_gradients(op.gelu, draw(1, rows, columns, dtype=dtype))
    yield with_gradients(op.silu_and_mul, draw(1, rows, 2 * columns, dtype=dtype))
    yield with_gradients(op.silu_and_mul, *draw(1, 2, rows, columns, dtype=dtype))
    even = columns - columns % 2
    q = draw(2, 1, 2, rows, columns, dtype=dtype)
    cos, sin = draw(3, 2, rows, even, dtype=dtype)
    for interleaved in (False, True):
        yield with_gradients(functools.partial(op.rope, cos=cos, sin=sin, interleaved=interleaved), q, q[:, :1])


def every_kind_of_float(dtype: torch.dtype) -> Tensor:
    """Every value of a half type, or float32 bit patterns: normal, subnormal, infinite, NaN."""
    if dtype != torch.float32:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    bits = torch.randint(-(2**31), 2**31, (1 << 18,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    return torch.cat([bits.view(torch.float32), torch.linspace(-120, 120, 1 << 18)])


def main(repo: Path, output: Path) -> None:
    """Compute every result and save it."""
    op = kernels.get_local_kernel(repo)
    results: dict[str, object] = {"isa": op.cpu_isa()}
    for dtype in DTYPES:
        for size in SIZES:
            results[f"{dtype} {size}"] = dict(small_results(op, dtype, size))
        for rows, columns in LARGE:
            found = [[*map(digest, each)] for each in large_results(op, dtype, rows, columns)]
            results[f"{dtype} {rows}x{columns}"] = found
        floats = every_kind_of_float(dtype)
        for name, call in activations(op).items():
            results[f"{dtype} floats {name}"] = with_gradients(call, floats)
    torch.save(results, output)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
