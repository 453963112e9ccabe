"""In a build for CUDA, the ops that have no kernel there yet: they say so by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch

from ._ops import add_op_namespace_prefix


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise NotImplementedError(f"{name}: this version has no kernel for CUDA; rms_norm has one")

    return refuse


def has_cuda_kernel(name: str) -> bool:
    """Whether this build has a kernel of an op for CUDA: one for the CPU has none."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(add_op_namespace_prefix(name), "CUDA")  # noqa: SLF001 (no public way)


def refuse_missing(*names: str) -> None:
    """Register what raises NotImplementedError for those of these ops that have no kernel, in a build for CUDA."""
    if has_cuda_kernel("rms_norm"):
        for name in names:
            if not has_cuda_kernel(name):
                torch.library.impl(add_op_namespace_prefix(name), "CUDA", _refusal(name))
