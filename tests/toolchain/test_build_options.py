"""What `build` tells and keeps by its options, and the compile commands that it leaves for editors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="this machine has no g++")


def test_every_entry_for_editors_compiles_as_it_stands(small: SmallProject, cli: Cli) -> None:
    cli("build", small.root)
    entries = json.loads((small.root / "build/compile_commands.json").read_text(encoding="utf-8"))
    assert [entry["file"] for entry in entries] == ["cpu/kernel.cpp", "torch-ext/binding.cpp"]
    for entry in entries:
        assert Path(entry["directory"], entry["file"]).is_file()
        subprocess.run([*entry["arguments"], "-fsyntax-only"], cwd=entry["directory"], check=True)
    before = (small.root / "build/compile_commands.json").stat()
    cli("build", small.root)
    assert (small.root / "build/compile_commands.json").stat().st_mtime_ns == before.st_mtime_ns


def test_a_source_that_does_not_compile_yet_has_an_entry_too(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text("this is no C++\n", encoding="utf-8")
    assert cli("build", small.root).code == 2
    entries = json.loads((small.root / "build/compile_commands.json").read_text(encoding="utf-8"))
    assert "cpu/kernel.cpp" in [entry["file"] for entry in entries]


def test_clean_takes_the_entries_away_unless_a_package_is_named(small: SmallProject, cli: Cli) -> None:
    path = small.root / "build/compile_commands.json"
    cli("build", small.root)
    cli("clean", "my-kernel", "--project", small.root)
    assert path.exists()
    cli("clean", small.root)
    assert not path.exists()


def test_verbose_tells_each_command_and_quiet_nothing(small: SmallProject, cli: Cli) -> None:
    quiet = cli("build", "--quiet", small.root)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    small.write(answer=43)
    plain = cli("build", small.root)
    assert "] compile cpu/kernel.cpp (" in plain.err
    assert "-fvisibility=hidden" not in plain.err
    small.write(answer=44)
    verbose = cli("build", "-L", small.root)
    (line,) = (line for line in verbose.err.splitlines() if " cpu/kernel.cpp " in line)
    assert line.startswith("[")
    assert "-fvisibility=hidden" in line


def test_quiet_keeps_warnings_and_errors(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text(
        '#include "kernel.h"\n#warning "look here"\nint64_t answer() { return 1; }\n', encoding="utf-8"
    )
    ran = cli("build", "--quiet", small.root)
    assert (ran.code, ran.out) == (0, "")
    assert "look here" in ran.err


def test_json_keeps_the_diagnostics_of_a_failure_in_one_line(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text("int main() { return x; }\n", encoding="utf-8")
    ran = cli("build", "--json", small.root)
    assert (ran.code, ran.out) == (2, "")
    found = json.loads(ran.err.splitlines()[-1])
    assert found["exit-code"] == 2
    assert "was not declared" in found["problems"][0]["what"]


def test_debug_keeps_what_a_failed_run_has_made(small: SmallProject, cli: Cli) -> None:
    runs = small.root / "build/.hubkernels/runs"
    (small.root / "cpu/kernel.cpp").write_text("this is no C++\n", encoding="utf-8")
    cli("build", small.root)
    assert list(runs.iterdir()) == []
    ran = cli("build", "--debug", small.root)
    assert "Traceback" in ran.err
    assert len(list(runs.iterdir())) == 1
    small.write()
    cli("build", "--debug", small.root)
    assert list(runs.iterdir()) == []


@pytest.mark.usefixtures("cold_cache")
def test_a_memory_budget_that_limits_is_told(small: SmallProject, cli: Cli) -> None:
    ran = cli("build", "--jobs", "4", "--memory", "600MB", small.root)
    assert ran.code == 0, ran.err
    assert "1 command at a time instead of 4: 0.6 GB of memory may be used" in ran.err


@pytest.mark.parametrize("options", [["--max-jobs", "4", "--cores", "2"], ["--print-build-logs"]])
def test_upstreams_options_are_taken(small: SmallProject, cli: Cli, options: list[str]) -> None:
    ran = cli("build-and-copy", small.root, *options)
    assert ran.code == 0, ran.err
    assert ("--max-jobs: variants are built one after another" in ran.err) == ("--max-jobs" in options)
    assert small.artifact.is_dir()
    assert os.listdir(small.root / "build/.hubkernels/runs") == []  # noqa: PTH208 - names alone


def test_a_hash_after_a_change_by_hand_makes_the_next_build_make_it_anew(small: SmallProject, cli: Cli) -> None:
    cli("build", small.root)
    (small.artifact / "layers.py").write_text("WHOSE = 'mine'\n", encoding="utf-8")
    assert cli("hash", small.root).out.split()[0] == "written"
    assert cli("check", "builds", small.root).code == 0
    assert cli("build", small.root).out.split()[0] == "built"
    assert (small.artifact / "layers.py").read_text(encoding="utf-8") == "WHOSE = 42\n"
