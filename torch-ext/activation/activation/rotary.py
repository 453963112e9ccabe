"""Rotary embedding of queries and keys, and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._autograd import differentiable, gradient

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_IDS = (torch.int64, torch.int32)
_HEAD_DIMS = 4  # of q and k: batches, heads and tokens in either order, elements


def rope(  # noqa: PLR0913 (what a rotation is made of)
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    *,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    unsqueeze_dim: int = 1,
) -> tuple[Tensor, Tensor]:
    """Turn pairs of elements of each head by the angles of its token.

    Of a pair (x1, x2): ``y1 = x1 * cos1 - x2 * sin1, y2 = x2 * cos2 + x1 * sin2``.

    q, k: (B, H, S, D), or (B, S, H, D) with unsqueeze_dim = 2; float32, bfloat16 or float16, any strides. k has a
        number of heads of its own, and else the shape of q.
    cos, sin: dtype of q or float32. (S, C), (1, S, C) or (B, S, C): a row for each token. Or, with position_ids,
        (P, C): a row for each position.
    position_ids: (S,), (1, S) or (B, S), int64 or int32, in any order: the row of each token.
    rotary_dim: the first so many elements of a head are turned, the others copied; C unless given. C is rotary_dim, a
        column for each element, or half of it, a column for each pair.
    interleaved: a pair is (x[2 i], x[2 i + 1]), as in GPT-J, and not (x[i], x[i + rotary_dim / 2]), as in Llama.
    Returns q and k turned: shapes and dtypes of q and k, contiguous. q and k get gradients, cos and sin none:
    NotImplementedError when they want one.

    Computed in float32 and rounded once; float32 results are those of the formula in torch, bit for bit. Results do
    not depend on the number of threads or on the CPU tier. Under autocast the dtypes stay as they are. A second
    derivative and torch.func transforms raise NotImplementedError, forward-mode differentiation RuntimeError.
    Raises RuntimeError on a bad shape, dtype, device, option or position, before any work.
    """
    for name, table in (("cos", cos), ("sin", sin)):
        if not isinstance(table, Tensor):
            raise TypeError(f"rope: {name} is {table!r}, must be a tensor")
    if torch.is_grad_enabled():
        _refuse_gradients(cos.requires_grad, sin.requires_grad)
    dim = unsqueeze_dim + _HEAD_DIMS if unsqueeze_dim < 0 else unsqueeze_dim
    if rotary_dim is None:
        rotary_dim = cos.shape[-1] if cos.dim() > 0 else 0
    turned: tuple[Tensor, Tensor] = _rope(q, k, cos, sin, position_ids, rotary_dim, interleaved, dim)
    return turned


def _refuse_gradients(cos: bool, sin: bool) -> None:  # noqa: FBT001 (one for each)
    if cos or sin:
        raise NotImplementedError(f"rope: {'cos' if cos else 'sin'} requires grad, but gets none; detach it")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ARG001
    _, _, cos, sin, position_ids, *ctx.options = inputs
    _refuse_gradients(*ctx.needs_input_grad[2:4])
    ctx.save_for_backward(cos, sin, position_ids)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_q: Tensor | None, grad_k: Tensor | None) -> tuple[Tensor | None, ...]:
    want_q, want_k = (
        grad is not None and wanted for grad, wanted in zip((grad_q, grad_k), ctx.needs_input_grad[:2], strict=True)
    )
    if not (want_q or want_k):
        return (None,) * 8
    dq, dk = _rope_backward(grad_q if want_q else None, grad_k if want_k else None, *ctx.saved_tensors, *ctx.options)
    return dq if want_q else None, dk if want_k else None, *(None,) * 6


def _check_heads(op: str, name: str, x: Tensor, rotary_dim: int, unsqueeze_dim: int) -> None:
    if x.dtype not in _DTYPES:
        raise RuntimeError(f"{op}: {name} is {x.dtype}, must be one of {_DTYPES}")
    if x.dim() != _HEAD_DIMS:
        raise RuntimeError(f"{op}: {name} has shape {tuple(x.shape)}, must have four dims")
    if unsqueeze_dim not in {1, 2}:
        raise RuntimeError(f"{op}: unsqueeze_dim is {unsqueeze_dim}, must be 1 or 2")
    if rotary_dim <= 0 or rotary_dim % 2 != 0:
        raise RuntimeError(f"{op}: rotary_dim is {rotary_dim}, must be even and positive")
    if rotary_dim > x.shape[3]:
        raise RuntimeError(f"{op}: rotary_dim is {rotary_dim}, last dim of {name} has {x.shape[3]} elements")


def _check_both(op: str, prefix: str, q: Tensor, k: Tensor, options: tuple[int, int]) -> None:
    q_name, k_name = f"{prefix}q", f"{prefix}k"
    rotary_dim, unsqueeze_dim = options
    _check_heads(op, q_name, q, rotary_dim, unsqueeze_dim)
    _check_heads(op, k_name, k, rotary_dim, unsqueeze_dim)
    if k.device != q.device:
        raise RuntimeError(f"{op}: {k_name} is on {k.device}, must be on the device of {q_name}, {q.device}")
    if k.dtype != q.dtype:
        raise RuntimeError(f"{op}: {k_name} is {k.dtype}, must be the dtype of {q_name}, {q.dtype}")
    if any(k.shape[dim] != q.shape[dim] for dim in (0, 3 - unsqueeze_dim, 3)):
        raise RuntimeError(
            f"{op}: {k_name} has shape {tuple(k.shape)}, must be that of {q_name}, {tuple(q.shape)}, "
            f"but for dim {unsqueeze_dim}, the heads (unsqueeze_dim)"
        )


class _Heads(NamedTuple):
    """Of q, or of the gradient that stands for it: what tables and ids are held against."""

    name: str
    tensor: Tensor


def _check_table(op: str, name: str, table: Tensor, heads: _Heads, rotary_dim: int) -> None:
    of, x = heads
    if table.device != x.device:
        raise RuntimeError(f"{op}: {name} is on {table.device}, must be on the device of {of}, {x.device}")
    if table.dtype not in (torch.float32, x.dtype):
        raise RuntimeError(f"{op}: {name} is {table.dtype}, must be float32 or the dtype of {of}, {x.dtype}")
    columns = table.shape[-1] if table.dim() > 0 else 0
    if rotary_dim not in (columns, 2 * columns):
        raise RuntimeError(f"{op}: {name} has {columns} columns, must have rotary_dim, {rotary_dim}, or half of it")


def _fits(rows: torch.Size, batches: int, tokens: int) -> bool:
    """Whether rows is (tokens,), (1, tokens) or (batches, tokens)."""
    return list(rows) in ([tokens], [1, tokens], [batches, tokens])


def _check_tables(op: str, heads: _Heads, cos: Tensor, sin: Tensor, rotary_dim: int) -> None:
    _check_table(op, "cos", cos, heads, rotary_dim)
    _check_table(op, "sin", sin, heads, rotary_dim)
    if sin.dtype != cos.dtype:
        raise RuntimeError(f"{op}: sin is {sin.dtype}, must be the dtype of cos, {cos.dtype}")
    if sin.shape != cos.shape:
        raise RuntimeError(f"{op}: sin has shape {tuple(sin.shape)}, must be the shape of cos, {tuple(cos.shape)}")


def _check_rows(op: str, heads: _Heads, cos: Tensor, position_ids: Tensor | None, unsqueeze_dim: int) -> None:
    of, x = heads
    batches, tokens = x.shape[0], x.shape[3 - unsqueeze_dim]
    has = f"{of} has {batches} batches of {tokens} tokens"
    if position_ids is None:
        if not _fits(cos.shape[:-1], batches, tokens):
            raise RuntimeError(f"{op}: cos has shape {tuple(cos.shape)}, {has}")
        return
    if len(cos.shape[:-1]) != 1:
        raise RuntimeError(f"{op}: cos has shape {tuple(cos.shape)}, must have two dims with position_ids")
    if position_ids.device != x.device:
        raise RuntimeError(f"{op}: position_ids is on {position_ids.device}, must be on the device of {of}, {x.device}")
    if position_ids.dtype not in _IDS:
        raise RuntimeError(f"{op}: position_ids is {position_ids.dtype}, must be one of {_IDS}")
    if not _fits(position_ids.shape, batches, tokens):
        raise RuntimeError(f"{op}: position_ids has shape {tuple(position_ids.shape)}, {has}")


def _fake_forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    q, k, cos, sin, position_ids, rotary_dim, _, unsqueeze_dim = inputs
    _check_both("rope", "", q, k, (rotary_dim, unsqueeze_dim))
    heads = _Heads("q", q)
    _check_tables("rope", heads, cos, sin, rotary_dim)
    _check_rows("rope", heads, cos, position_ids, unsqueeze_dim)
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _fake_backward(*inputs: Any) -> tuple[Tensor, Tensor]:
    op = "rope_backward"
    grad_q, grad_k, cos, sin, position_ids, rotary_dim, _, unsqueeze_dim = inputs
    if grad_q is not None and grad_k is not None:
        _check_both(op, "grad_", grad_q, grad_k, (rotary_dim, unsqueeze_dim))
    name, one = ("grad_k", grad_k) if grad_q is None else ("grad_q", grad_q)
    if one is None:
        raise RuntimeError(f"{op}: grad_q and grad_k are both missing")
    _check_heads(op, name, one, rotary_dim, unsqueeze_dim)
    heads = _Heads(name, one)
    _check_tables(op, heads, cos, sin, rotary_dim)
    _check_rows(op, heads, cos, position_ids, unsqueeze_dim)
    dq, dk = (one.new_empty((0,) if grad is None else grad.shape) for grad in (grad_q, grad_k))
    return dq, dk


_rope = differentiable("rope", _fake_forward, _setup_context, _backward)
_rope_backward = gradient("rope_backward", _fake_backward, of="rope")
