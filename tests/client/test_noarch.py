"""Packages of Python files alone, loaded by the stock client in a fresh process; real projects build unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.real_projects import copy_project, is_unchanged, names_of_python_alone
from tests.conftest import Cli, write_noarch

pytest.importorskip("torch", reason="the client loads kernels into torch")
pytest.importorskip("kernels", reason="the stock client is not installed")

UPSTREAM = os.environ.get("HUBKERNELS_UPSTREAM", "")
COMMUNITY = os.environ.get("HUBKERNELS_COMMUNITY", "")
NO_EXAMPLES = pytest.mark.skipif(not UPSTREAM, reason="HUBKERNELS_UPSTREAM names no checkout of huggingface/kernels")
NO_COMMUNITY = pytest.mark.skipif(
    not COMMUNITY, reason="HUBKERNELS_COMMUNITY names no checkout of huggingface/kernels-community"
)
EXAMPLES = ("gemm-triton-autotune", "relu-nki", "relu-tpu", "relu-triton", "silu-and-mul")
LOADED_ON_CPU = {"silu-and-mul": ["silu_and_mul"], "einops": []}
"""Those that declare cpu and import nothing beside torch, and their ops."""


def test_the_client_loads_the_cpu_variant_and_the_others_say_why_not(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path, "my-table", ("cpu", "tpu"))
    assert cli("build", "-C", tmp_path).code == 0
    ran = cli("check", "load", "-C", tmp_path, "--json")
    assert ran.code == 0, ran.err
    (verdict,) = json.loads(ran.out)
    (loaded,) = verdict["results"]
    assert loaded["variant"] == "torch-cpu"
    assert loaded["ops"] == ["answer"]
    (passed,) = verdict["passed-over"]
    assert passed.startswith("torch-tpu: needs a torch for tpu")


def test_data_and_ops_are_those_of_the_project(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path, "my-table")
    assert cli("build", "-C", tmp_path).code == 0
    code = (
        "import sys, torch, kernels; from pathlib import Path\n"
        "k = kernels.get_local_kernel(Path(sys.argv[1]), backend='cpu')\n"
        "assert k.DATA == bytes(range(256))\n"
        "assert k.answer(torch.ones(2)).tolist() == [42, 42]\n"
        "assert k.__name__ in str(k.ops), k.ops\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "build/my-table")],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_package_with_nothing_to_load_here_is_skipped_with_the_reasons(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path / "gpu", "my-table", ("tpu", "neuron"))
    write_noarch(tmp_path / "any", "other", ("cpu",))
    assert cli("build", "-C", tmp_path).code == 0
    ran = cli("check", "-C", tmp_path, "--json")
    assert ran.code == 0, ran.out
    verdicts = {(each["check"], each["package"]): each["state"] for each in json.loads(ran.out)}
    assert (verdicts["load", "my-table"], verdicts["load", "other"]) == ("skipped", "ok")
    why = "no artifact of my-table can be loaded here"
    assert f"{why}: torch-neuron: needs a torch for neuron" in cli("check", "load", "-C", tmp_path).out
    ran = cli("check", "load", "my-table", "-C", tmp_path)
    assert ran.code == 2
    assert f"error: {why}\n  - torch-neuron: needs a torch for neuron" in ran.err
    assert "hint: name one with --variant" in ran.err


@NO_EXAMPLES
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_upstream_builds_unchanged(tmp_path: Path, cli: Cli, name: str) -> None:
    builds_and_loads(Path(UPSTREAM) / "examples/kernels" / name, tmp_path, cli)


@NO_EXAMPLES
def test_the_example_with_a_bad_registration_is_found_out(tmp_path: Path, cli: Cli) -> None:
    name = "silu-and-mul-bad-registration"
    project = copy_project(Path(UPSTREAM) / "examples/kernels" / name, tmp_path / name)
    assert cli("build", "-C", project).code == 0
    ran = cli("check", "builds", "-C", project)
    assert ran.code == 1
    assert "op.py:5: registers myns::silu_and_mul under a fixed name" in ran.err


@NO_COMMUNITY
def test_every_community_project_of_python_alone_builds_unchanged(tmp_path: Path, cli: Cli) -> None:
    names = names_of_python_alone(Path(COMMUNITY))
    assert len(names) == 16
    for name in sorted(names):
        builds_and_loads(Path(COMMUNITY) / name, tmp_path, cli)


def builds_and_loads(source: Path, folder: Path, cli: Cli) -> None:
    project = copy_project(source, folder / source.name)
    ran = cli("build", "-C", project)
    assert ran.code == 0, ran.err
    assert is_unchanged(project, source)
    ran = cli("check", "builds", "-C", project)
    assert ran.code == 0, ran.err
    if project.name in LOADED_ON_CPU:
        ran = cli("check", "load", "-C", project, "--variant", "torch-cpu", "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)[0]["results"][0]["ops"] == LOADED_ON_CPU[project.name]
