"""What verbs print that need no compiler."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from hubkernels.build.select import candidates
from hubkernels.config import load_project
from hubkernels.config.variant_table import load_variant_table
from tests.conftest import Cli, SmallProject

XPU = "torch-stable-abi210-xpu20260-x86_64-linux"


def variants(project: SmallProject) -> list[str]:
    (package,) = load_project(project.root).packages
    return [variant.tag for variant in candidates(package, load_variant_table())]


def test_list_variants_tells_of_each_variant_once_whether_it_is_built(small: SmallProject, cli: Cli) -> None:
    ran = cli("list-variants", "--project", small.root)
    assert ran.code == 0, ran.err
    title, *rows = ran.out.splitlines()
    assert title == "my-kernel:"
    states = {row.split()[1]: row.split()[0] for row in rows}
    assert len(rows) == len(states)
    assert set(states) == set(variants(small))
    assert set(states.values()) <= {"build", "-"}
    (xpu,) = (row for row in rows if XPU in row)
    assert "general.backends does not name xpu; this hubkernels has no xpu toolchain" in xpu


def test_list_variants_as_json_has_the_same_facts(small: SmallProject, cli: Cli) -> None:
    lines = [line.split() for line in cli("list-variants", "--project", small.root).out.splitlines()[1:]]
    ran = cli("list-variants", "my_kernel", "--project", small.root, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert list(found) == ["my-kernel"]
    accepted, rejected = found["my-kernel"]["accepted"], found["my-kernel"]["rejected"]
    assert accepted == [words[1] for words in lines if words[0] == "build"]
    assert list(rejected) == [words[1] for words in lines if words[0] == "-"]
    assert all(rejected.values())
    assert "general.backends does not name xpu" in rejected[XPU]
    assert sorted((*accepted, *rejected)) == sorted(variants(small))


def test_a_reader_that_has_gone_ends_a_verb_as_the_signal_would(small: SmallProject) -> None:
    """`list-variants | head`: no check has failed."""
    command = [sys.executable, "-m", "hubkernels.cli", "list-variants", "--project", str(small.root)]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_list_variants_writes_nothing(small: SmallProject, cli: Cli) -> None:
    cli("list-variants", "--project", small.root)
    assert not (small.root / "build").exists()
