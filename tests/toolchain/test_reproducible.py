"""`check reproducible` passes projects that are, and finds out those that are not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.usefixtures("cold_cache")


@pytest.fixture
def small(tmp_path: Path) -> SmallProject:
    return SmallProject(tmp_path, "my-kernel").write().without_torch()


def spoil(project: SmallProject, text: str) -> None:
    """Put a string that a macro makes into the library."""
    source = project.root / "cpu/kernel.cpp"
    shown = '[[gnu::visibility("default")]]'  # else the linker leaves it out: nothing refers to it
    more = f"{shown} extern const char* const made;\nconst char* const made = {text};\n"
    source.write_text(source.read_text() + more)


def test_a_project_is_reproducible_and_its_artifact_stays(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    before = small.artifact.stat().st_ino
    ran = cli("check", "reproducible", "--project", small.root)
    assert (ran.code, ran.out.split()[:3]) == (0, ["ok", "reproducible", "my-kernel"]), ran.err
    assert small.artifact.stat().st_ino == before


def test_a_variant_that_is_not_built_here_is_passed_over_with_the_reason(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    artifact, elsewhere = small.artifact, "torch-stable-abi210-cpu-aarch64-linux"
    for name in (elsewhere, "torch-cpu-of-old"):
        shutil.copytree(artifact, artifact.with_name(name))
    ran = cli("check", "reproducible", "--project", small.root)
    assert ran.code == 0, ran.err
    assert (
        f"-   reproducible  my-kernel  {elsewhere}: built on aarch64-linux, this machine is x86_64-linux\n" in ran.out
    )
    assert "-   reproducible  my-kernel  torch-cpu-of-old: it is no variant of build.toml now\n" in ran.out


def test_nothing_is_built_for_it(small: SmallProject, cli: Cli) -> None:
    ran = cli("check", "reproducible", "--project", small.root)
    assert (ran.code, ran.out.split()[:2]) == (2, ["not", "run"])
    assert "is not built yet\n  hint: run `kernel-builder build` first" in ran.err
    assert not (small.root / "build/my-kernel").exists()


def test_an_artifact_that_is_out_of_date_is_told_by_every_check_that_looks_at_it(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    before = (small.artifact / "metadata.json").read_bytes()
    assert "out of date" not in cli("check", "abi", "builds", "--project", small.root).err
    source = small.root / "cpu/kernel.cpp"
    source.write_text(f"{source.read_text()}int64_t more() {{ return 1; }}\n")
    ran = cli("check", "abi", "builds", "--project", small.root)
    assert ran.code == 0
    stale = "torch-stable-abi210-cpu-x86_64-linux is out of date: a source, a header, a flag or a Python file changed"
    assert ran.err == f"warning: my-kernel: {stale}\n  hint: `kernel-builder build`\n"
    found = json.loads(cli("check", "abi", "builds", "--project", small.root, "--json").out)
    assert [len(each["warnings"]) for each in found] == [1, 1]
    ran = cli("check", "reproducible", "--project", small.root)
    assert (ran.code, ran.out.split()[:2]) == (2, ["not", "run"])
    assert (small.artifact / "metadata.json").read_bytes() == before


def test_names_and_times_that_are_held_fixed_do_no_harm(small: SmallProject, cli: Cli) -> None:
    spoil(small, '__FILE__ __DATE__ __TIME__ "made"')
    text = (small.root / "build.toml").read_text()
    flags = '["-g", "-flto", "-ffat-lto-objects"]'
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", f"[kernel.cpu]\ncxx-flags = {flags}"))
    cli("build", "--project", small.root)
    ran = cli("check", "reproducible", "--project", small.root)
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "value", ["$(date +%s%N)", "$PPID$$", "$PWD"], ids=["a clock", "a process number", "the folder"]
)
def test_what_a_launcher_lets_in_is_found_out(
    small: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    launcher = tmp_path / "launcher"
    # Not where the compiler is asked what it is: one that is another at every call has no artifact that is up to date.
    launcher.write_text(f'#!/bin/sh\ncase "$*" in *" -c cpu/"*) exec "$@" "-DMADE=\\"{value}\\"";; esac\nexec "$@"\n')
    launcher.chmod(0o755)
    spoil(small, "MADE")
    monkeypatch.setenv("CXX", f"{launcher} g++")
    cli("build", "--project", small.root)
    ran = cli("check", "reproducible", "--project", small.root)
    assert ran.code == 1
    assert f"{small.op_id}.abi3.so: differs when it is built again: section" in ran.err
    assert ".rodata" in ran.err
    ran = cli("check", "reproducible", "--json", "--project", small.root)
    assert (ran.code, [found["place"] for found in json.loads(ran.out)[0]["results"]]) == (
        1,
        [f"{small.op_id}.abi3.so", "metadata.json"],
    )


def test_a_clock_that_this_compiler_reads_is_refused(
    small: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """clang before 16 does not heed SOURCE_DATE_EPOCH."""
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("there is no clang++ on PATH")
    version = subprocess.run([clang, "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if int(version.split(".")[0]) >= 16:
        pytest.skip(f"clang {version.strip()} heeds SOURCE_DATE_EPOCH")
    monkeypatch.setenv("CXX", clang)
    cli("build", "--project", small.root)
    assert cli("check", "reproducible", "--project", small.root).code == 0
    spoil(small, "__TIME__")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "cpu/kernel.cpp has __TIME__: what is built would not be the same at another time" in ran.err


def test_the_check_needs_no_client(small: SmallProject) -> None:
    code = (
        "import sys; sys.modules['kernels'] = None\n"
        "from hubkernels.check.client import main\n"
        f"main(['hubkernels.check.rebuilt:rebuild', {str(small.root / 'order')!r}, {str(small.root / 'answer')!r}])\n"
    )
    tag = "torch-stable-abi210-cpu-x86_64-linux"
    arguments = {
        "project": str(small.root),
        "package": "my-kernel",
        "variants": [tag],
        "jobs": 1,
        "environment": {**os.environ},
        "sdks": None,
    }
    (small.root / "order").write_text(
        json.dumps({"timeout_s": 300, "requires": [], "progress": None, "arguments": arguments})
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert json.loads((small.root / "answer").read_bytes())["answer"] == {tag: str(small.artifact)}


def test_a_member_is_built_again_without_its_workspace(tmp_path: Path, cli: Cli) -> None:
    """With a header beyond its folder, and one that a link leads to."""
    members = [SmallProject(tmp_path / "all" / name, name).write().without_torch() for name in ("one", "two")]
    (tmp_path / "all/build.toml").write_text('[workspace]\nschema = 1\nmembers = ["*"]\n', encoding="utf-8")
    (tmp_path / "all/common.h").write_text("inline int beyond() { return 1; }\n", encoding="utf-8")
    (tmp_path / "linked.h").write_text("inline int linked() { return 2; }\n", encoding="utf-8")
    (members[0].root / "include/linked.h").symlink_to("../../../linked.h")
    source = members[0].root / "cpu/kernel.cpp"
    more = '#include "../../common.h"\n#include "linked.h"\nint both() { return beyond() + linked(); }\n'
    source.write_text(source.read_text() + more)
    cli("build", "--project", tmp_path / "all")
    ran = cli("check", "reproducible", "--project", tmp_path / "all")
    assert ran.code == 0, ran.err
    assert [row.split()[2] for row in ran.out.splitlines()] == ["one", "two"]
