"""One case per op: what parity checks, gradient tests and benchmarks all read.

A case file (`tests/cases/<op>.py`, listed under `parity` in build.toml) defines `CASE: OpCase`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Arguments = Mapping[str, Any]
"""Keyword arguments of one call: tensors and plain numbers."""


@dataclass(frozen=True)
class Tolerance:
    """Elementwise error model: ``|actual - reference| <= absolute + relative * |reference|``."""

    relative: float
    absolute: float


@dataclass(frozen=True)
class Peer:
    """Another implementation of the op, timed beside ours in the same run. It takes the arguments of the op."""

    name: str
    call: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    differentiable: bool = True


@dataclass(frozen=True)
class OpCase:
    """Everything that is known about one op, apart from its implementation.

    op: the attribute of the kernel module that is called.
    shapes: named shapes; a name says why the shape is there ("ragged tail", "model size").
    bench_shapes: the names that a benchmark times.
    dtypes: names of torch dtypes, such as "bfloat16".
    make: (shape, dtype, generator) -> keyword arguments; deterministic for a seeded generator.
    reference: the same keyword arguments with every floating tensor in float64 -> float64 result(s). The op returns
        them in the dtype of the case; results that are not floating keep theirs.
    gradients: names of the tensor arguments that are differentiated.
    tolerance: (shape, dtype, name) -> error model of "output" ("output 0", "output 1", ... where there are several) or
        of the gradient of that argument.
    bytes_moved: (shape, dtype, backward) -> least bytes of that direction alone: each input and each output once.
    flops: (shape, backward) -> floating-point operations.
    """

    op: str
    shapes: Mapping[str, tuple[int, ...]]
    bench_shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    make: Callable[[tuple[int, ...], torch.dtype, torch.Generator], dict[str, Any]]
    reference: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    gradients: tuple[str, ...]
    tolerance: Callable[[tuple[int, ...], torch.dtype, str], Tolerance]
    bytes_moved: Callable[[tuple[int, ...], torch.dtype, bool], int]
    flops: Callable[[tuple[int, ...], bool], int]
    peers: tuple[Peer, ...] = field(default=())

    def call(self, kernel: ModuleType, arguments: Arguments) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Call the op of a loaded kernel."""
        result: torch.Tensor | tuple[torch.Tensor, ...] = getattr(kernel, self.op)(**arguments)
        return result
