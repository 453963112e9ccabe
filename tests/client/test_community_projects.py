"""Packages of kernels-community with CPU sections: built unchanged, loaded by the stock client, their own tests run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client import projects_table
from tests.client.real_projects import (
    RealProject,
    artifact_of,
    copy_project,
    is_unchanged,
    missing,
    names_with_cpu_sections,
    run_own_tests,
)
from tests.conftest import Cli

CHECKOUT = os.environ.get("HUBKERNELS_COMMUNITY", "")
COMMUNITY = Path(CHECKOUT)
PROJECTS = {
    project.name: project
    for project in (
        RealProject("relu"),
        RealProject("rmsnorm"),
        RealProject(
            "activation",
            tests=("tests", "-k", "ci and silu_and_mul"),
            edits=(("tests/kernels/test_activation.py", 'f"cuda:{i}"', '"cpu"'),),
            violations=("layers.py:157: layer FatreluAndMul has a member __init__",),
        ),
        RealProject("quantization-gptq", tests=("tests", "-k", "1024-2048")),
        RealProject("quantization-bitsandbytes", tests=("tests", "-k", "1024-2048")),
        RealProject("rotary", edits=(("tests/utils.py", "return None", 'return "cpu"'),)),
        RealProject("megablocks", tests=("tests/test_mb_moe_shared_expert.py",), imports=("triton",)),
        RealProject(
            "flash-attn2",
            tests=("tests/test_flash_attn.py::test_flash_attn_varlen_causal", "-k", "None-113-203-False"),
            tests_import=("einops",),
        ),
    )
}
CHEAP = ("relu",)
BUILT = tuple(PROJECTS) if os.environ.get("HUBKERNELS_TEST_ALL") else CHEAP

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = [
    pytest.mark.skipif(
        not CHECKOUT, reason="HUBKERNELS_COMMUNITY names no checkout of kernels-community: its packages are not built"
    ),
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="the packages have flags of x86_64; this machine is another"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("community")


@pytest.fixture
def built(folder: Path, cli: Cli) -> Callable[[str], Path]:
    """Build a project, once for all tests of this file."""

    def build(name: str) -> Path:
        project = folder / name
        if not project.exists():
            copy_project(COMMUNITY / name, project)
        ran = cli("build", "--project", project)
        assert ran.code == 0, ran.err
        return project

    return build


def test_the_list_here_has_every_package_with_a_cpu_section() -> None:
    assert set(PROJECTS) == names_with_cpu_sections(COMMUNITY)


@pytest.mark.parametrize("name", PROJECTS)
def test_a_package_is_planned_for_this_machine(cli: Cli, name: str) -> None:
    """All of them, in a second: the plan reads build.toml, sources and flags; most builds take a minute."""
    ran = cli("list-variants", "--project", COMMUNITY / name)
    assert ran.code == 0, ran.err
    assert [line for line in ran.out.splitlines() if line.startswith("  build ") and "-cpu-x86_64-linux" in line]


@pytest.mark.parametrize("name", BUILT)
def test_a_package_builds_unchanged(built: Callable[[str], Path], cli: Cli, name: str) -> None:
    project = built(name)
    assert is_unchanged(project, COMMUNITY / name)
    ran = cli("check", "builds", "--project", project)
    violations = PROJECTS[name].violations
    assert ran.code == (1 if violations else 0), ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == len(violations)
    assert all(violation in ran.err for violation in violations)


@pytest.mark.parametrize("name", BUILT)
def test_the_client_loads_a_package_or_names_the_module_that_it_lacks(
    built: Callable[[str], Path], cli: Cli, name: str
) -> None:
    project = built(name)
    ran = cli("check", "load", "--project", project)
    if lacks := missing(PROJECTS[name].imports):
        assert ran.code == 1
        assert f"No module named '{lacks[0]}'" in ran.err
    else:
        assert ran.code == 0, ran.err
        assert artifact_of(project).name in ran.out


@pytest.mark.parametrize("name", BUILT)
def test_a_package_passes_its_own_tests(built: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    wanted = PROJECTS[name]
    if lacks := missing((*wanted.imports, *wanted.tests_import)):
        pytest.skip(f"{', '.join(lacks)} not installed: {name} or its tests import it")
    project = built(name)
    for path, old, new in wanted.edits:
        text = (project / path).read_text(encoding="utf-8")
        assert old in text
        (project / path).write_text(text.replace(old, new), encoding="utf-8")
    outcome = run_own_tests(project, wanted.tests, others={}, site=tmp_path)
    assert outcome.failed == 0, outcome.output
    assert outcome.passed > 0, outcome.output


def test_the_table_in_the_docs_is_what_the_builder_says() -> None:
    """At the pinned commits, with torch 2.13 on x86-64 Linux. Regenerate with projects_table and read the diff."""
    if not os.environ.get("HUBKERNELS_UPSTREAM"):
        pytest.skip("HUBKERNELS_UPSTREAM names no checkout of huggingface/kernels: the table has both")
    table = projects_table.render(projects_table.checkouts(os.environ))
    assert projects_table.page_with(table) == projects_table.PAGE.read_text(encoding="utf-8")
