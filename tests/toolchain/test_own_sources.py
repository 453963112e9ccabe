"""Our own C++: no warning, and no code of a tier that the linker could hand to the baseline."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.select import choose
from hubkernels.build.settings import Settings
from hubkernels.build.sources import compiled_sources
from hubkernels.config import load_project
from hubkernels.model.plan import Step
from tests.conftest import REPOSITORY

pytest.importorskip("torch", reason="builds take the headers of an installed torch")


PACKAGES = load_project(REPOSITORY).packages
HERE = Builder(load_project(REPOSITORY), os.environ, Settings(jobs=2))
TARGETS = [(package, variant) for package in PACKAGES for variant in choose(HERE.decide(package), package)]
SOURCES = [source.path for package, variant in TARGETS for source in compiled_sources(package, variant)]


@pytest.fixture(scope="session")
def steps() -> Mapping[str, Step]:
    """The compile step of every source."""
    plans = [HERE.plan(package, variant) for package, variant in TARGETS]
    return {step.subject: step for made in plans for step in made.steps if step.verb == "compile"}


def compiled(step: Step, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(output) if word == Step.OUTPUT else word for word in (*step.command, *flags)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_compiles_without_a_warning(steps: Mapping[str, Step], source: str, tmp_path: Path) -> None:
    done = compiled(steps[source], tmp_path / "object.o", "-Wall", "-Wextra", "-Werror")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", [source for source in SOURCES if Path(source).name.startswith("avx")])
def test_a_tiers_object_shares_no_function_with_another(steps: Mapping[str, Step], source: str, tmp_path: Path) -> None:
    """A weak symbol is merged at link, and the baseline could get the copy that was made for AVX-512."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed: symbols not read")
    compiled(steps[source], tmp_path / "object.o")
    done = subprocess.run(["nm", str(tmp_path / "object.o")], capture_output=True, text=True, check=True)
    kinds = {line.split()[-1]: line.split()[-2] for line in done.stdout.splitlines()}
    assert kinds
    assert {name for name, kind in kinds.items() if kind in "WwVvu"} == set()
