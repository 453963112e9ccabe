"""Modules whose forward the stock client has replaced by that of a layer of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kernels

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

MODE = kernels.Mode.TRAINING | kernels.Mode.TORCH_COMPILE


def kernelized(module: nn.Module, layers: Mapping[str, str], repo: Path, *, use_fallback: bool = False) -> nn.Module:
    """Swap the forward of every module that is marked with one of these names for its layer, and see that one was.

    use_fallback: leave a module as it is that is marked with another name; else the client refuses it.
    """
    mapping = {name: {"cpu": kernels.LocalLayerRepository(repo, layer_name=layer)} for name, layer in layers.items()}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        swapped: nn.Module = kernels.kernelize(module, mode=MODE, device="cpu", use_fallback=use_fallback)
    found = set(swapped_layers(swapped))
    assert found
    assert found <= set(layers.values())
    return swapped


def swapped_layers(model: nn.Module) -> list[str]:
    """The layer of each module whose forward is replaced."""
    forwards = [module.__dict__["forward"] for module in model.modules() if "forward" in module.__dict__]
    return [forward.__qualname__.split(".")[0] for forward in forwards]
