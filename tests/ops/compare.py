"""How results of an op are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hubkernels.check.opcase import Tolerance


def assert_within(actual: Tensor, expected: Tensor, tolerance: Tolerance) -> None:
    assert actual.shape == expected.shape
    bounds: dict[str, Any] = {"rtol": tolerance.relative, "atol": tolerance.absolute, "equal_nan": True}
    if not torch.isclose(actual.double(), expected, **bounds).all():  # says what differs, in 50 times the time
        torch.testing.assert_close(actual.double(), expected, **bounds)


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    """Compare bits, the payload of a NaN apart."""
    assert torch.equal(actual.isnan(), expected.isnan())
    integer = {2: torch.int16, 4: torch.int32}[actual.element_size()]
    assert torch.equal(
        actual.nan_to_num(0.0, math.inf, -math.inf).view(integer),
        expected.nan_to_num(0.0, math.inf, -math.inf).view(integer),
    )


def assert_same_results(actual: object, expected: object, where: str = "") -> None:
    """Compare what scripts of tiers save: tensors bit for bit, and all else as it is, in dicts and sequences."""
    if isinstance(expected, Tensor):
        assert isinstance(actual, Tensor), where
        assert_same_bits(actual, expected)
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), where
        assert actual.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_same_results(actual[key], value, f"{where} {key}")
    elif isinstance(expected, (list, tuple)):
        assert isinstance(actual, (list, tuple)), where
        assert len(actual) == len(expected), where
        for one, other in zip(actual, expected, strict=True):
            assert_same_results(one, other, where)
    else:
        assert actual == expected, where
