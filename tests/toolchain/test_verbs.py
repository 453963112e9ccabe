"""Verbs that plan a build, or look at what one made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")


def test_plan_prints_every_step_and_runs_none(small: SmallProject, cli: Cli) -> None:
    ran = cli("plan", "--project", small.root)
    assert ran.code == 0, ran.err
    (plan,) = json.loads(ran.out)
    steps = [(step["verb"], step["subject"]) for step in plan["steps"]]
    subjects = ["cpu/kernel.cpp", "hubkernels' glibc.cpp", "torch-ext/binding.cpp"]
    assert sorted(steps[:-1]) == [("compile", subject) for subject in subjects]
    assert steps[-1][0] == "link"
    assert all(step["command"] and not (small.root / step["output"]).exists() for step in plan["steps"])
    assert not (small.root / "build/my-kernel").exists()


def test_a_build_runs_what_plan_printed(small: SmallProject, cli: Cli, cold_cache: Path) -> None:
    (plan,) = json.loads(cli("plan", "--project", small.root).out)
    assert cli("build", "--project", small.root).code == 0
    assert (small.op_id, small.artifact.name) == (plan["op-id"], plan["variant"])
    assert set(plan["files"]) == {path.name for path in small.artifact.iterdir()} - {"metadata.json"}
    kept = {path.name for path in cold_cache.rglob("*o") if path.suffix in {".o", ".so"}}
    assert kept == {step["output"] for step in plan["steps"]}


def test_plan_knows_one_variant_from_another(small: SmallProject, cli: Cli) -> None:
    (plan,) = json.loads(cli("plan", "--project", small.root).out)
    (same,) = json.loads(cli("plan", "--project", small.root, "--variant", plan["variant"]).out)
    assert same == plan
    assert cli("plan", "--project", small.root, "--variant", "torch-typo").code == 2


def test_check_builds_finds_nothing_wrong_with_what_we_build(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    ran = cli("check", "builds", "--project", small.root)
    assert (ran.code, ran.out.split(), ran.err) == (0, ["ok", "builds", "my-kernel", small.artifact.name], "")
    (found,) = json.loads(cli("check", "builds", "--project", small.root, "--json").out)
    assert found == {
        "check": "builds",
        "package": "my-kernel",
        "state": "ok",
        "results": [],
        "passed-over": [],
        "problems": [],
        "warnings": [],
    }


@pytest.mark.parametrize("check", ["load", "parity"])
def test_a_variant_that_is_named_and_not_built_is_an_error(small: SmallProject, cli: Cli, check: str) -> None:
    cli("build", "--project", small.root)
    built = small.artifact.name
    typo = cli("check", check, "--project", small.root, "--variant", built, "--variant", built[:-1])
    assert (typo.code, typo.out.split()[:3]) == (2, ["not", "run", check])
    assert f"error: {built[:-1]} of my-kernel is not built; built: {built}\n  hint: did you mean {built}?" in typo.err
    other = cli("check", check, "--project", small.root, "--variant", "other")
    assert (other.code, other.out.split()[:3]) == (2, ["not", "run", check])
    assert "hint: `kernel-builder list-variants` tells which can be" in other.err
