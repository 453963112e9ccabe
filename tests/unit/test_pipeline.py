"""The builder of one project, on packages that need no compiler."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubkernels.build import report, work
from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Event
from hubkernels.build.settings import Settings
from hubkernels.config import load_project
from hubkernels.model.plan import BuildPlan
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant
from tests.conftest import Cli, write_noarch


def silent(_: Event) -> None:
    pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_noarch(tmp_path, "my-table", ("cpu",))


def builder_of(project: Path, settings: Settings | None = None) -> Builder:
    return Builder(load_project(project), os.environ, settings or Settings(jobs=1))


def test_the_plan_that_is_told_is_the_one_that_was_used(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a build waits for another, a file may change."""

    @contextmanager
    def slow(*_: object) -> Iterator[None]:
        (project / "build/.hubkernels").mkdir(parents=True)
        (project / "torch-ext/my_table/op.py").write_text("CHANGED = True\n", encoding="utf-8")
        yield

    monkeypatch.setattr(work, "locked", slow)
    builder = builder_of(project)
    (package,) = builder.project.packages
    (variant,) = builder.decide(package).accepted
    made = builder.build(package, variant, silent)
    assert builder.planned["my-table", "cpu"].op_id == made.op_id
    assert "CHANGED" in (made.folder / "op.py").read_text(encoding="utf-8")


def test_the_plan_of_every_backend_is_told(tmp_path: Path) -> None:
    """Of a package for the CPU and CUDA, editors and clang-tidy never heard of the sources for CUDA."""
    builder = builder_of(write_noarch(tmp_path, "my-table", ("cpu", "cuda")))
    (package,) = builder.project.packages
    for variant in builder.decide(package).accepted:
        builder.build(package, variant, silent)
    assert set(builder.planned) == {("my-table", "cpu"), ("my-table", "cuda")}


def test_a_builder_with_sanitizers_has_no_place_where_a_client_looks(project: Path) -> None:
    builder = builder_of(project, Settings(jobs=1, sanitizers=("address",)))
    assert builder.places.package("my-table") == project / "build/.hubkernels/sanitized/my-table"
    assert builder_of(project).places.package("my-table") == project / "build/my-table"


def test_a_cache_size_that_is_none_stops_what_builds_and_nothing_else(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBKERNELS_CACHE_SIZE", "much")
    assert [cli(verb, "--project", project).code for verb in ("plan", "explain", "list-variants")] == [0, 0, 0]
    ran = cli("build", "--project", project)
    assert ran.code == 2
    assert "not a size: 'much'\n  --> environment: HUBKERNELS_CACHE_SIZE\n  hint: write it as" in ran.err
    assert not (project / "build").exists()


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_who_waits_for_headers_to_be_read_is_told(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    plan = Builder.plan

    def slow(self: Builder, package: Package, variant: AnyVariant) -> BuildPlan:
        time.sleep(0.3)
        return plan(self, package, variant)

    monkeypatch.setattr(report, "LONG_S", 0.1)
    monkeypatch.setattr(Builder, "plan", slow)
    told = "" if quiet else "my-table: reading its sources and the headers that they include\n"
    assert cli("build", "--project", project, *quiet).err == told
