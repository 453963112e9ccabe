"""The ceiling that is timed beside ms_deform_attn reads what it says that it reads."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tests.cases.ms_deform_attn import CASE, SHAPES, reference
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "bench/ms_deform_attn_ceiling.py"


@pytest.mark.parametrize("shape", [SHAPES["encoder, small"], SHAPES["rf-detr"]], ids=str)
def test_the_compiled_ceiling_adds_up_the_corners_of_the_op(shape: tuple[int, ...]) -> None:
    """Samples in the middle between four pixels have coefficients of a quarter: then the op is a quarter of the sum."""
    spec = importlib.util.spec_from_file_location("ceiling", FILE)
    assert spec is not None
    assert spec.loader is not None
    ceiling = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ceiling)
    arguments = CASE.make(shape, torch.float32, torch.Generator().manual_seed(0))
    sides = arguments["spatial_shapes"].flip(1).view(-1, 1, 2)
    cells = (arguments["sampling_locations"] * sides).round()
    arguments["sampling_locations"] = cells / sides
    arguments["attention_weights"] = torch.ones_like(arguments["attention_weights"])
    (peer,) = ceiling.PEERS
    for _ in range(2):  # the second time from the table that was kept
        torch.testing.assert_close(peer.call(**arguments) / 4, reference(**arguments), rtol=1e-4, atol=1e-3)
