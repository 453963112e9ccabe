"""The check of a whole project's objects: flags written by hand, in the upstream form."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.select import choose
from hubkernels.build.settings import Settings
from hubkernels.check.isa import check_isa
from hubkernels.check.violation import Violation
from hubkernels.cli import main
from hubkernels.config import load_project
from hubkernels.model.plan import Step
from tests.conftest import SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")

SECTION = """
[kernel.wide]
backend = "cpu"
depends = ["torch"]
include = ["include"]
cxx-flags = ["-mavx512f"]
src = ["cpu/wide.cpp"]
"""
SHARED = """
{linkage} float sum(const float* x) {{
  float s = 0;
  for (int i = 0; i < 64; ++i) s += x[i];
  return s;
}}
"""


def violations(root: Path, folder: Path) -> tuple[Violation, ...]:
    """Compile the steps of a project's plan, and check what they made."""
    folder.mkdir()
    builder = Builder(load_project(root), os.environ, Settings(jobs=2))
    (package,) = builder.project.packages
    (variant,) = choose(builder.decide(package), package)
    plan = builder.plan(package, variant)

    def object_of(step: Step) -> Path:
        return folder / Path(step.output).name

    for step in plan.steps:
        if step.verb == "compile":
            command = [str(object_of(step)) if word == Step.OUTPUT else word for word in step.command]
            subprocess.run(command, cwd=root, check=True)
    return check_isa(plan, object_of, os.environ)


def test_a_function_that_a_wide_file_shares_with_the_baseline_is_found_out(small: SmallProject, tmp_path: Path) -> None:
    for path, name in (("cpu/kernel.cpp", "narrow"), ("cpu/wide.cpp", "wide")):
        old = (small.root / path).read_text() if (small.root / path).exists() else '#include "kernel.h"\n'
        (small.root / path).write_text(f"{old}\nfloat {name}(const float* x) {{ return sum(x); }}\n")
    header, toml = small.root / "include/kernel.h", small.root / "build.toml"
    plain = header.read_text()
    toml.write_text(toml.read_text() + SECTION)

    header.write_text(plain + SHARED.format(linkage="[[gnu::noinline]] inline"))
    (found,) = violations(small.root, tmp_path / "shared")
    assert found.place == "cpu/wide.cpp"
    assert found.what == (
        "_Z3sumPKf is also in cpu/kernel.cpp, compiled for every machine: the linker keeps one copy, and this one is "
        "compiled with -mavx512f; give it internal linkage"
    )
    header.write_text(plain + SHARED.format(linkage="[[gnu::noinline]] static"))
    assert violations(small.root, tmp_path / "own") == ()


def test_a_project_without_flags_of_its_own_is_not_read(small: SmallProject, tmp_path: Path) -> None:
    assert violations(small.root, tmp_path / "objects") == ()


def test_what_init_writes_is_clean(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "new"), "--name", "owner/my-kernel"]) == 0
    assert violations(tmp_path / "new", tmp_path / "objects") == ()
