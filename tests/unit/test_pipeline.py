"""The builder of one project, on packages that need no compiler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hubkernels.build import work
from hubkernels.build.pipeline import Builder
from hubkernels.build.report import Progress
from hubkernels.build.settings import Settings
from hubkernels.config import load_project
from tests.conftest import Cli, write_noarch


def silent(_: Progress | str) -> None:
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
    assert builder.planned["my-table"].op_id == made.op_id
    assert "CHANGED" in (made.folder / "op.py").read_text(encoding="utf-8")


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
