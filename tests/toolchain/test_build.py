"""Real builds of a small project: what is made, what is made again, what goes wrong and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hubkernels.model.digest import digest_folder
from tests.conftest import Cli, SmallProject, environment

TAG = "torch-stable-abi210-cpu-x86_64-linux"
pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = [
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="the expected tags are those of x86_64; this machine is another"
    ),
    pytest.mark.usefixtures("cold_cache"),
]

COLD, WARM, REPLACING = "cold", "warm", "replacing"
KILLS = dict(
    zip((COLD, WARM, REPLACING), (50, 17, 17) if os.environ.get("HUBKERNELS_TEST_ALL") else (2, 2, 2), strict=True)
)


def command(project: SmallProject, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(project.root), *arguments]


def forget(project: SmallProject, cache: Path) -> None:
    """Remove all that builds made, kept and remembered."""
    for folder in (project.root / "build", cache):
        shutil.rmtree(folder, ignore_errors=True)


def unfinished(project: SmallProject) -> list[Path]:
    work = project.root / "build/.hubkernels"
    return [*work.glob("runs/*"), *work.glob("*.old")]


def test_an_artifact_has_the_library_the_python_and_the_metadata(small: SmallProject, cli: Cli) -> None:
    ran = cli("build", "--project", small.root)
    assert (ran.code, ran.out.split()[:3]) == (0, ["built", "my-kernel", TAG])
    assert "[4/4] link" in ran.err
    names = {path.name for path in small.artifact.iterdir()}
    assert names == {"__init__.py", "_ops.py", f"{small.op_id}.abi3.so", "layers.py", "metadata.json"}
    metadata = json.loads((small.artifact / "metadata.json").read_text())
    assert metadata["id"] == small.op_id
    assert metadata["digest"] == {"algorithm": "sha256", "files": digest_folder(small.artifact)}
    note = json.loads((small.artifact.parent / f"{TAG}.build.json").read_text())
    assert note["id"] == small.op_id
    assert set(note) == {"variant", "id", "builder", "toolchain", "git"}


def test_a_build_with_nothing_to_do_does_nothing_and_imports_no_torch(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    before = {path: path.stat().st_mtime_ns for path in small.artifact.iterdir()}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command(small)[1:]], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("up to date")
    assert not {"torch", "ninja", "filelock", "rich", "elftools"} & {
        line.split("|")[-1].strip() for line in done.stderr.splitlines()
    }
    assert {path: path.stat().st_mtime_ns for path in small.artifact.iterdir()} == before


def test_a_touched_file_builds_nothing(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    (small.root / "cpu/kernel.cpp").touch()
    assert cli("build", "--project", small.root).out.startswith("up to date")


@pytest.mark.parametrize("path", ["include/kernel.h", "cpu/kernel.cpp", "torch-ext/my_kernel/layers.py"])
def test_a_changed_file_makes_another_id_and_replaces_the_artifact(small: SmallProject, cli: Cli, path: str) -> None:
    small.without_torch()
    cli("build", "--project", small.root)
    before = small.op_id
    comment = "# changed\n" if path.endswith(".py") else "// changed\n"
    (small.root / path).write_text((small.root / path).read_text() + comment)
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before
    assert len(list(small.artifact.glob("*.so"))) == 1


def test_a_changed_flag_makes_another_id(small: SmallProject, cli: Cli) -> None:
    small.without_torch()
    cli("build", "--project", small.root)
    before = small.op_id
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", '[kernel.cpu]\ncxx-flags = ["-DX=1"]'))
    cli("build", "--project", small.root)
    assert small.op_id != before


KERNEL_H = "#pragma once\n#include <cstdint>\nint64_t answer();  // nearer\n"


def test_a_header_that_comes_before_another_of_its_name_is_seen(small: SmallProject, cli: Cli) -> None:
    small.without_torch()
    cli("build", "--project", small.root)
    before = small.op_id
    (small.root / "cpu/kernel.h").write_text(KERNEL_H)
    cli("build", "--project", small.root)
    assert small.op_id != before


@pytest.mark.parametrize("linked", [True, False])
def test_a_header_that_was_passed_over_for_an_equal_one_is_seen(small: SmallProject, cli: Cli, *, linked: bool) -> None:
    """g++ takes two files with ``#pragma once`` of one content and time, or one file behind two names, for one."""
    one, two = small.root / "include/one.h", small.root / "include/two.h"
    one.write_text("#pragma once\n")
    if linked:
        two.symlink_to("one.h")
    else:
        shutil.copy2(one, two)
    small.without_torch()
    source = small.root / "cpu/kernel.cpp"
    source.write_text('#include "one.h"\n#include "two.h"\n' + source.read_text())
    assert cli("build", "-C", small.root).code == 0
    first = small.op_id
    two.unlink()
    two.write_text("#pragma once\n#define MORE 1\n")
    assert cli("build", "-C", small.root).code == 0
    assert small.op_id != first


@pytest.mark.parametrize("exists", [True, False], ids=["folder exists", "folder is new"])
def test_a_header_that_comes_before_another_below_an_earlier_root_is_seen(
    small: SmallProject, cli: Cli, *, exists: bool
) -> None:
    small.without_torch()
    (small.root / "include/hk").mkdir()
    (small.root / "include/kernel.h").rename(small.root / "include/hk/kernel.h")
    (small.root / "first").mkdir()
    if exists:
        (small.root / "first/hk").mkdir()
    for path, old, new in (
        ("cpu/kernel.cpp", '"kernel.h"', "<hk/kernel.h>"),
        ("torch-ext/binding.cpp", '"../include/kernel.h"', '"../include/hk/kernel.h"'),
        ("build.toml", 'include = ["include"]', 'include = ["first", "include"]'),
        ("build.toml", '"include/kernel.h"', '"include/hk/kernel.h"'),
    ):
        (small.root / path).write_text((small.root / path).read_text().replace(old, new))
    assert cli("build", "--project", small.root).code == 0
    before = small.op_id
    (small.root / "first/hk").mkdir(exist_ok=True)
    (small.root / "first/hk/kernel.h").write_text(KERNEL_H)
    cli("build", "--project", small.root)
    assert small.op_id != before


def test_a_file_that_a_source_asks_for_is_seen_when_it_comes(small: SmallProject, cli: Cli) -> None:
    small.without_torch()
    (small.root / "include/extra").mkdir()
    (small.root / "include/extra/other.h").touch()
    source = small.root / "cpu/kernel.cpp"
    source.write_text('#if __has_include("extra/fast.h")\n#include "extra/fast.h"\n#endif\n' + source.read_text())
    cli("build", "--project", small.root)
    before = small.op_id
    (small.root / "include/extra/fast.h").write_text("#pragma once\n")
    cli("build", "--project", small.root)
    assert small.op_id != before


def test_a_tree_where_nothing_can_be_written_is_planned(small: SmallProject, cli: Cli) -> None:
    (small.root / "build").write_text("in the way")
    assert cli("plan", "--project", small.root).code == 0
    ran = cli("build", "--project", small.root)
    assert ran.code == 3
    assert "cannot write" in ran.err


def test_odd_file_names_and_links_to_folders_are_built(small: SmallProject, cli: Cli) -> None:
    small.without_torch()
    odd = "cpu/an odd: $name#1's kernel.cpp"
    (small.root / "cpu/kernel.cpp").rename(small.root / odd)
    (small.root / "elsewhere/deep").mkdir(parents=True)
    (small.root / "torch-ext/binding.cpp").rename(small.root / "elsewhere/deep/binding.cpp")
    (small.root / "elsewhere/include").symlink_to(small.root / "include")
    (small.root / "link").symlink_to(small.root / "elsewhere/deep")
    text = (small.root / "build.toml").read_text()
    text = text.replace("cpu/kernel.cpp", odd).replace("torch-ext/binding.cpp", "link/binding.cpp")
    (small.root / "build.toml").write_text(text)
    assert cli("build", "--project", small.root).code == 0
    before = small.op_id
    (small.root / "include/kernel.h").write_text(KERNEL_H)  # read through the link, as link/../include/kernel.h
    assert cli("build", "--project", small.root).code == 0
    assert small.op_id != before


LATER = "int64_t later() { return 1; }"
EDITS = {
    "once": (f"echo '{LATER}' >> {{source}}", "kernel.cpp of my-kernel changed while it was built"),
    "and back": (
        f"cp {{source}} {{kept}}; echo '{LATER}' >> {{source}}",
        "kernel.cpp of my-kernel changed while it was built",
    ),
    "and another is wrong": (f"echo '{LATER}' >> {{source}}; echo 'nonsense;' >> {{other}}", "does not compile"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_changes_while_it_is_built_spoils_nothing(
    small: SmallProject, tmp_path: Path, cold_cache: Path, edit: str
) -> None:
    """The compiler is a script that edits the sources when it compiles one of them."""
    source, other = small.root / "cpu/kernel.cpp", small.root / "torch-ext/binding.cpp"
    original = {path: path.read_text() for path in (source, other)}
    once, kept = tmp_path / "once", tmp_path / "kept"
    change, message = EDITS[edit]
    for name, path in (("{source}", source), ("{other}", other), ("{kept}", kept)):
        change = change.replace(name, str(path))
    undo = f'g++ "$@"; cp {kept} {source}; exit' if edit == "and back" else "true"
    guard = f"[ -e {once} ] || {{ touch {once}; {change}; {undo}; }}"
    compiler = tmp_path / "slow-g++"
    trigger = "binding" if "{other}" in EDITS[edit][0] else "kernel"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *-c*{trigger}.cpp*) {guard};; esac\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    changed = environment(CXX=str(compiler))
    first = subprocess.run(command(small, "--jobs", "1"), env=changed, capture_output=True, text=True, check=False)
    assert (first.returncode, message in first.stderr) == (2, True), first.stderr
    assert not list(cold_cache.rglob("*.o")), "nothing is kept"
    for path, text in original.items():
        path.write_text(text)
    subprocess.run(command(small), env=changed, capture_output=True, text=True, check=True)
    made = digest_folder(small.artifact)
    forget(small, cold_cache)
    subprocess.run(command(small), env=changed, capture_output=True, text=True, check=True)
    assert digest_folder(small.artifact) == made


def test_a_python_file_that_changes_while_it_is_built_spoils_nothing(small: SmallProject, tmp_path: Path) -> None:
    """Here git is a script that edits the file: it runs when all is compiled, or before. No checkout, no git."""
    (small.root / ".git/objects").mkdir(parents=True)
    layers = small.root / "torch-ext/my_kernel/layers.py"
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin/git"
    git.write_text(f"#!/bin/sh\n[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; echo WRONG = 1 >> {layers}; }}\n")
    git.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    first = subprocess.run(command(small), env=environment(PATH=path), capture_output=True, text=True, check=False)
    assert first.returncode == 2
    assert "torch-ext/my_kernel/layers.py of my-kernel changed while it was built" in first.stderr
    assert not (small.root / "build/my-kernel").exists()


def test_what_did_compile_is_not_compiled_again_after_a_failure(
    small: SmallProject, cli: Cli, cold_cache: Path
) -> None:
    binding = small.root / "torch-ext/binding.cpp"
    good = binding.read_text()
    binding.write_text(good + "int wrong = nonsense;\n")
    assert cli("build", "--project", small.root).code == 2
    before = {path: path.stat().st_ino for path in cold_cache.rglob("*.o")}
    assert len(before) == 2, "the kernel and what hubkernels adds"
    binding.write_text(good)
    assert cli("build", "--project", small.root).code == 0
    assert {path: path.stat().st_ino for path in before} == before


def test_sources_from_the_future_are_built(small: SmallProject, cli: Cli) -> None:
    later = time.time() + 7200
    for path in small.root.rglob("*.*"):
        os.utime(path, (later, later))
    assert cli("build", "--project", small.root).code == 0
    assert cli("build", "--project", small.root).out.startswith("up to date")


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[[" * 5000,
        '{"form": 1, "entries": {"a\\u0000b": [[1, 2, 3, 4], "x"]}}',
        '{"form": 1, "entries": 5}',
    ],
)
def test_a_damaged_memory_is_forgotten(small: SmallProject, cli: Cli, damage: str) -> None:
    cli("build", "--project", small.root)
    (small.root / "build/.hubkernels/hashes.json").write_text(damage)
    assert cli("build", "--project", small.root).out.startswith("up to date")


def test_a_dangling_link_where_the_artifact_belongs_is_replaced(small: SmallProject, cli: Cli) -> None:
    (small.root / "build/my-kernel").mkdir(parents=True)
    (small.root / "build/my-kernel" / TAG).symlink_to("nowhere")
    assert cli("build", "--project", small.root).code == 0
    assert small.artifact.is_dir()
    assert not small.artifact.is_symlink()


def test_a_linked_member_is_built_in_the_workspaces_folder(tmp_path: Path, cli: Cli) -> None:
    SmallProject(tmp_path / "else/deep/k", "my-kernel").write()
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/link").symlink_to(tmp_path / "else/deep/k")
    (tmp_path / "ws/build.toml").write_text('[workspace]\nschema = 1\nmembers = ["link"]\n')
    assert cli("build", "--project", tmp_path / "ws").code == 0
    assert not list((tmp_path / "else").rglob(".hubkernels"))


def test_a_folder_with_a_newline_in_its_name_is_refused(tmp_path: Path, cli: Cli) -> None:
    project = SmallProject(tmp_path / "new\nline", "my-kernel").write()
    ran = cli("build", "--project", project.root)
    assert ran.code == 2
    assert "a character that cannot be written" in ran.err


def test_search_variables_of_the_environment_change_nothing(
    small: SmallProject, cli: Cli, tmp_path: Path, cold_cache: Path
) -> None:
    cli("build", "--project", small.root)
    before = small.op_id
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap/cstdint").write_text("#error found through CPATH\n")
    good = digest_folder(small.artifact)
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LD_RUN_PATH"):
        forget(small, cold_cache)
        subprocess.run(command(small), env=environment(**{name: str(tmp_path / "trap")}), check=True)
        assert small.op_id == before
        assert digest_folder(small.artifact) == good


def test_a_launcher_before_the_compiler_changes_nothing(
    small: SmallProject, cli: Cli, tmp_path: Path, cold_cache: Path
) -> None:
    cli("build", "--project", small.root)
    before, good = small.op_id, digest_folder(small.artifact)
    launcher = tmp_path / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/launched\nexec "$@"\n')
    launcher.chmod(0o755)
    forget(small, cold_cache)
    subprocess.run(command(small), env=environment(CXX=f"{launcher} g++"), check=True)
    assert (small.op_id, digest_folder(small.artifact)) == (before, good)
    assert len((tmp_path / "launched").read_text().splitlines()) >= 4


@pytest.mark.parametrize("added", ["-mavx2 -ffast-math", "-DNOISE=1", "-Wl,-z,now"])
def test_a_driver_that_adds_flags_is_another_compiler(
    small: SmallProject, cli: Cli, tmp_path: Path, added: str
) -> None:
    cli("build", "--project", small.root)
    before = small.op_id
    driver = tmp_path / "driver"
    driver.write_text(f'#!/bin/sh\nexec g++ {added} "$@"\n')
    driver.chmod(0o755)
    subprocess.run(command(small), env=environment(CXX=str(driver)), check=True)
    assert small.op_id != before


def test_a_source_may_be_spelled_from_the_folder_itself(small: SmallProject, cli: Cli) -> None:
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('"cpu/kernel.cpp"', '"./cpu/../cpu/kernel.cpp"'))
    assert cli("build", "--project", small.root).out.startswith("built")
    (small.root / "include/kernel.h").write_text((small.root / "include/kernel.h").read_text() + "int more();\n")
    assert cli("build", "--project", small.root).out.startswith("built")


def test_flags_in_variables_change_nothing(small: SmallProject) -> None:
    ids = set()
    for changes in ({}, {"CCC_OVERRIDE_OPTIONS": "+-ffast-math"}):
        subprocess.run(command(small), env=environment(CXX="clang++", **changes), check=True)
        ids.add(small.op_id)
    assert len(ids) == 1


def test_an_artifact_that_the_build_toml_no_longer_makes_is_named(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    old = small.artifact
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('"2.10"', '"2.11"'))
    assert f"{old} is no variant of build.toml now" in cli("build", "--project", small.root).err
    shutil.rmtree(old)
    assert "no variant" not in cli("build", "--project", small.root).err


def test_a_missing_note_is_written_again(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    note = small.artifact.parent / f"{TAG}.build.json"
    note.unlink()
    cli("build", "--project", small.root)
    assert json.loads(note.read_text())["id"] == small.op_id


def test_the_note_calls_a_tree_dirty_for_its_sources_and_not_for_what_is_built(small: SmallProject, cli: Cli) -> None:
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(small.root), *arguments], check=True)
    note = small.root / "build/my-kernel" / f"{TAG}.build.json"
    cli("build", "--project", small.root)
    assert json.loads(note.read_text())["git"]["dirty"] is False
    (small.root / "cpu/kernel.cpp").write_text((small.root / "cpu/kernel.cpp").read_text() + "// changed\n")
    cli("build", "--project", small.root)
    assert json.loads(note.read_text())["git"]["dirty"] is True


def test_the_note_names_the_commit_that_came_to_have_what_was_built(small: SmallProject, cli: Cli) -> None:
    """Build, then commit: nothing is built again, and it was to be published never."""
    note = small.root / "build/my-kernel" / f"{TAG}.build.json"
    assert cli("build", "--project", small.root).code == 0
    assert json.loads(note.read_text())["git"] is None
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")):
        subprocess.run(["git", "-C", small.root, *words], check=True)
    before = note.read_text()
    assert "up to date" in cli("build", "--project", small.root).out
    git = json.loads(note.read_text())["git"]
    done = subprocess.run(["git", "-C", small.root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert git == {"commit": done.stdout.strip(), "dirty": False}
    assert {**json.loads(before), "git": git} == json.loads(note.read_text())


def test_the_note_calls_a_tree_dirty_for_a_file_elsewhere_that_is_read(tmp_path: Path, cli: Cli) -> None:
    project = SmallProject(tmp_path / "member", "my-kernel").write().without_torch()
    (tmp_path / "shared").mkdir()
    for name in ("read.h", "other.h"):
        (tmp_path / "shared" / name).write_text("#pragma once\n")
    kernel = project.root / "cpu/kernel.cpp"
    kernel.write_text(f'#include "../../shared/read.h"\n{kernel.read_text()}')
    for arguments in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    dirty = []
    for name in ("other.h", "read.h"):
        (tmp_path / "shared" / name).write_text("#pragma once\n// changed\n")
        shutil.rmtree(project.root / "build", ignore_errors=True)
        assert cli("build", "--project", project.root).code == 0
        note = project.root / "build/my-kernel" / f"{TAG}.build.json"
        dirty.append(json.loads(note.read_text())["git"]["dirty"])
    assert dirty == [False, True]


def test_a_spoiled_artifact_is_made_anew(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    good = digest_folder(small.artifact)
    (small.artifact / "layers.py").write_text("spoiled")
    (small.artifact / "stray.py").write_text("stray")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert digest_folder(small.artifact) == good


def test_two_folders_and_two_numbers_of_jobs_make_the_same_bytes(tmp_path: Path, cli: Cli, cold_cache: Path) -> None:
    made = []
    for name, jobs in (("one", 1), ("a longer name: $x, 'y' and \"ünïcode\" #2", 4)):
        project = SmallProject(tmp_path / name, "my-kernel").write()
        shutil.rmtree(cold_cache, ignore_errors=True)
        assert cli("build", "--project", project.root, "--jobs", str(jobs)).code == 0
        made.append((project.op_id, digest_folder(project.artifact)))
    assert made[0] == made[1]


def test_a_source_that_does_not_compile_shows_the_diagnostics_whole(small: SmallProject, cli: Cli) -> None:
    cli("build", "--project", small.root)
    good = digest_folder(small.artifact)
    source = small.root / "cpu/kernel.cpp"
    text = source.read_text()
    source.write_text(text + "int wrong = nonsense;\nint worse = rubbish;\n")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "nonsense" in ran.err
    assert "rubbish" in ran.err
    assert f"cpu/kernel.cpp does not compile for {TAG}" in ran.err
    assert digest_folder(small.artifact) == good
    source.write_text(text)
    assert cli("build", "--project", small.root).out.startswith("up to date")


def test_after_a_failure_it_is_said_that_the_artifact_is_that_of_before(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text("int wrong = nonsense;\n")
    assert "is still what the last good build made" not in cli("build", "--project", small.root).err
    small.write()
    assert cli("build", "--project", small.root).code == 0
    (small.root / "cpu/kernel.cpp").write_text("int wrong = nonsense;\n")
    assert f"build/my-kernel/{TAG} is still what the last good build made" in cli("build", "--project", small.root).err


def test_a_backend_that_no_variant_is_built_for_is_named(small: SmallProject, cli: Cli) -> None:
    toml = small.root / "build.toml"
    toml.write_text(toml.read_text().replace('backends = ["cpu"]', 'backends = ["cpu", "cuda"]'))
    ran = cli("build", "--project", small.without_torch().root)
    assert ran.code == 0
    assert "my-kernel: not built here: cuda; `kernel-builder list-variants` tells why\n" in ran.err
    assert "not built here" not in cli("build", "--project", small.root, "--quiet").err


def test_every_source_that_does_not_compile_is_reported(small: SmallProject, cli: Cli) -> None:
    for path in ("cpu/kernel.cpp", "torch-ext/binding.cpp"):
        (small.root / path).write_text("int wrong = nonsense;\n")
    ran = cli("build", "--project", small.root)
    assert "cpu/kernel.cpp does not compile" in ran.err
    assert "torch-ext/binding.cpp does not compile" in ran.err


def test_a_library_that_does_not_link_is_not_said_not_to_compile(small: SmallProject, cli: Cli) -> None:
    with (small.root / "cpu/kernel.cpp").open("a") as source:
        source.write("int64_t binding_of_another() { return 0; }\n")
    with (small.root / "torch-ext/binding.cpp").open("a") as source:
        source.write("int64_t binding_of_another() { return 1; }\n")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "multiple definition" in ran.err
    assert f"the library does not link for {TAG}" in ran.err


def test_a_missing_header_is_the_compilers_own_message(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").write_text('#include "gone.h"\n')
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "gone.h: No such file or directory" in ran.err
    assert f"cpu/kernel.cpp does not compile for {TAG}" in ran.err


def test_a_missing_source_is_named_with_its_likeness(small: SmallProject, cli: Cli) -> None:
    (small.root / "cpu/kernel.cpp").rename(small.root / "cpu/kernels.cpp")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "source file does not exist: cpu/kernel.cpp" in ran.err
    assert "kernel.cpu.src[0]" in ran.err
    assert "did you mean cpu/kernels.cpp?" in ran.err


def test_an_unknown_variant_is_refused(small: SmallProject, cli: Cli) -> None:
    ran = cli("build", "--project", small.root, "--variant", "torch-stable-abi210-cpu")
    assert ran.code == 2
    assert f"my-kernel has no variant torch-stable-abi210-cpu\n  hint: did you mean {TAG}?" in ran.err


def test_an_unknown_package_is_refused(small: SmallProject, cli: Cli) -> None:
    ran = cli("build", "my-kernal", "--project", small.root)
    assert ran.code == 2
    assert "no package my-kernal" in ran.err
    assert "did you mean my-kernel?" in ran.err


def test_either_spelling_of_a_package_is_understood(small: SmallProject, cli: Cli) -> None:
    assert cli("plan", "my_kernel", "--project", small.root).code == 0


def fake_compiler(folder: Path, macros: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "g++"
    path.write_text(f"#!/bin/sh\nprintf '{macros}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("macros", "message"),
    [
        ("#define __GNUC__ 9\\n#define __GNUC_MINOR__ 4\\n", "g++ 9.4.0 is too old: torch's headers need g++ >= 11"),
        ("#define __clang_major__ 10\\n", "clang 10.0.0 is too old: torch's headers need clang >= 14"),
        ("", "is not a working C++ compiler"),
        ("#define __GNUC__ 9\\n", "CXX=g++-11"),
    ],
)
def test_an_unusable_compiler_is_refused_before_anything_is_written(
    small: SmallProject, tmp_path: Path, macros: str, message: str
) -> None:
    compiler = fake_compiler(tmp_path / "bin", macros)
    done = subprocess.run(
        command(small), env=environment(CXX=str(compiler)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert message in done.stderr
    assert not (small.root / "build").exists()


def test_no_compiler_at_all_is_one_apt_line(small: SmallProject, tmp_path: Path) -> None:
    done = subprocess.run(
        command(small), env=environment(PATH=str(tmp_path), CXX=""), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "no C++ compiler on PATH (looked for g++, c++, clang++)" in done.stderr
    assert "apt-get install g++" in done.stderr


def test_a_wrong_cxx_is_named(small: SmallProject) -> None:
    done = subprocess.run(command(small), env=environment(CXX="g++-99"), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "no such compiler: g++-99\n  --> environment: CXX" in done.stderr
    done = subprocess.run(command(small), env=environment(CXX="g++'"), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "No closing quotation" in done.stderr


def test_builds_side_by_side_make_one_artifact(small: SmallProject) -> None:
    running = [
        subprocess.Popen(command(small), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    outputs = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], outputs
    assert sorted(out.split()[0] for out, _ in outputs) == ["built", "up", "up"]


@pytest.mark.parametrize("kind", KILLS)
def test_a_build_killed_at_any_moment_leaves_the_next_one_right(
    small: SmallProject, cli: Cli, cold_cache: Path, kind: str
) -> None:
    """A cold build, one that finds its objects in the cache, and one that replaces an artifact."""
    source = small.without_torch().root / "cpu/kernel.cpp"
    original = source.read_text()
    cli("build", "--project", small.root)
    good = digest_folder(small.artifact)

    def start(number: int) -> subprocess.Popen[bytes]:
        if kind == COLD:
            forget(small, cold_cache)
        elif kind == WARM:
            shutil.rmtree(small.root / "build")
        else:
            source.write_text(f"{original}// {number}\n")
        return subprocess.Popen(command(small), stderr=subprocess.DEVNULL, start_new_session=True)

    started = time.monotonic()
    assert start(-1).wait() == 0
    whole = time.monotonic() - started
    chance = random.Random(7)  # noqa: S311 - moments to kill at
    tries = killed = 0
    while killed < KILLS[kind]:
        tries += 1
        process = start(tries)
        time.sleep(chance.uniform(0, whole))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed, whole = killed + 1, whole * 1.05
        else:
            whole *= 0.8  # it was slower when it was timed
        process.wait()
        source.write_text(original)
        assert cli("build", "--project", small.root).code == 0
        assert digest_folder(small.artifact) == good
        assert killed >= tries / 2 - 3, "most kills have to meet a build at work"
    source.write_text(f"{original}// the last\n")
    assert cli("build", "--project", small.root).code == 0
    assert unfinished(small) == [], "the next build that makes something sweeps"


def test_a_compiler_that_is_killed_leaves_nothing_and_the_next_build_works(
    small: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The program itself, as clang is, which has no other do its work."""
    small.without_torch()
    short = tmp_path_factory.mktemp("bin") / "c++"
    short.write_text('#!/bin/sh\nfor word; do [ "$word" = -c ] && kill -9 $$; done\nexec g++ "$@"\n')
    short.chmod(0o755)
    monkeypatch.setenv("CXX", str(short))
    ran = cli("build", "--project", small.root)
    assert ran.code == 3
    assert "cpu/kernel.cpp does not compile" in ran.err
    assert "hint: the compiler was killed, most likely for want of memory" in ran.err
    assert not any((small.root / "build").rglob("metadata.json"))
    monkeypatch.delenv("CXX")
    assert cli("build", "--project", small.root).code == 0
    assert unfinished(small) == []
