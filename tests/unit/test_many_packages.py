"""A workspace of 52 packages: nothing is read or written twice when there is nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.host import files
from tests.conftest import Cli, write_noarch


def test_a_build_without_a_change_reads_no_source(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(52):
        write_noarch(tmp_path / f"kernel-{number:02}", f"kernel-{number:02}", ("cpu", "cuda"))
    monkeypatch.setattr(files, "_SETTLED_NS", -1)
    assert cli("build", "-C", tmp_path).code == 0
    monkeypatch.setattr(files, "hash_file", lambda path: pytest.fail(f"read {path} again"))
    assert cli("build", "-C", tmp_path).out.count("up to date") == 104


def test_all_of_them_are_listed_and_checked(tmp_path: Path, cli: Cli) -> None:
    for number in range(52):
        write_noarch(tmp_path / f"kernel-{number:02}", f"kernel-{number:02}", ("cpu", "cuda"))
    assert cli("list-variants", "-C", tmp_path).out.count("  build") == 104
    assert cli("check", "config", "-C", tmp_path).out.count("ok") == 52
