"""Our own C++: no warning, and no code of a tier that the linker could hand to the baseline."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.select import choose
from hubkernels.config import load_project
from hubkernels.model.plan import Step
from tests.conftest import REPOSITORY

pytest.importorskip("torch", reason="builds take the headers of an installed torch")


def compile_steps() -> Iterator[Step]:
    project = load_project(REPOSITORY)
    builder = Builder(project, os.environ, jobs=2)
    for package in project.packages:
        for variant in choose(builder.decide(package), package):
            yield from (step for step in builder.plan(package, variant).steps if "-c" in step.command)


STEPS = {step.inputs[0]: step for step in compile_steps()}


def compiled(step: Step, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(output) if word == Step.OUTPUT else word for word in (*step.command, *flags)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("source", STEPS)
def test_a_source_compiles_without_a_warning(source: str, tmp_path: Path) -> None:
    done = compiled(STEPS[source], tmp_path / "object.o", "-Wall", "-Wextra", "-Werror")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", [source for source in STEPS if Path(source).name.startswith("avx")])
def test_a_tiers_object_shares_no_function_with_another(source: str, tmp_path: Path) -> None:
    """A weak symbol is merged at link, and the baseline could get the copy that was made for AVX-512."""
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed: symbols not read")
    compiled(STEPS[source], tmp_path / "object.o")
    done = subprocess.run(["nm", str(tmp_path / "object.o")], capture_output=True, text=True, check=True)
    kinds = {line.split()[-1]: line.split()[-2] for line in done.stdout.splitlines()}
    assert kinds
    assert {name for name, kind in kinds.items() if kind in "WwVvu"} == set()
