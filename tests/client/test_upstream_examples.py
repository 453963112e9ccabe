"""Upstream's own example projects, built unchanged and run by their own tests in the stock client."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hubkernels.config import load_project
from tests.client.real_projects import (
    artifact_of,
    copy_project,
    is_unchanged,
    names_with_cpu_sections,
    run_own_tests,
)
from tests.conftest import Cli

CHECKOUT = os.environ.get("HUBKERNELS_UPSTREAM", "")
EXAMPLES = Path(CHECKOUT) / "examples/kernels"
BUILT = ("relu-torch-stable-abi", "relu", "cpp20-symbols", "symbol-conflicts", "symbol-conflicts2", "extra-data")
REFUSED = {
    "relu-tvm-ffi": "tvm-ffi packages are not built yet",
    "relu-tvm-ffi-compiler-flags": "tvm-ffi packages are not built yet",
}
WITH_TESTS = ("relu-torch-stable-abi", "relu", "cpp20-symbols", "symbol-conflicts2", "extra-data")

pytestmark = pytest.mark.skipif(
    not CHECKOUT, reason="HUBKERNELS_UPSTREAM names no checkout of huggingface/kernels: its examples are not built"
)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("upstream")
    for name in BUILT:
        copy_project(EXAMPLES / name, folder / name)
    return folder


def test_the_lists_here_have_every_example_with_a_cpu_section() -> None:
    assert {*BUILT, *REFUSED} == names_with_cpu_sections(EXAMPLES)


@pytest.mark.parametrize("name", BUILT)
def test_an_example_builds_unchanged(projects: Path, cli: Cli, name: str) -> None:
    ran = cli("build", "--project", projects / name)
    assert ran.code == 0, ran.err
    assert is_unchanged(projects / name, EXAMPLES / name)
    assert cli("check", "builds", "--project", projects / name).code == 0
    assert cli("check", "load", "--project", projects / name).code == 0


@pytest.mark.parametrize("name", REFUSED)
def test_an_example_that_is_not_built_is_refused_with_the_reason(tmp_path: Path, cli: Cli, name: str) -> None:
    ran = cli("build", "--project", copy_project(EXAMPLES / name, tmp_path / name))
    assert ran.code == 2
    assert REFUSED[name] in ran.err


@pytest.mark.parametrize("name", WITH_TESTS)
def test_an_example_passes_its_own_tests_in_the_stock_client(projects: Path, name: str, tmp_path: Path) -> None:
    """Some load other examples too, which the client then has at hand."""
    others = {
        str(package.repo_id): projects / other / "build" / package.name
        for other in BUILT
        for package in load_project(projects / other).packages
    }
    assert artifact_of(projects / name).is_dir()
    outcome = run_own_tests(projects / name, ("tests",), others=others, site=tmp_path)
    assert outcome.failed == 0, outcome.output
    assert outcome.passed > 0, outcome.output
