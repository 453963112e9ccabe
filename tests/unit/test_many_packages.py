"""A workspace of 52 packages: what a run costs when there is nothing to do."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, write_noarch

LIMIT_S = 1.0


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many")
    for number in range(52):
        write_noarch(root / f"kernel-{number:02}", f"kernel-{number:02}", ("cpu", "cuda"))
    return root


def processor_time_s(*words: str) -> float:
    """The least of three runs, in a process of its own."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "hubkernels.cli", *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_a_build_without_a_change_takes_no_second(packages: Path, cli: Cli) -> None:
    assert cli("build", "-C", packages).code == 0
    assert cli("build", "-C", packages).out.count("up to date") == 104
    assert processor_time_s("build", "-C", str(packages)) <= LIMIT_S


def test_listing_and_checking_them_takes_no_second(packages: Path) -> None:
    assert processor_time_s("list-variants", "-C", str(packages)) <= LIMIT_S
    assert processor_time_s("check", "config", "-C", str(packages)) <= LIMIT_S
