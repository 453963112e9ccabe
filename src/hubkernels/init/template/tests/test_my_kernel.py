"""The built kernel, loaded as its users load it. Run `kernel-builder build` first."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import kernels
import pytest
import torch
from torch import Tensor

SHAPES = {"empty": (0,), "one": (1,), "ragged tail": (3, 17), "several threads": (1_000_003,)}


@pytest.fixture(scope="session")
def kernel() -> ModuleType:
    # In a workspace the artifacts are in the workspace's build folder.
    built = (folder / "build/my-kernel" for folder in Path(__file__).parents)
    here = Path(__file__).parents[1] / "build/my-kernel"
    module: ModuleType = kernels.get_local_kernel(next((folder for folder in built if folder.is_dir()), here))
    return module


def sample(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def reference(x: Tensor) -> Tensor:
    return torch.relu(x).square()


@pytest.mark.parametrize("isa", ["avx512", "scalar"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_isa_gives_the_rounded_float64_result(kernel: ModuleType, shape: tuple[int, ...], isa: str) -> None:
    ops = kernel._ops.ops
    if isa not in ops.usable_isas().split(","):
        pytest.skip(f"this machine does not run {isa}")
    x = sample(shape)
    assert torch.equal(ops.my_kernel(x, isa), reference(x.double()).float())


def test_nan_and_infinity_are_kept(kernel: ModuleType) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf")])
    torch.testing.assert_close(kernel.my_kernel(x), reference(x), rtol=0, atol=0, equal_nan=True)


def test_any_strides_give_a_contiguous_result(kernel: ModuleType) -> None:
    x = sample((33, 17)).t()
    y = kernel.my_kernel(x)
    assert y.is_contiguous()
    assert torch.equal(y, reference(x))


def test_the_gradient_is_that_of_the_reference(kernel: ModuleType) -> None:
    x, grad = sample((64, 3)).requires_grad_(), sample((64, 3))
    wide = x.detach().double().requires_grad_()
    (dx,) = torch.autograd.grad(kernel.layers.MyKernel()(x), x, grad)
    (expected,) = torch.autograd.grad(reference(wide), wide, grad.double())
    torch.testing.assert_close(dx.double(), expected, rtol=1e-6, atol=0)


def test_another_dtype_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="my_kernel: x is Double, must be Float"):
        kernel.my_kernel(torch.zeros(3, dtype=torch.float64))


def test_torch_accepts_the_registration(kernel: ModuleType) -> None:
    x = sample((5, 7)).requires_grad_()
    torch.library.opcheck(kernel._ops.ops.my_kernel.default, (x, ""))


def test_compiling_does_not_break_the_graph(kernel: ModuleType) -> None:
    x = sample((5, 7))
    compiled = torch.compile(kernel.my_kernel, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), reference(x))
