"""In the fresh process: the task `parity`, a kernel beside its float64 reference."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.cells import Cell, as_tuple, call_with_gradients, cells, differentiable, load_case
from hubkernels.check.client import Count
from hubkernels.check.loaded import load_kernel
from hubkernels.check.opcase import Tolerance
from hubkernels.model.digest import METADATA

_SEED = 0
_PIECE = 1 << 14  # elements compared at a time: temporaries stay in the cache, 7 times faster at 4096x4096


@dataclass(frozen=True)
class Expected:
    """What float64 says of one cell; the cotangents have the dtype of the cell."""

    arguments: dict[str, Any]
    outputs: tuple[Tensor, ...]
    cotangents: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]


@dataclass(frozen=True)
class Tally:
    """One piece of a comparison. stray: elements that are finite on one side only, or differ in their infinity."""

    stray: int
    new_nan: int
    beyond: int
    worst: float
    error_squared: float
    size_squared: float


@dataclass(frozen=True)
class Verdict:
    """How one tensor compares. max_error: in units of the tolerance. Numbers are None where none can be told.

    relative_error: norm of the error over that of the reference, or as it is where the reference is all zero.
    """

    max_error: float | None
    relative_error: float | None
    problems: tuple[str, ...]


def compare(folder: str, cases: Sequence[str], count: Count) -> dict[str, Any]:
    """Compare one artifact with every cell of its cases."""
    kernel = load_kernel(Path(folder))
    every = [cell for file in cases for cell in cells(load_case(Path(file)))]
    rows = []
    for done, cell in enumerate(every):
        count(done, len(every), str(cell))
        rows += compare_cell(cell, kernel)
    return {"id": json.loads((Path(folder) / METADATA).read_bytes())["id"], "rows": rows}


def compare_cell(cell: Cell, kernel: ModuleType) -> list[dict[str, Any]]:
    """One row for each output and each gradient; a call that raises is one row too."""
    expected = expect(cell)

    def call(**arguments: Any) -> Any:  # noqa: ANN401 - tensors and plain numbers
        return cell.case.call(kernel, arguments)

    judged = list(judge_inference(cell, call, expected))
    if cell.case.gradients:
        judged += judge_training(cell, call, expected)
    where = {"op": cell.case.op, "shape_name": cell.shape_name, "shape": cell.shape, "dtype": cell.dtype_name}
    return [{**where, "what": what, **vars(verdict)} for what, verdict in judged]


def expect(cell: Cell) -> Expected:
    """Draw the arguments and run the reference on them in float64."""
    arguments = cell.arguments(_SEED)
    wide = {name: _widen(value) for name, value in arguments.items()}
    with torch.no_grad():
        outputs = as_tuple(cell.case.reference(**wide))
    cotangents = draw_cotangents(outputs, cell.dtype, _SEED)
    if not cell.case.gradients:
        return Expected(arguments, outputs, cotangents, ())
    _, gradients = call_with_gradients(
        cell.case.reference, wide, cell.case.gradients, [cotangent.double() for cotangent in cotangents]
    )
    whole = [torch.zeros_like(wide[n]) if g is None else g for n, g in zip(cell.case.gradients, gradients, strict=True)]
    return Expected(arguments, outputs, cotangents, tuple(whole))


def draw_cotangents(outputs: Sequence[Tensor], dtype: torch.dtype, seed: int) -> tuple[Tensor, ...]:
    """A gradient to start backward from, for each output that has one."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(out.shape, generator=generator).to(dtype) for out in differentiable(outputs))


def judge(actual: Tensor | None, expected: Tensor, dtype: torch.dtype, tolerance: Tolerance) -> Verdict:
    """Compare one tensor with its float64 reference: shape, dtype, device, then every element."""
    if actual is None:
        return Verdict(None, None, ("there is no gradient",))
    facts = (
        ("shape", tuple(actual.shape), tuple(expected.shape)),
        ("dtype", actual.dtype, dtype),
        ("device", actual.device, expected.device),
    )
    problems = tuple(f"{name} is {found}, must be {wanted}" for name, found, wanted in facts if found != wanted)
    if actual.shape != expected.shape or actual.device != expected.device:
        return Verdict(None, None, problems)
    return _judge_elements(actual.detach(), expected, tolerance, problems)


def _judge_elements(actual: Tensor, expected: Tensor, tolerance: Tolerance, problems: tuple[str, ...]) -> Verdict:
    pieces = zip(*(torch.split(whole.reshape(-1), _PIECE) for whole in (actual, expected)), strict=True)
    tallies = [_tally(found, wanted, tolerance) for found, wanted in pieces]
    stray, new_nan = sum(tally.stray for tally in tallies), sum(tally.new_nan for tally in tallies)
    if stray:
        problems += (f"{stray} elements are not finite where the reference is, or the reverse; {new_nan} are NaN",)
    beyond, worst = sum(tally.beyond for tally in tallies), max(tally.worst for tally in tallies)
    if beyond:
        problems += (f"{worst:.3g} x the tolerance, {beyond} of {actual.numel()} elements beyond it",)
    error, size = (math.fsum(getattr(t, name) for t in tallies) for name in ("error_squared", "size_squared"))
    relative = math.sqrt(error / (size or 1.0))
    return Verdict(_number(worst), _number(relative), problems)


def _tally(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> Tally:
    found = actual.double()
    rounded = expected.to(actual.dtype).double()  # infinite where the dtype cannot hold the reference
    both = found.isfinite() & rounded.isfinite()
    agree = both | (found == rounded) | (found.isnan() & rounded.isnan())
    wanted = torch.where(both, expected, 0.0)
    error = torch.where(both, (found - wanted).abs(), 0.0)
    units = torch.where(error == 0, 0.0, error / (tolerance.absolute + tolerance.relative * wanted.abs()))
    return Tally(
        stray=int((~agree).sum()),
        new_nan=int((found.isnan() & ~rounded.isnan()).sum()),
        beyond=int((~(units <= 1)).sum()),
        worst=float(units.max()) if units.numel() else 0.0,
        error_squared=float(error.square().sum()),
        size_squared=float(wanted.square().sum()),
    )


def judge_inference(cell: Cell, call: Callable[..., Any], expected: Expected) -> Iterator[tuple[str, Verdict]]:
    """Judge the outputs of a call that needs no gradient."""
    try:
        with torch.no_grad():
            outputs = as_tuple(call(**expected.arguments))
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything, and the other cells still count
        yield "output", _raised(error)
        return
    yield from _judge_outputs(cell, "output", outputs, expected)


def judge_training(cell: Cell, call: Callable[..., Any], expected: Expected) -> Iterator[tuple[str, Verdict]]:
    """Judge gradients, and the outputs again: with gradients wanted they come by another way through autograd."""
    names = cell.case.gradients
    try:
        outputs, gradients = call_with_gradients(call, expected.arguments, names, expected.cotangents)
    except Exception as error:  # noqa: BLE001
        yield f"grad {' '.join(names)}", _raised(error)
        return
    yield from _judge_outputs(cell, "output with grad", outputs, expected)
    for name, actual, wanted in zip(names, gradients, expected.gradients, strict=True):
        tolerance = cell.case.tolerance(cell.shape, cell.dtype, name)
        yield f"grad {name}", judge(actual, wanted, expected.arguments[name].dtype, tolerance)


def _judge_outputs(
    cell: Cell, what: str, outputs: Sequence[Tensor], expected: Expected
) -> Iterator[tuple[str, Verdict]]:
    if len(outputs) != len(expected.outputs):
        yield what, Verdict(None, None, (f"{len(outputs)} results, must be {len(expected.outputs)}",))
        return
    for index, (actual, wanted) in enumerate(zip(outputs, expected.outputs, strict=True)):
        number = f" {index}" if len(outputs) > 1 else ""
        tolerance = cell.case.tolerance(cell.shape, cell.dtype, f"output{number}")
        dtype = cell.dtype if wanted.is_floating_point() else wanted.dtype
        yield f"{what}{number}", judge(actual, wanted, dtype, tolerance)


def _widen(value: Any) -> Any:  # noqa: ANN401
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _raised(error: Exception) -> Verdict:
    return Verdict(None, None, (f"the call raised {type(error).__name__}: {error}",))


def _number(value: float) -> float | None:
    """JSON has no infinity; the problem beside the number says what is wrong."""
    return value if value < float("inf") else None
