"""The op `ms_deform_attn`, its gradients, and the calls by which others know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._autograd import differentiable, gradient
from ._ops import ops

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Shapes = Tensor | Sequence[Sequence[int]]


def ms_deform_attn(
    value: Tensor, spatial_shapes: Shapes, sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """Sum samples of several maps: ``out[b, q, h] = sum over l, p of weight[b, q, h, l, p] * sample(map l, location)``.

    value: (B, S, H, D), float32, bfloat16 or float16: the L maps, each row by row, one behind the other.
    spatial_shapes: (height, width) of each map, int64 (L, 2) or a list of pairs; S = sum of height * width.
    sampling_locations: (B, Q, H, L, P, 2), x before y, dtype of value or float32. A map is the square from (0, 0) to
    (1, 1): pixel (x * width - 0.5, y * height - 0.5) is read bilinearly, and is zero outside the map (grid_sample's
    align_corners=False, padding_mode="zeros").
    attention_weights: (B, Q, H, L, P), dtype of value or float32.
    Returns (B, Q, H * D), dtype of value, contiguous. Each of the three gets its gradient in its own dtype.

    Any strides, any size, zero too. Coordinates and sums are float32. A location that is NaN or infinite, or outside
    by more than a pixel, adds nothing whatever its weight, and it and its weight get zero gradients.
    On a CPU, results do not depend on the number of threads, nor on the tier; there are no atomics. On CUDA, all but
    the gradient of value have the same bits from run to run, and that one has under
    torch.use_deterministic_algorithms(True), else atomics sum it in float32. Shapes in a tensor on the device are not
    waited for: where they do not fit value, every result is NaN.
    Under autocast the dtypes stay as they are. A second derivative and torch.func transforms raise
    NotImplementedError, forward-mode differentiation RuntimeError.

    The environment: HUBKERNELS_ISA forces a CPU tier (avx512-bf16, avx512, avx2, scalar);
    HUBKERNELS_HUGE_PAGES=0 stops outputs of 32 MiB and more from asking for huge pages.
    Raises RuntimeError on a bad shape, dtype or device, or sizes of maps that are not those of value, before any work.
    """
    shapes = _as_tensor("ms_deform_attn", spatial_shapes)
    out: Tensor = _ms_deform_attn(value, shapes, None, sampling_locations, attention_weights)
    return out


def ms_deform_attn_packed(
    value: Tensor,
    spatial_shapes: Shapes,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    num_points: Sequence[int],
) -> Tensor:
    """`ms_deform_attn` where levels and points are one dim: locations (B, Q, H, L * P, 2), weights (B, Q, H, L * P).

    num_points: the points of each level, level after level in that dim; all must be the same.
    Raises RuntimeError on what `ms_deform_attn` refuses, and on num_points that differ or do not sum to the dim.
    """
    if not isinstance(num_points, Sequence) or not all(isinstance(count, int) for count in num_points):
        raise TypeError(
            f"ms_deform_attn_packed: num_points is {num_points!r}, must be a list of whole numbers, one for each level"
        )
    counts = list(num_points)
    if len(set(counts)) != 1 or counts[0] < 0:
        raise RuntimeError(f"ms_deform_attn_packed: num_points is {counts}, must be one count, the same for each level")
    for name, given, dims in (
        ("sampling_locations", sampling_locations, 5),
        ("attention_weights", attention_weights, 4),
    ):
        if given.dim() != dims or given.shape[3] != sum(counts):
            raise RuntimeError(
                f"ms_deform_attn_packed: {name} has shape {tuple(given.shape)}, must have {dims} dims, "
                f"the fourth of size {sum(counts)}, the sum of num_points {counts}"
            )
    split = (len(counts), counts[0])
    return ms_deform_attn(
        value, spatial_shapes, sampling_locations.unflatten(3, split), attention_weights.unflatten(3, split)
    )


def ms_deform_attn_forward(  # noqa: PLR0913, PLR0917 - the field's call
    value: Tensor,
    spatial_shapes: Shapes,
    level_start_index: Tensor,
    sampling_loc: Tensor,
    attn_weight: Tensor,
    im2col_step: int,
) -> Tensor:
    """`ms_deform_attn` by the name and arguments of the CUDA extension of Deformable DETR.

    sampling_loc, attn_weight: its sampling_locations and attention_weights, and so they are called in errors.
    level_start_index: (L,) int64, where each map starts in value; checked against spatial_shapes.
    im2col_step: at least 1, without effect: any batch goes with any step.
    Raises RuntimeError on what `ms_deform_attn` refuses, and on these two.
    """
    _check_step("ms_deform_attn_forward", im2col_step)
    shapes = _as_tensor("ms_deform_attn_forward", spatial_shapes)
    out: Tensor = _ms_deform_attn(value, shapes, level_start_index, sampling_loc, attn_weight)
    return out


def ms_deform_attn_backward(  # noqa: PLR0913, PLR0917 - the field's call
    value: Tensor,
    spatial_shapes: Shapes,
    level_start_index: Tensor,
    sampling_loc: Tensor,
    attn_weight: Tensor,
    grad_output: Tensor,
    im2col_step: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Tell the gradients of value, sampling_loc and attn_weight from grad_output, (B, Q, H * D) in the dtype of value.

    By the name and arguments of the CUDA extension of Deformable DETR; for the rest see `ms_deform_attn_forward`.
    """
    _check_step("ms_deform_attn_backward", im2col_step)
    shapes = _as_tensor("ms_deform_attn_backward", spatial_shapes)
    inputs = (value, shapes, level_start_index, sampling_loc, attn_weight)
    wanted = (True, True, True)
    deterministic = torch.are_deterministic_algorithms_enabled()
    grads: tuple[Tensor, Tensor, Tensor] = _ms_deform_attn_backward(grad_output, *inputs, *wanted, deterministic)
    return grads


def cpu_isa() -> str:
    """Name the CPU tier of this process: avx512-bf16, avx512, avx2 or scalar.

    Raises RuntimeError when HUBKERNELS_ISA names a tier that this machine cannot run.
    """
    isa: str = ops.cpu_isa()
    return isa


def _as_tensor(op: str, shapes: Shapes) -> Tensor:
    """Made anew at each call: one that is kept belongs to the mode of the call that made it, as of inference."""
    if isinstance(shapes, Tensor):
        return shapes
    if not isinstance(shapes, Sequence) or not all(_is_size(pair) for pair in shapes):
        raise RuntimeError(f"{op}: spatial_shapes is {shapes}, must be pairs of whole numbers, or a tensor of them")
    return torch.tensor(shapes, dtype=torch.int64, device="cpu").view(len(shapes), 2)


def _is_size(pair: Sequence[int]) -> bool:
    return isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_whole, pair))  # noqa: PLR2004


def _is_whole(number: object) -> bool:
    """Of 64 bits; a bool is no number here."""
    return isinstance(number, torch.SymInt) or (type(number) is int and abs(number) < 1 << 63)


def _check_step(op: str, step: int) -> None:
    if not _is_whole(step) or step < 1:
        raise RuntimeError(f"{op}: im2col_step is {step}, must be at least 1")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 - torch's signature
    value, shapes, _, locations, weights = inputs
    ctx.save_for_backward(value, shapes, locations, weights)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None, None
    value, shapes, locations, weights = ctx.saved_tensors
    wanted = [ctx.needs_input_grad[i] for i in (0, 3, 4)]
    deterministic = torch.are_deterministic_algorithms_enabled()
    grads = _ms_deform_attn_backward(grad, value, shapes, None, locations, weights, *wanted, deterministic)
    of_value, of_locations, of_weights = (g if want else None for g, want in zip(grads, wanted, strict=True))
    return of_value, None, None, of_locations, of_weights


class _Inputs(NamedTuple):
    """What both directions read."""

    value: Tensor
    spatial_shapes: Tensor
    level_start_index: Tensor | None
    sampling_locations: Tensor
    attention_weights: Tensor

    @property
    def out_shape(self) -> tuple[int, int, int]:
        batch, _, heads, channels = self.value.shape
        return batch, self.sampling_locations.shape[1], heads * channels

    def check(self, op: str) -> None:
        """Refuse what the kernel refuses without looking at numbers, and tensors on two devices."""
        if self.value.dtype not in _DTYPES:
            raise RuntimeError(f"{op}: value is {self.value.dtype}, must be one of {_DTYPES}")
        self._check_partners(op)
        self._check_shapes(op)
        levels = self.sampling_locations.shape[3]
        self._check_integers(op, "spatial_shapes", self.spatial_shapes, (levels, 2))
        if self.level_start_index is not None:
            self._check_integers(op, "level_start_index", self.level_start_index, (levels,))

    def _check_partners(self, op: str) -> None:
        device, dtype = self.value.device, self.value.dtype
        for name in ("sampling_locations", "attention_weights"):
            t = getattr(self, name)
            if t.device != device:
                raise RuntimeError(f"{op}: {name} is on {t.device}, must be on the device of value, {device}")
            if t.dtype not in (torch.float32, dtype):
                raise RuntimeError(f"{op}: {name} is {t.dtype}, must be float32 or the dtype of value, {dtype}")

    def _check_shapes(self, op: str) -> None:
        for name, form in _FORMS.items():
            shape = tuple(getattr(self, name).shape)
            if len(shape) != len(form):
                raise RuntimeError(f"{op}: {name} has shape {shape}, must be ({', '.join(form)})")
        value, locations, weights = self.value.shape, self.sampling_locations.shape, self.attention_weights.shape
        if locations[0] != value[0] or locations[2] != value[2] or locations[5] != len("xy"):
            raise RuntimeError(
                f"{op}: sampling_locations has shape {tuple(locations)}, must be "
                f"({value[0]}, queries, {value[2]}, levels, points, 2) for value of shape {tuple(value)}"
            )
        if weights != locations[:-1]:
            raise RuntimeError(
                f"{op}: attention_weights has shape {tuple(weights)}, sampling_locations {tuple(locations)}: "
                "all but the last dim must be the same"
            )

    def _check_integers(self, op: str, name: str, t: Tensor, shape: tuple[int, ...]) -> None:
        if t.device.type not in {"cpu", self.value.device.type}:
            raise RuntimeError(f"{op}: {name} is on {t.device}, must be on the device of value or on the CPU")
        if t.dtype != torch.int64:
            raise RuntimeError(f"{op}: {name} is {t.dtype}, must be int64")
        if tuple(t.shape) != shape:
            raise RuntimeError(f"{op}: {name} has shape {tuple(t.shape)}, must be {shape}")


_FORMS = {
    "value": ("batch", "pixels", "heads", "channels"),
    "sampling_locations": ("batch", "queries", "heads", "levels", "points", "2"),
    "attention_weights": ("batch", "queries", "heads", "levels", "points"),
}


def _fake_forward(*tensors: Any) -> Tensor:
    inputs = _Inputs(*tensors)
    inputs.check("ms_deform_attn")
    return inputs.value.new_empty(inputs.out_shape)


def _fake_backward(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    op = "ms_deform_attn_backward"
    inputs, wanted = _Inputs(*rest[:5]), rest[5:8]
    inputs.check(op)
    if grad.dtype != inputs.value.dtype:
        raise RuntimeError(f"{op}: grad is {grad.dtype}, must be the dtype of value, {inputs.value.dtype}")
    if tuple(grad.shape) != inputs.out_shape:
        raise RuntimeError(f"{op}: grad has shape {tuple(grad.shape)}, must be {inputs.out_shape}")
    of = (inputs.value, inputs.sampling_locations, inputs.attention_weights)
    return tuple(t.new_empty(t.shape if want else (0,)) for t, want in zip(of, wanted, strict=True))


_ms_deform_attn = differentiable("ms_deform_attn", _fake_forward, _setup_context, _backward)
_ms_deform_attn_backward = gradient("ms_deform_attn_backward", _fake_backward, of="ms_deform_attn")
