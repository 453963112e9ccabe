"""Checks that the norms share: what a kernel refuses, refused without data too, and devices that differ."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_rows(op: str, x: Tensor) -> None:
    if x.dtype not in _DTYPES:
        raise RuntimeError(f"{op}: x is {x.dtype}, must be one of {_DTYPES}")
    if x.dim() == 0:
        raise RuntimeError(f"{op}: x has no dims, needs at least one")


def check_weight(op: str, name: str, weight: Tensor, x: Tensor) -> None:
    """Refuse what is not one element for each column of x; torch sends a weight on another device to the fake."""
    if weight.device != x.device:
        raise RuntimeError(f"{op}: {name} is on {weight.device}, must be on the device of x, {x.device}")
    if weight.dtype not in (torch.float32, x.dtype):
        raise RuntimeError(f"{op}: {name} is {weight.dtype}, must be float32 or the dtype of x, {x.dtype}")
    if weight.dim() != 1:
        raise RuntimeError(f"{op}: {name} has shape {tuple(weight.shape)}, must have one dim")
    if weight.shape != x.shape[-1:]:
        raise RuntimeError(f"{op}: {name} has {weight.shape[0]} elements, last dim of x has {x.shape[-1]}")


def check_eps(op: str, eps: float) -> None:
    if not (math.isfinite(eps) and eps >= 0):
        raise RuntimeError(f"{op}: eps is {eps}, must be finite and at least 0")


def check_like_x(op: str, name: str, t: Tensor, x: Tensor) -> None:
    if t.device != x.device:
        raise RuntimeError(f"{op}: {name} is on {t.device}, must be on the device of x, {x.device}")
    if t.dtype != x.dtype:
        raise RuntimeError(f"{op}: {name} is {t.dtype}, must be the dtype of x, {x.dtype}")
    if t.shape != x.shape:
        raise RuntimeError(f"{op}: {name} has shape {tuple(t.shape)}, must be the shape of x, {tuple(x.shape)}")


def check_statistic(op: str, name: str, saved: Tensor, x: Tensor) -> None:
    if saved.device != x.device:
        raise RuntimeError(f"{op}: {name} is on {saved.device}, must be on the device of x, {x.device}")
    if saved.dtype != torch.float32:
        raise RuntimeError(f"{op}: {name} is {saved.dtype}, must be float32")
    if not saved.is_contiguous():
        raise RuntimeError(f"{op}: {name} is not contiguous")
    if saved.shape != x.shape[:-1]:
        raise RuntimeError(
            f"{op}: {name} has shape {tuple(saved.shape)}, must be that of x, {tuple(x.shape)}, but for the last dim"
        )


def check_wanted(op: str, name: str, parameter: Tensor | None, *, wanted: bool) -> None:
    if wanted and parameter is None:
        raise RuntimeError(f"{op}: want_d{name} is true without a {name}")
