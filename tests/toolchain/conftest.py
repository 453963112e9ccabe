"""The compilers of this machine: what is promised of objects holds for each that we support."""

from __future__ import annotations

import os
import shutil

import pytest

COMPILERS = ["g++", "clang++", *(["g++-11"] if os.environ.get("HUBKERNELS_TEST_ALL") else [])]


@pytest.fixture(scope="session", params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name
