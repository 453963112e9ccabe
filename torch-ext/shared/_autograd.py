"""From the formulas of an op to what eager code, torch.compile and autograd call. Packages ship a link to this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from ._ops import add_op_namespace_prefix, ops

Call = Callable[..., Any]

_LIBRARIES: list[torch.library.Library] = []
"""A registration ends with its library."""


def differentiable(name: str, fake: Call, setup_context: Call, backward: Call) -> Call:
    """Register the formulas of an op, and tell what its public function calls, with the arguments of the schema.

    fake: what an output is like. setup_context(ctx, inputs, output), backward(ctx, *grads) as torch.library wants them.
    What is called raises NotImplementedError under torch.func transforms.
    """
    op = getattr(ops, name)
    torch.library.register_fake(add_op_namespace_prefix(name), fake)
    torch.library.register_autograd(add_op_namespace_prefix(name), backward, setup_context=setup_context)

    # One set of formulas: this is the cheap way in from eager code (8 us against 15 on a tiny tensor), the
    # registration serves torch.compile and callers of the raw op.
    def forward(ctx: Any, *inputs: Any) -> Any:
        # Not a setup_context member: binding the arguments for one costs 10 us a call.
        output = _without_autograd(op, *inputs)
        setup_context(ctx, inputs, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(name, (torch.autograd.Function,), members)

    def call(*inputs: Any) -> Any:
        if torch._C._are_functorch_transforms_active():  # noqa: SLF001 (no public way to ask)
            raise NotImplementedError(
                f"{name}: torch.func transforms (grad, vmap, jvp) are not supported; use autograd"
            )
        if torch.compiler.is_compiling():
            return op(*inputs)
        try:
            if torch.is_grad_enabled() or torch.autograd.forward_ad._current_level >= 0:  # noqa: SLF001 (no public way)
                return function.apply(*inputs)
            return _without_autograd(op, *inputs)
        except RuntimeError:
            _refuse_other_types(name, op.default, inputs)
            raise

    return call


def gradient(name: str, fake: Call, of: str) -> Call:
    """Register an op that computes the gradients of ``of``, and tell what a backward formula calls."""
    op = getattr(ops, name)

    def second_backward(ctx: Any, *grads: Tensor | None) -> NoReturn:
        raise NotImplementedError(f"{of} has no second derivative: ask for the first without create_graph")

    torch.library.register_fake(add_op_namespace_prefix(name), fake)
    torch.library.register_autograd(add_op_namespace_prefix(name), second_backward)

    def call(*inputs: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph: the op's own formula has to be on record
            return op(*inputs)
        return _without_autograd(op, *inputs)

    return call


def in_place(name: str, fake: Call) -> Call:
    """Register an op without gradients that writes arguments, and tell what its public function calls.

    Under grad mode an argument that requires grad is refused, by name.
    """
    op = getattr(ops, name).default

    def autograd(*inputs: Any) -> None:
        _refuse_grad(name, op, inputs)
        _without_autograd(op, *inputs)

    def new_version(keys: Any, *inputs: Any) -> None:
        with torch._C._AutoDispatchBelowADInplaceOrView():  # noqa: SLF001 (torch.library does the same)
            op.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *inputs)  # noqa: SLF001
        _count_writes(op, inputs)

    torch.library.register_fake(add_op_namespace_prefix(name), fake)
    library = torch.library.Library(add_op_namespace_prefix("").removesuffix("::"), "IMPL")
    library.impl(name, autograd, "Autograd")
    library.impl(name, new_version, "ADInplaceOrView", with_keyset=True)
    _LIBRARIES.append(library)

    def call(*inputs: Any) -> None:
        if torch._C._are_functorch_transforms_active():  # noqa: SLF001 (no public way to ask)
            raise NotImplementedError(f"{name}: torch.func transforms (grad, vmap, jvp) are not supported")
        if torch.compiler.is_compiling():
            op(*inputs)
            return
        # The two registrations at once: each costs 2 us as a dispatch to Python.
        _refuse_negated(name, op, inputs)
        _refuse_grad(name, op, inputs)
        try:
            with torch._C._AutoDispatchBelowADInplaceOrView():  # noqa: SLF001
                op(*inputs)
        except RuntimeError:
            _refuse_other_types(name, op, inputs)
            raise
        _count_writes(op, inputs)

    return call


def _refuse_other_types(name: str, op: Any, inputs: tuple[Any, ...]) -> None:
    """In words of the caller: torch's tell the schema, or that a function of C failed."""
    for argument, value in zip(op._schema.arguments, inputs, strict=True):  # noqa: SLF001 (no public way)
        kind = str(argument.type)
        if isinstance(value, Tensor) or "Tensor" not in kind or (value is None and kind.startswith("Optional")):
            continue
        wanted = "a tensor or None" if kind.startswith("Optional") else "a tensor"
        raise TypeError(f"{name}: {argument.name} is {value!r}, must be {wanted}")


def _refuse_negated(name: str, op: Any, inputs: tuple[Any, ...]) -> None:
    """A view whose numbers torch negates as they are read has none to write to."""
    for argument, value in zip(op._schema.arguments, inputs, strict=True):  # noqa: SLF001 (no public way)
        if argument.is_write and isinstance(value, Tensor) and value.is_neg():
            raise RuntimeError(f"{name}: {argument.name} is a negated view, which is not written; call resolve_neg()")


def _refuse_grad(name: str, op: Any, inputs: tuple[Any, ...]) -> None:
    grad_mode = torch.is_grad_enabled()
    forward_mode = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001 (no public way)
    if not grad_mode and not forward_mode:
        return
    for argument, value in zip(op._schema.arguments, inputs, strict=True):  # noqa: SLF001 (no public way)
        if not isinstance(value, Tensor):
            continue
        if grad_mode and value.requires_grad:
            raise RuntimeError(f"{name}: {argument.name} requires grad, but an op in place has no backward")
        if forward_mode and torch.autograd.forward_ad.unpack_dual(value).tangent is not None:
            raise RuntimeError(f"{name}: {argument.name} has a tangent, but an op in place has no jvp")


def _count_writes(op: Any, inputs: tuple[Any, ...]) -> None:
    """Tell autograd that what it saved of a written argument is no longer there."""
    for argument, value in zip(op._schema.arguments, inputs, strict=True):  # noqa: SLF001 (no public way)
        if argument.is_write and not value.is_inference():
            torch.autograd.graph.increment_version(value)


def _without_autograd(op: Any, *args: Any) -> Any:
    """Call an op past its registered formula, which is Python: 2.7 of 6.8 us on a tiny tensor."""
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001 (torch.library does the same)
        return op(*args)
