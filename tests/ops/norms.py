"""The norms that take two tensors and a weight, as their tests see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hubkernels.check.opcase import OpCase
from tests.cases.add_rms_norm import CASE as ADD
from tests.cases.gated_rms_norm import CASE as GATED

Results = dict[str, Tensor]


@dataclass(frozen=True)
class Norm:
    """case: what is known of the op. options: how it is called beyond that. outputs: how many it has."""

    case: OpCase
    outputs: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output_names(self) -> tuple[str, ...]:
        return ("output",) if self.outputs == 1 else tuple(f"output {n}" for n in range(self.outputs))

    def draw(self, *shape: int, dtype: torch.dtype = torch.float32) -> Results:
        """Draw the arguments, and the gradient of each output."""
        generator = torch.Generator().manual_seed(shape[-1])
        arguments = self.case.make(shape, dtype, generator)
        drawn = {name: arguments[name] for name in self.case.gradients}
        return drawn | {name: torch.randn(shape, generator=generator).to(dtype) for name in self.output_names}

    def run(self, kernel: ModuleType, drawn: Results, **options: float) -> Results:
        """Compute outputs and gradients with the op."""
        return self.run_with(getattr(kernel, self.case.op), drawn, **options)

    def in_double(self, drawn: Results, **options: float) -> Results:
        """Compute outputs and gradients with the reference, in float64."""
        return self.run_with(self.case.reference, {name: t.double() for name, t in drawn.items()}, **options)

    def run_with(self, function: Callable[..., Any], drawn: Results, **options: float) -> Results:
        """Compute outputs and gradients with a function that is called as the op is."""
        arguments = {name: drawn[name].detach().requires_grad_() for name in self.case.gradients}
        found = function(*arguments.values(), **{**self.options, **options})
        outputs = found if isinstance(found, tuple) else (found,)
        cotangents = [drawn[name] for name in self.output_names]
        gradients = torch.autograd.grad(outputs, tuple(arguments.values()), cotangents)
        results = {name: t.detach() for name, t in zip(self.output_names, outputs, strict=True)}
        return results | dict(zip(arguments, gradients, strict=True))


NORMS = {
    "add": Norm(ADD, outputs=2),
    "gate, then norm": Norm(GATED),
    "norm, then gate": Norm(GATED, options={"norm_before_gate": True}),
}
