"""The nvcc of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hubkernels.toolchain.nvcc import find_nvcc, table_limits


@pytest.mark.skipif(not shutil.which("nvcc"), reason="this machine has no nvcc")
def test_the_header_of_the_nvcc_of_this_machine_is_found_and_read() -> None:
    found = find_nvcc({"PATH": str(Path(shutil.which("nvcc") or "").parent)})
    assert found is not None
    known = table_limits(found.release)
    assert found.newest_host.keys() == {"g++", "clang"}
    assert not known or found.newest_host == known
