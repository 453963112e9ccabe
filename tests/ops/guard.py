"""Memory that ends, or begins, where the next byte is not ours: one byte too much ends the process.

Of an allocation of exact size a sanitizer sees the end.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import torch
from torch import Tensor

COLUMNS = (*range(1, 36), 63, 64, 65, 127, 129, 511, 1023, 2049)
"""Row lengths: every tail of a vector or two, and about powers of two."""

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
    """Rows of which the last is further off, in elements, than 32 bits tell: pages between them are never touched."""
    rows, columns = t.shape
    stride = 2**31 // (rows - 1) + 5
    count = (rows - 1) * stride + columns
    size = count * t.element_size()
    memory = at(pages(size) + -size % PAGE, count, t.dtype)
    return memory.as_strided(t.shape, (stride, 1)).copy_(t)


PLACES: tuple[Place, ...] = (before_a_guard, after_a_guard, at_the_end_of_an_allocation, with_gaps_before_a_guard)
