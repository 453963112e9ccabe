"""The op against float64, and all that torch expects of an op."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor

SHAPES = {"empty": (0,), "one": (1,), "ragged tail": (3, 17), "several threads": (1_000_003,)}


def sample(shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)


def reference(x: Tensor) -> Tensor:
    return torch.relu(x).square()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_result_is_the_float64_one_rounded(
    kernel: ModuleType, device: torch.device, shape: tuple[int, ...]
) -> None:
    x = sample(shape, device)
    assert torch.equal(kernel.my_kernel(x), reference(x.double()).float())


def test_nan_and_infinity_are_kept(kernel: ModuleType, device: torch.device) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf")], device=device)
    torch.testing.assert_close(kernel.my_kernel(x), reference(x), rtol=0, atol=0, equal_nan=True)


def test_any_strides_give_a_contiguous_result(kernel: ModuleType, device: torch.device) -> None:
    x = sample((33, 17), device).t()
    y = kernel.my_kernel(x)
    assert y.is_contiguous()
    assert torch.equal(y, reference(x))


def test_the_gradient_is_that_of_the_reference(kernel: ModuleType, device: torch.device) -> None:
    x, grad = sample((64, 3), device).requires_grad_(), sample((64, 3), device)
    wide = x.detach().double().requires_grad_()
    (dx,) = torch.autograd.grad(kernel.layers.MyKernel()(x), x, grad)
    (expected,) = torch.autograd.grad(reference(wide), wide, grad.double())
    torch.testing.assert_close(dx.double(), expected, rtol=1e-6, atol=0)


def test_another_dtype_is_refused(kernel: ModuleType, device: torch.device) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"my_kernel: x is .*, must be .*[Ff]loat"):
        kernel.my_kernel(torch.zeros(3, dtype=torch.float64, device=device))


def test_torch_accepts_the_registration(kernel: ModuleType, device: torch.device) -> None:
    x = sample((5, 7), device).requires_grad_()
    torch.library.opcheck(kernel._ops.ops.my_kernel.default, (x,))


def test_compiling_does_not_break_the_graph(kernel: ModuleType, device: torch.device) -> None:
    x = sample((5, 7), device)
    compiled = torch.compile(kernel.my_kernel, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), reference(x))
