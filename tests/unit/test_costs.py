"""What tests cost: the suites have their markers, and the unit tests start no compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import COSTS


def test_a_compiler_that_a_unit_test_starts_is_noted(failing_compilers: Path) -> None:
    """The fixture that watches all unit tests, seen red."""
    assert Path(shutil.which("g++") or "").parent == failing_compilers
    assert subprocess.run(["sh", "-c", "g++ -c x.cpp"], check=False).returncode == 97
    assert (failing_compilers / "called").read_text(encoding="utf-8") == "g++ -c x.cpp\n"
    (failing_compilers / "called").unlink()


def test_every_folder_of_tests_has_its_costs(pytestconfig: pytest.Config) -> None:
    tests = Path(__file__).parents[1]
    folders = {path.parent.name for path in tests.glob("*/test_*.py")}
    assert folders - {"unit", "golden"} == set(COSTS), "and what costs nothing has no marker"
    declared = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert {cost for costs in COSTS.values() for cost in costs} <= declared
