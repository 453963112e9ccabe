"""`kernel-builder explain` on a project that has been built."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hubkernels.cli import main

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explain") / "relu2"
    assert main(["init", str(folder)]) == 0
    assert main(["build", "-C", str(folder)]) == 0
    return folder


def explain(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["explain", "-C", str(project), "--json", *options]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


def test_the_id_is_that_of_the_artifact_and_the_artifact_is_current(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (target,) = explain(project, capsys)["targets"]
    metadata = json.loads((Path(target["folder"]) / "metadata.json").read_bytes())
    assert target["id"] == metadata["id"]
    assert target["state"] == "up to date"


def test_each_section_has_its_sources_and_its_own_flags(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (target,) = explain(project, capsys)["targets"]
    sections = target["sections"]
    assert list(sections) == ["torch", "kernel.relu2_cpu", "kernel.relu2_cpu_avx512"]
    assert sections["kernel.relu2_cpu_avx512"]["sources"] == ["relu2_cpu/relu2_avx512.cpp"]
    assert "-mavx512f" in sections["kernel.relu2_cpu_avx512"]["flags"]
    assert "-mavx512f" not in sections["kernel.relu2_cpu"]["flags"]


def test_one_variant_can_be_asked_for_and_a_rejected_one_tells_why(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tag = "torch-stable-abi210-xpu20260-x86_64-linux"
    found = explain(project, capsys, "--variant", tag)
    assert found["targets"] == []
    assert list(found["rejected"]) == [tag]
    assert "general.backends does not name xpu" in found["rejected"][tag]


def test_a_variant_that_does_not_exist_is_an_error_with_the_nearest(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "-C", str(project), "--variant", "torch-stable-abi210-cpu-x86-linux"]) == 2
    assert "did you mean torch-stable-abi210-cpu-x86_64-linux?" in capsys.readouterr().err


def test_an_artifact_of_another_compiler_is_out_of_date_and_says_which(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (target,) = explain(project, capsys)["targets"]
    folder = Path(target["folder"])
    note = folder.parent / f"{folder.name}.build.json"
    metadata = folder / "metadata.json"
    before = (note.read_text(encoding="utf-8"), metadata.read_text(encoding="utf-8"))
    found = json.loads(before[0])
    now = found["toolchain"]["compiler"]
    found["toolchain"]["compiler"] = "g++ 1.0"
    note.write_text(json.dumps(found), encoding="utf-8")
    metadata.write_text("{}", encoding="utf-8")
    try:
        (target,) = explain(project, capsys)["targets"]
    finally:
        note.write_text(before[0], encoding="utf-8")
        metadata.write_text(before[1], encoding="utf-8")
    assert target["state"] == f"out of date: compiler was g++ 1.0, is {now}"


def test_a_changed_flag_is_another_id(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before,) = explain(project, capsys)["targets"]
    file = project / "build.toml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"-mavx512f"', '"-mavx512f", "-DCHANGED"'), encoding="utf-8")
    try:
        (after,) = explain(project, capsys)["targets"]
    finally:
        file.write_text(text, encoding="utf-8")
    assert after["id"] != before["id"]
    assert after["state"] == "out of date: a source, a header, a flag or a Python file changed"


def test_the_text_form_prints_the_same_facts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (target,) = explain(project, capsys)["targets"]
    assert main(["explain", "-C", str(project)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "relu2:"
    assert f"id {target['id']}" in lines
    assert any(line.startswith("toolchain ") and ", torch " in line for line in lines)
    assert any(
        line.startswith("not built torch-stable-abi210-cpu-aarch64-linux: built on aarch64-linux") for line in lines
    )


def test_no_git_is_asked(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text(f"#!/bin/sh\ntouch '{tmp_path}/asked'\n", encoding="utf-8")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    explain(project, capsys)
    assert not (tmp_path / "asked").exists()
