"""compile_commands.json: the format, what is kept of other packages, and what a damaged file leads to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hubkernels.build.compile_commands import entries, merge, write_compile_commands
from hubkernels.model.plan import Step
from tests.unit.test_plan import made


def test_each_source_has_the_command_that_compiles_it(tmp_path: Path) -> None:
    plan = made()
    found = entries(plan, tmp_path)
    compiled = [step for step in plan.steps if step.verb == "compile" and step.subject in step.command]
    assert [entry["file"] for entry in found] == [step.subject for step in compiled]
    for entry, step in zip(found, compiled, strict=True):
        assert entry.keys() == {"directory", "file", "arguments", "output"}
        assert entry["directory"] == str(tmp_path)
        assert entry["arguments"][-2:] == ["-o", step.output]
        assert entry["arguments"][:-1] == list(step.command[:-1])
        assert Step.OUTPUT not in entry["arguments"]


def entry(folder: Path, file: str, flag: str = "-O1") -> dict[str, object]:
    return {"directory": str(folder), "file": file, "arguments": ["g++", flag, "-c", file], "output": f"{file}.o"}


def test_entries_of_other_sources_are_kept_while_they_are_there(tmp_path: Path) -> None:
    for name in ("kept.cpp", "new.cpp"):
        (tmp_path / name).touch()
    old = [entry(tmp_path, name) for name in ("kept.cpp", "gone.cpp", "new.cpp")]
    assert merge(old, [entry(tmp_path, "new.cpp", "-O2")]) == [
        entry(tmp_path, "kept.cpp"),
        entry(tmp_path, "new.cpp", "-O2"),
    ]


def test_a_source_of_two_backends_has_the_first_command(tmp_path: Path) -> None:
    of_cpu, of_cuda = entry(tmp_path, "binding.cpp"), entry(tmp_path, "binding.cpp", "-DUSE_CUDA=1")
    assert merge(None, [of_cpu, of_cuda, entry(tmp_path, "gpu.cpp")]) == [of_cpu, entry(tmp_path, "gpu.cpp")]


@pytest.mark.parametrize("text", ["", "not json", "{}", '[1, {"file": 3}, {"directory": "x"}, null]', "[[]]"])
def test_what_is_no_list_of_entries_is_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "compile_commands.json"
    path.write_text(text, encoding="utf-8")
    write_compile_commands(tmp_path, [entry(tmp_path, "a.cpp")])
    assert json.loads(path.read_text()) == [entry(tmp_path, "a.cpp")]


def test_a_file_that_is_right_is_not_written_again(tmp_path: Path) -> None:
    write_compile_commands(tmp_path, [entry(tmp_path, "a.cpp")])
    before = (tmp_path / "compile_commands.json").stat()
    write_compile_commands(tmp_path, [entry(tmp_path, "a.cpp")])
    assert (tmp_path / "compile_commands.json").stat().st_ino == before.st_ino


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "build").touch()
    write_compile_commands(tmp_path / "build", [entry(tmp_path, "a.cpp")])
    assert (tmp_path / "build").is_file()
