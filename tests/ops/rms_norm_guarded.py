"""Run rms_norm on buffers that end, or begin, where the next byte is not ours: `rms_norm_guarded.py REPO`.

A page that nothing may touch stands on either side, so that one byte too much ends the process; of an allocation of
exact size a sanitizer sees the end. Each result has to be that of a plain copy, bit for bit.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import kernels
import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
COLUMNS = (*range(1, 36), 63, 64, 65, 127, 129, 511, 1023, 2049)
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: pages that nobody touches cost nothing

Place = Callable[[Tensor], Tensor]


def pages(size: int) -> int:
    """Map so many bytes between two pages that nothing may touch; they stay for the life of the process."""
    whole = -(-size // PAGE) * PAGE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    start = LIBC.mmap(None, whole + 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    assert start not in {None, ctypes.c_void_p(-1).value}, f"mmap: errno {ctypes.get_errno()}"
    for guard in (start, start + PAGE + whole):
        assert LIBC.mprotect(guard, PAGE, 0) == 0
    return int(start) + PAGE


def at(address: int, count: int, dtype: torch.dtype) -> Tensor:
    """View memory as elements."""
    return torch.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype=dtype)


def before_a_guard(t: Tensor) -> Tensor:
    size = t.numel() * t.element_size()
    return at(pages(size) + -size % PAGE, t.numel(), t.dtype).view(t.shape).copy_(t)


def after_a_guard(t: Tensor) -> Tensor:
    return at(pages(t.numel() * t.element_size()), t.numel(), t.dtype).view(t.shape).copy_(t)


def at_the_end_of_an_allocation(t: Tensor) -> Tensor:
    """Behind one element, so that no vector is aligned."""
    return torch.empty(t.numel() + 1, dtype=t.dtype)[1:].view(t.shape).copy_(t)


def with_gaps_before_a_guard(t: Tensor) -> Tensor:
    """Rows further apart than they are long."""
    rows, columns = t.shape
    wide = before_a_guard(torch.full(((rows - 1) * (columns + 3) + columns,), torch.nan, dtype=t.dtype))
    return wide.as_strided(t.shape, (columns + 3, 1)).copy_(t)


def far_apart(t: Tensor) -> Tensor:
    """Rows whose distance in elements does not fit in 32 bits: pages between them are never touched."""
    rows, columns = t.shape
    stride = 2**31 // (rows - 1) + 5
    count = (rows - 1) * stride + columns
    size = count * t.element_size()
    memory = at(pages(size) + -size % PAGE, count, t.dtype)
    return memory.as_strided(t.shape, (stride, 1)).copy_(t)


PLACES: tuple[Place, ...] = (before_a_guard, after_a_guard, at_the_end_of_an_allocation, with_gaps_before_a_guard)


def results_of(op: ModuleType, x: Tensor, weight: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = op.rms_norm(x, weight, 1e-6)
    return (y.detach(), *torch.autograd.grad(y, (x, weight), grad))


def check(op: ModuleType, shape: tuple[int, int], dtype: torch.dtype, place: Place) -> None:
    """Compare the op on placed arguments with the op on plain ones."""
    generator = torch.Generator().manual_seed(shape[1])
    x, grad = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    weight = torch.randn(shape[1], generator=generator).to(dtype)
    flat = before_a_guard if place in {with_gaps_before_a_guard, far_apart} else place
    expected = results_of(op, x, weight, grad)
    for weight_dtype in {dtype, torch.float32}:
        found = results_of(op, place(x), flat(weight.to(weight_dtype)), place(grad))
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
    print(f"{op.cpu_isa()}: {count} cases")  # noqa: T201 - for the test that started this


if __name__ == "__main__":
    main(Path(sys.argv[1]))
