"""The compilers of this machine: what is promised of objects holds for each that we support."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="session", params=["g++", "clang++"])
def compiler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name
