"""In the fresh process: case files, and the cells (op, shape, dtype) that they span."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase
from hubkernels.errors import InputError, Problem


@dataclass(frozen=True)
class Cell:
    """One op at one of its named shapes, in one dtype."""

    case: OpCase
    shape_name: str
    dtype_name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.case.shapes[self.shape_name]

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype_name)
        return dtype

    def __str__(self) -> str:
        return f"{self.case.op} {self.dtype_name} {self.shape_name} ({'x'.join(map(str, self.shape))})"

    def arguments(self, seed: int) -> dict[str, Any]:
        return self.case.make(self.shape, self.dtype, torch.Generator().manual_seed(seed))


def describe(cases: Sequence[str]) -> list[dict[str, Any]]:
    """List what each case file offers, for a parent that chooses without torch."""
    return [
        {
            "file": file,
            "op": case.op,
            "dtypes": case.dtypes,
            "shapes": case.shapes,
            "bench_shapes": case.bench_shapes,
            "differentiable": bool(case.gradients),
        }
        for file in cases
        for case in [load_case(Path(file))]
    ]


def cells(case: OpCase) -> list[Cell]:
    return [Cell(case, shape, dtype) for shape in case.shapes for dtype in case.dtypes]


def load_case(path: Path) -> OpCase:
    """The CASE of a case file."""
    case = load_value(path, "CASE")
    if not isinstance(case, OpCase):
        raise InputError(Problem(f"CASE is a {type(case).__name__}, must be an OpCase", where=str(path)))
    if not case.shapes or not case.dtypes:
        raise InputError(Problem("CASE has no shapes or no dtypes: nothing would be compared", where=str(path)))
    unknown = [name for name in case.dtypes if not isinstance(getattr(torch, name, None), torch.dtype)]
    unknown += [name for name in case.bench_shapes if name not in case.shapes]
    if unknown:
        raise InputError(Problem(f"CASE names what there is not: {', '.join(unknown)}", where=str(path)))
    return case


def load_value(path: Path, name: str) -> Any:  # noqa: ANN401 - the caller checks it
    """Run a Python file of the user's and return one of its names. Raises InputError with what the file raised."""
    private = f"_hubkernels_case_{path.stem}"
    spec = importlib.util.spec_from_file_location(private, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(Problem(f"{path.name} is not a Python file that can be read", where=str(path)))
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module  # dataclasses look their module up there
    _let_import_others(path)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        what = f"{path.name} cannot be run: {type(error).__name__}: {error}"
        raise InputError(Problem(f"{traceback.format_exc().rstrip()}\n{what}", where=str(path))) from error
    if not hasattr(module, name):
        raise InputError(Problem(f"{path.name} does not define {name}", str(path), "see hubkernels.check.opcase"))
    return getattr(module, name)


def _let_import_others(path: Path) -> None:
    """Put on the path what pytest would: the folder above the package that a file is in."""
    folder = path.absolute().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def as_tuple(result: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def differentiable(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor.is_floating_point())


def call_with_gradients(
    call: Callable[..., Any], arguments: dict[str, Any], names: Sequence[str], cotangents: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """Outputs, and the gradients of the named arguments for one cotangent an output of floating type."""
    leaves = {name: arguments[name].detach().requires_grad_() for name in names}
    outputs = as_tuple(call(**{**arguments, **leaves}))
    gradients = torch.autograd.grad(differentiable(outputs), tuple(leaves.values()), cotangents, allow_unused=True)
    return outputs, gradients
