"""The cache under real builds: other checkouts, moved folders, damage, small disks, strange folders, two at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.settings import Settings
from hubkernels.config import load_project
from hubkernels.host.store import Store
from hubkernels.model.digest import digest_folder
from hubkernels.model.project import Package
from hubkernels.model.variant import AnyVariant
from tests.conftest import Cli, Mount, Ran, SmallProject, environment
from tests.unit.test_store import KINDS, damage

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.usefixtures("cold_cache")


@pytest.fixture
def small(tmp_path: Path) -> SmallProject:
    return SmallProject(tmp_path, "my-kernel").write().without_torch()


COUNTING = """\
#!/bin/sh
case " $* " in *" -c "*|*" -M "*) echo "$*" >> {log} ;; esac
exec {compiler} "$@"
"""


@dataclass(frozen=True)
class Compiler:
    """A compiler that notes what it compiles, and of what it lists the headers."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path.parent / "log"

    def runs(self) -> tuple[list[str], list[str]]:
        """The sources of the project that were compiled since this was asked last, and those that were scanned."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        compiled = [line.split(" -c ")[1].split(" -o ")[0] for line in lines if " -c " in line]
        own = [path for path in compiled if not path.endswith("compat/glibc.cpp")]
        return sorted(own), sorted(line.split(" -M ")[1] for line in lines if " -M " in line)


@pytest.fixture
def compiler(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    real = shutil.which("g++")
    if real is None:
        pytest.skip("there is no g++ on PATH")
    found = Compiler(tmp_path_factory.mktemp("bin") / "g++")
    found.path.write_text(COUNTING.format(log=found.log, compiler=real))
    found.path.chmod(0o755)
    monkeypatch.setenv("CXX", str(found.path))
    return found


BOTH = ["cpu/kernel.cpp", "torch-ext/binding.cpp"]
NONE: tuple[list[str], list[str]] = ([], [])


def build(project: SmallProject, **changes: str) -> Ran:
    """A build in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(project.root)],
        env=environment(**changes),
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_another_checkout_neither_compiles_nor_scans(tmp_path: Path, cli: Cli, compiler: Compiler) -> None:
    first = SmallProject(tmp_path / "one", "my-kernel").write().without_torch()
    assert cli("build", "--project", first.root).code == 0
    assert compiler.runs() == (BOTH, BOTH)
    second = SmallProject(tmp_path / "another, ünïcode", "my-kernel").write().without_torch()
    assert cli("build", "--project", second.root).out.startswith("built")
    assert compiler.runs() == NONE
    assert digest_folder(second.artifact) == digest_folder(first.artifact)


def test_a_moved_folder_is_up_to_date_and_is_not_scanned(tmp_path: Path, cli: Cli, compiler: Compiler) -> None:
    project = SmallProject(tmp_path / "one", "my-kernel").write().without_torch()
    cli("build", "--project", project.root)
    compiler.runs()
    project.root.rename(tmp_path / "two")
    assert cli("build", "--project", tmp_path / "two").out.startswith("up to date")
    assert compiler.runs() == NONE


def test_going_back_to_another_branch_neither_compiles_nor_scans(
    small: SmallProject, cli: Cli, compiler: Compiler
) -> None:
    header = small.root / "include/kernel.h"
    texts = [header.read_text(), header.read_text() + "// of the branch\n"]
    made = []
    for text in texts:
        header.write_text(text)
        cli("build", "--project", small.root)
        made.append(digest_folder(small.artifact))
    assert compiler.runs() == (sorted(BOTH * 2), sorted(BOTH * 2))
    for text, digest in zip(texts, made, strict=True):
        header.write_text(text)
        assert cli("build", "--project", small.root).out.startswith("built")
        assert digest_folder(small.artifact) == digest
    assert compiler.runs() == NONE


def test_a_file_that_came_beside_a_source_and_is_not_read_scans_nothing(
    small: SmallProject, cli: Cli, compiler: Compiler
) -> None:
    cli("build", "--project", small.root)
    compiler.runs()
    for name in ("cpu/kernel.cpp~", "cpu/other.h", "include/other.h", "notes.txt"):
        (small.root / name).write_text("nobody includes this\n")
    assert cli("build", "--project", small.root).out.startswith("up to date")
    assert compiler.runs() == NONE


@pytest.mark.parametrize("folder", ["include", "cpu"])
def test_a_header_that_comes_before_one_of_the_system_is_seen(small: SmallProject, cli: Cli, folder: str) -> None:
    source = small.root / "cpu/kernel.cpp"
    source.write_text("#include <float.h>\n#include <math.h>\n" + source.read_text().replace("<cstdint>", '"math.h"'))
    source.write_text(source.read_text().replace("<math.h>", '"math.h"'))
    cli("build", "--project", small.root)
    before = small.op_id
    (small.root / folder / "math.h").write_text("#pragma once\n")
    cli("build", "--project", small.root)
    assert small.op_id != before


def compiler_with_folders(folder: Path, *folders: Path) -> str:
    """A g++ that looks into folders of its own first."""
    words = " ".join(f"-isystem '{each}'" for each in folders)
    (folder / "own-g++").write_text(f'#!/bin/sh\nexec g++ {words} "$@"\n')
    (folder / "own-g++").chmod(0o755)
    return str(folder / "own-g++")


@pytest.mark.parametrize("given", ["flags", "compiler", "compiler, a link"])
def test_a_header_in_an_earlier_folder_outside_the_project_is_seen(
    small: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    one, two = tmp_path / "a long name of a folder" / "one", tmp_path / "two"
    one.mkdir(parents=True)
    (tmp_path / "real").mkdir()
    if given.endswith("link"):
        two.symlink_to("real")
    else:
        two.mkdir()
    (two / "extra.h").write_text("#define EXTRA 0\n")
    source = small.root / "cpu/kernel.cpp"
    source.write_text("#include <extra.h>\n" + source.read_text().replace("+ calls", "+ EXTRA + calls"))
    if given.startswith("compiler"):
        monkeypatch.setenv("CXX", compiler_with_folders(tmp_path, one, two))
    else:
        flags = f'[kernel.cpu]\ncxx-flags = ["-isystem", "{one}/", "-isystem{two}/"]'
        text = (small.root / "build.toml").read_text()
        (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", flags))
    assert cli("build", "--project", small.root).code == 0
    before = small.op_id
    assert cli("build", "--project", small.root).out.startswith("up to date")
    (one / "extra.h").write_text("#define EXTRA 1\n")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before


def test_headers_of_a_compiler_outside_usr_are_the_compilers(
    tmp_path: Path, cli: Cli, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask ``__has_include`` all day, and where they stand is no part of the id."""
    ids = []
    for number in ("1", "2"):
        system = tmp_path / number / "include"
        system.mkdir(parents=True)
        (system / "cstdint").write_text('#if __has_include("more.h")\n#endif\n#include_next <cstdint>\n')
        monkeypatch.setenv("CXX", compiler_with_folders(tmp_path / number, system))
        (tmp_path / number / "own-g++").write_text(
            (tmp_path / number / "own-g++").read_text().replace("exec g++", f"exec '{compiler.path}'")
        )
        project = SmallProject(tmp_path / number, "my-kernel").write().without_torch()
        assert cli("build", "--project", project.root).code == 0
        compiler.runs()
        assert cli("build", "--project", project.root).out.startswith("up to date")
        assert compiler.runs() == NONE
        ids.append(project.op_id)
        assert str(tmp_path).encode() not in next(project.artifact.glob("*.so")).read_bytes()
    assert ids[0] == ids[1]


@dataclass(frozen=True)
class Asking:
    """A way to ask for a file: what stands first in the source, and the file that changes the answer."""

    text: str
    path: str
    told_by_text: bool = True

    def put_in(self, project: SmallProject) -> None:
        source = project.root / "cpu/kernel.cpp"
        source.write_text(f"{self.text}\n{source.read_text()}")


ANSWER = "\nextern const int more = 1;\n#endif"
ASKING = {
    "quoted": Asking('#if __has_include("opt.h")' + ANSWER, "cpu/opt.h"),
    "in a folder of the search": Asking("#if __has_include(<opt.h>)" + ANSWER, "include/opt.h"),
    "in a new folder": Asking("#if __has_include(<new/opt.h>)" + ANSWER, "include/new/opt.h"),
    "spliced": Asking('#if __has_inc\\ \nlude("opt.h")' + ANSWER, "cpu/opt.h"),
    "by a macro": Asking('#define HAS(x) __has_include(x)\n#if HAS("opt.h")' + ANSWER, "cpu/opt.h"),
    "a macro": Asking('#define OPT "opt.h"\n#if __has_include(OPT)' + ANSWER, "cpu/opt.h", told_by_text=False),
    "by the system": Asking(
        "#include <cstddef>\n#define _PSTL_PAR_BACKEND_TBB\n#if _GLIBCXX_USE_TBB_PAR_BACKEND" + ANSWER,
        "include/tbb/tbb.h",
    ),
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_the_answer_to_a_source_that_asks_for_a_file_is_an_input(
    tmp_path: Path, cli: Cli, compiler: Compiler, asking: Asking
) -> None:
    projects = [SmallProject(tmp_path / number, "my-kernel").write().without_torch() for number in "12"]
    for project in projects:
        asking.put_in(project)
    with_file, without = projects
    (with_file.root / asking.path).parent.mkdir(exist_ok=True)
    (with_file.root / asking.path).touch()
    for project in projects:
        assert cli("build", "--project", project.root).out.startswith("built")
    assert with_file.op_id != without.op_id
    compiler.runs()
    assert cli("build", "--project", without.root).out.startswith("up to date")
    assert compiler.runs() == (NONE if asking.told_by_text else ([], ["cpu/kernel.cpp"]))

    absent = without.op_id
    (without.root / asking.path).parent.mkdir(exist_ok=True)
    (without.root / asking.path).touch()
    assert cli("build", "--project", without.root).code == 0
    assert without.op_id == with_file.op_id
    (without.root / asking.path).unlink()
    assert cli("build", "--project", without.root).code == 0
    assert without.op_id == absent


@pytest.mark.parametrize("comes", ["a file", "a folder", "a link"])
def test_a_header_that_comes_while_the_compiler_is_asked_is_seen(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """It was not there when the compiler looked, and is when the list is made: such a list does not hold."""
    project = SmallProject(tmp_path / "project", "my-kernel").write().without_torch()
    kernel = project.root / "cpu/kernel.cpp"
    kernel.write_text(kernel.read_text().replace('"kernel.h"', '"hk/kernel.h"'))
    (project.root / "include/hk").mkdir()
    header = (project.root / "include/kernel.h").rename(project.root / "include/hk/kernel.h")
    (project.root / "include/kernel.h").write_text('#include "hk/kernel.h"\n')
    nearer = tmp_path / "nearer"
    nearer.mkdir()
    (nearer / "kernel.h").write_text(f"{header.read_text()}#define NEARER\n")
    come = {
        "a file": "mkdir cpu/hk; cp {0}/kernel.h cpu/hk",
        "a folder": "cp -r {0} cpu/hk",
        "a link": "ln -s {0} cpu/hk",
    }
    driver = tmp_path / "driver"
    script = '#!/bin/sh\ng++ "$@" || exit\ncase "$*" in *" -M cpu/"*) [ -e cpu/hk ] || { %s; } ;; esac\n'
    driver.write_text(script % come[comes].format(nearer))
    driver.chmod(0o755)
    time.sleep(0.02)  # so that nothing else was written at the time of the scan
    monkeypatch.setenv("CXX", str(driver))
    assert cli("plan", "--project", project.root).code == 0
    assert (project.root / "cpu/hk").exists()
    monkeypatch.setenv("CXX", "g++")
    assert cli("build", "--project", project.root).out.startswith("built")
    with_nearer = project.op_id
    monkeypatch.setenv("HUBKERNELS_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(project.root / "build")
    assert cli("build", "--project", project.root).out.startswith("built")
    assert project.op_id == with_nearer


def test_a_folder_with_the_name_of_a_header_scans_nothing_again(
    small: SmallProject, cli: Cli, compiler: Compiler
) -> None:
    """The compiler passes over it, until it is a file."""
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text(f"#include <random>\n{kernel.read_text()}")
    (small.root / "include/random").mkdir()
    assert cli("build", "--project", small.root).out.startswith("built")
    before = small.op_id
    compiler.runs()
    assert cli("build", "--project", small.root).out.startswith("up to date")
    assert compiler.runs() == NONE
    (small.root / "include/random").rmdir()
    (small.root / "include/random").write_text("#define OURS\n")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before
    (small.root / "include/random").unlink()
    (small.root / "include/random").mkdir()
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id == before


def test_a_compiler_that_changes_in_a_run_is_another(small: SmallProject, tmp_path: Path) -> None:
    """Not the one that was found at the start: its objects would stand under the names of others."""
    driver = tmp_path / "driver"

    def drive(answer: int) -> None:
        driver.write_text(f'#!/bin/sh\nexec g++ -DCHANGED={answer} "$@"\n')
        driver.chmod(0o755)

    def builder() -> tuple[Builder, Package, AnyVariant]:
        found = Builder(load_project(small.root), {**os.environ, "CXX": str(driver)}, Settings(1))
        (package,) = found.project.packages
        (variant,) = found.decide(package).accepted
        return found, package, variant

    drive(1)
    first, package, variant = builder()
    before = first.plan(package, variant).op_id
    drive(2)
    made = first.build(package, variant, lambda _: None).op_id
    fresh, package, variant = builder()
    assert before != made == fresh.plan(package, variant).op_id


def test_a_source_that_is_scanned_each_time_leaves_the_store_as_it_is(
    small: SmallProject, cli: Cli, compiler: Compiler, cold_cache: Path
) -> None:
    """Its list is not kept, and so nothing of it: what grows is trimmed, which walks the whole store."""
    ASKING["a macro"].put_in(small)
    assert cli("build", "--project", small.root).out.startswith("built")
    entries = {path: path.stat().st_mtime_ns for path in cold_cache.rglob("*") if path.is_file()}
    compiler.runs()
    assert cli("build", "--project", small.root).out.startswith("up to date")
    assert compiler.runs() == ([], ["cpu/kernel.cpp"])
    assert {path: path.stat().st_mtime_ns for path in cold_cache.rglob("*") if path.is_file()} == entries


@pytest.mark.parametrize("folder", ["earlier/", "./earlier/", "earlier//"])
def test_a_header_in_an_earlier_folder_with_a_slash_at_its_end_is_seen(
    small: SmallProject, cli: Cli, folder: str
) -> None:
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace('include = ["include"]', f'include = ["{folder}", "include"]'))
    (small.root / "earlier").mkdir()
    assert cli("build", "--project", small.root).code == 0
    before = small.op_id
    header = (small.root / "include/kernel.h").read_text()
    (small.root / "earlier/kernel.h").write_text(f"{header}#define NEARER\n")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before


@pytest.mark.parametrize("path", ["include/kernel.h.gch", "torch-ext/kernel.h.gch"])
def test_a_precompiled_header_is_refused_when_it_comes(small: SmallProject, cli: Cli, path: str) -> None:
    cli("build", "--project", small.root)
    assert cli("build", "--project", small.root).out.startswith("up to date")
    (small.root / path).touch()
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert f"{path} is a precompiled header" in ran.err


def test_a_folder_of_precompiled_headers_is_refused_too(small: SmallProject, cli: Cli) -> None:
    """Any file in it will do."""
    (small.root / "include/kernel.h.gch").mkdir()
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "include/kernel.h.gch is a precompiled header" in ran.err


@pytest.mark.parametrize("flags", ['"-include", "config.h"', '"-Iinclude/h"', '"-Ithird_party/tbb/include"'])
def test_words_of_flags_that_define_nothing_scan_nothing_again(
    small: SmallProject, cli: Cli, compiler: Compiler, flags: str
) -> None:
    """libstdc++ asks for <tbb/tbb.h> in a macro: a macro of such a word would change the name."""
    kernel, toml = small.root / "cpu/kernel.cpp", small.root / "build.toml"
    kernel.write_text(f"#include <cstdint>\n// #include the header first\n{kernel.read_text()}")
    (small.root / "include/config.h").touch()
    toml.write_text(toml.read_text().replace("[kernel.cpu]", f"[kernel.cpu]\ncxx-flags = [{flags}]"))
    assert cli("build", "--project", small.root).code == 0
    compiler.runs()
    assert cli("build", "--project", small.root).out.startswith("up to date")
    assert compiler.runs() == NONE


def test_a_new_name_for_a_header_changes_no_build(small: SmallProject, tmp_path: Path) -> None:
    """As other environments make, that take files from one cache: the file's time changes, and not its content."""
    driver = tmp_path / "driver"
    link = "ln -f include/kernel.h include/another; chmod g+w cpu/kernel.cpp"
    driver.write_text(f'#!/bin/sh\ncase "$*" in *" -c cpu/"*) {link} ;; esac\nexec g++ "$@"\n')
    driver.chmod(0o755)
    done = build(small, CXX=str(driver))
    assert done.code == 0, done.err


def test_a_source_for_this_machines_processor_is_not_shared_with_another(
    small: SmallProject, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (small.root / "build.toml").read_text()
    (small.root / "build.toml").write_text(text.replace("[kernel.cpu]", '[kernel.cpu]\ncxx-flags = ["-march=native"]'))
    cli("build", "--project", small.root)
    before = small.op_id
    assert cli("build", "--project", small.root).out.startswith("up to date")
    monkeypatch.setattr("hubkernels.build.scan.cpu_identity", lambda: "another")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before


@pytest.mark.parametrize(
    ("line", "directive"),
    [
        (r'asm(".incbin \"table.bin\"");', "incbin"),
        (r'asm("\t.include\t\"data.s\"\n");', "include"),
        ('asm(R"(.include"data.s")");', "include"),
        ('#define S(x) #x\nasm(".incbin " S(table.bin));', "incbin"),
        (r'asm(".INCBIN \"table.bin\"");', "INCBIN"),
        (r'asm(".inc" /* */ "bin \"table.bin\"");', "incbin"),
        (r'asm("nop; .in" "clude \"data.s\"");', "include"),
        ('#define D ".inc"\n' + r'asm(D "bin \"table.bin\"");', "incbin"),
    ],
)
def test_a_source_that_reads_what_no_compiler_lists_is_refused(
    small: SmallProject, cli: Cli, line: str, directive: str
) -> None:
    source = small.root / "cpu/kernel.cpp"
    source.write_text(f"{source.read_text()}\n{line}\n")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert re.search(rf"cpu/kernel.cpp(, preprocessed,)? has \.{directive}: no compiler lists what that reads", ran.err)


@pytest.mark.parametrize("line", ["const char* when = __TIMESTAMP__;", "const char* when = __TIME\\\nSTAMP__;"])
def test_the_time_when_a_file_was_written_is_refused(small: SmallProject, cli: Cli, line: str) -> None:
    source = small.root / "cpu/kernel.cpp"
    source.write_text(f"{source.read_text()}\n{line}\n")
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "cpu/kernel.cpp has __TIMESTAMP__: what is built would not be the same at another time" in ran.err


def test_a_comment_may_speak_of_what_is_refused(small: SmallProject, cli: Cli) -> None:
    source = small.root / "cpu/kernel.cpp"
    source.write_text(
        source.read_text()
        + '// neither .incbin nor .include, and `x.include` is a name; "this" too\n/* __TIMESTAMP__ */\n'
    )
    assert cli("build", "--project", small.root).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_entries_are_made_again(small: SmallProject, cli: Cli, cold_cache: Path, kind: str) -> None:
    cli("build", "--project", small.root)
    good, entries = digest_folder(small.artifact), sorted(cold_cache.rglob("*.*"))
    assert len(entries) >= 6
    for entry in entries:
        damage(entry, kind)
    shutil.rmtree(small.root / "build")
    assert cli("build", "--project", small.root).code == 0
    assert digest_folder(small.artifact) == good
    assert {path.name for path in cold_cache.rglob("*.*")} == {path.name for path in entries}


def test_an_emptied_cache_changes_nothing_but_time(small: SmallProject, cli: Cli, cold_cache: Path) -> None:
    cli("build", "--project", small.root)
    ran = cli("clean", "--cache", "--project", small.root)
    assert ran.out.startswith("freed ")
    assert not list(cold_cache.rglob("*.*"))
    assert cli("build", "--project", small.root).out.startswith("up to date")
    assert cli("clean", "my-kernel", "--cache", "--project", small.root).code == 2


def test_a_cache_of_no_size_is_empty_after_a_build(small: SmallProject, cold_cache: Path) -> None:
    assert build(small, HUBKERNELS_CACHE_SIZE="0").code == 0
    assert not list(cold_cache.rglob("*.*"))
    assert build(small, HUBKERNELS_CACHE_SIZE="0").out.startswith("up to date")
    small.write(answer=43).without_torch()
    ran = build(small, HUBKERNELS_CACHE_SIZE="much")
    assert ran.code == 2
    assert "not a size: 'much'\n  --> environment: HUBKERNELS_CACHE_SIZE" in ran.err


def test_a_verb_that_only_asks_trims_the_cache_too(
    small: SmallProject, cli: Cli, cold_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBKERNELS_CACHE_SIZE", "0")
    assert cli("plan", "--project", small.root).code == 0
    assert Store(cold_cache).usage().entries == 0


@pytest.mark.parametrize("size", ["5GB", "40kB"])
def test_checkouts_that_build_at_once_make_the_same_bytes(tmp_path: Path, size: str) -> None:
    """With the small limit each evicts what the others put there."""
    projects = [SmallProject(tmp_path / str(number), "my-kernel").write().without_torch() for number in range(3)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(project.root)],
            env=environment(HUBKERNELS_CACHE_SIZE=size),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for project in projects
    ]
    errors = [process.communicate(timeout=300)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    first, *others = (digest_folder(project.artifact) for project in projects)
    assert others == [first, first]


def test_strange_things_in_the_cache_are_told_or_passed_over(small: SmallProject, cli: Cli, cold_cache: Path) -> None:
    cli("build", "--project", small.root)
    good = digest_folder(small.artifact)
    for entry in list(cold_cache.rglob("*.*")):
        entry.unlink()
        entry.mkdir()
        (entry / "file").write_text("mine")
    (cold_cache / "stray").write_text("mine")
    shutil.rmtree(small.root / "build")
    ran = cli("build", "--project", small.root)
    assert (ran.code, digest_folder(small.artifact)) == (0, good)
    assert "what was compiled is not kept for later builds: cannot write" in ran.err
    assert {path.read_text() for path in cold_cache.rglob("file")} == {"mine"}


@pytest.mark.parametrize("name", ["hashes.json", "lock", "runs", "my-kernel"])
def test_a_folder_where_a_file_belongs_is_told_or_passed_over(small: SmallProject, cli: Cli, name: str) -> None:
    (small.root / "build/.hubkernels" / name / "deep").mkdir(parents=True)
    ran = cli("build", "--project", small.root)
    if name == "lock":
        assert ran.code == 3
        assert f"cannot write {small.root}/build/.hubkernels/lock: Is a directory" in ran.err
    else:
        assert ran.code == 0, ran.err


def test_runs_that_are_a_link_are_not_followed(small: SmallProject, cli: Cli, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    (small.root / "build/.hubkernels").mkdir(parents=True)
    (small.root / "build/.hubkernels/runs").symlink_to(elsewhere)
    before = elsewhere.stat().st_mtime_ns
    assert cli("build", "--project", small.root).code == 0
    assert (elsewhere.stat().st_mtime_ns, (elsewhere / "file").read_text()) == (before, "mine")


def test_a_home_that_cannot_be_written_is_said_once_and_the_project_keeps_its_objects(
    tmp_path: Path, mount: Mount
) -> None:
    mount(tmp_path / "home", "ro")
    project = SmallProject(tmp_path / "project", "my-kernel").write().without_torch()
    home = {"HOME": str(tmp_path / "home"), "HUBKERNELS_CACHE": "", "XDG_CACHE_HOME": ""}
    ran = build(project, **home)
    assert ran.code == 0, ran.err
    own = project.root / "build/.hubkernels/cache"
    note = f"{tmp_path}/home cannot be written: objects are kept in {own}; HUBKERNELS_CACHE can name a folder"
    assert ran.err.count(note) == 1
    assert list(own.rglob("*.o"))
    again = build(project, **home)
    assert (again.out.startswith("up to date"), again.err) == (True, "")


def test_a_cache_that_was_named_and_cannot_be_written_is_refused(tmp_path: Path, mount: Mount) -> None:
    mount(tmp_path / "disk", "ro")
    project = SmallProject(tmp_path / "project", "my-kernel").write().without_torch()
    ran = build(project, HUBKERNELS_CACHE=str(tmp_path / "disk/cache"))
    assert ran.code == 3
    assert f"{tmp_path}/disk cannot be written\n  --> environment: HUBKERNELS_CACHE" in ran.err
    assert not list((project.root / "build").glob("my-kernel*"))


def test_disks_that_run_no_programs_are_no_hindrance(tmp_path: Path, mount: Mount) -> None:
    mount(tmp_path / "temp", "noexec")
    mount(tmp_path / "disk", "noexec")
    project = SmallProject(tmp_path / "disk/project", "my-kernel").write().without_torch()
    cache = str(tmp_path / "disk/cache")
    ran = build(project, TMPDIR=str(tmp_path / "temp"), HUBKERNELS_CACHE=cache)
    assert ran.code == 0, ran.err
    again = SmallProject(tmp_path / "disk/other", "my-kernel").write().without_torch()
    assert build(again, TMPDIR=str(tmp_path / "temp"), HUBKERNELS_CACHE=cache).code == 0
    assert digest_folder(again.artifact) == digest_folder(project.artifact)


def test_a_library_on_a_disk_that_runs_no_programs_fails_to_load_with_the_reason(
    tmp_path: Path, cli: Cli, mount: Mount
) -> None:
    pytest.importorskip("kernels", reason="the stock client is not installed")
    mount(tmp_path / "disk", "noexec")
    project = SmallProject(tmp_path / "disk/project", "my-kernel").write()
    assert cli("build", "--project", project.root).code == 0
    ran = cli("check", "load", "--project", project.root)
    assert ran.code == 1
    assert "hint: is its disk mounted noexec?" in ran.err


POINTS_KIB = [0, 8, 16, 24, 40, 64, 96, 128, 160, 240] if os.environ.get("HUBKERNELS_TEST_ALL") else [0, 24, 96, 240]


def fill(disk: Path, free_kib: int) -> Path:
    """Leave so much room."""
    room = shutil.disk_usage(disk).free // 1024
    (disk / "ballast").write_bytes(b"x" * max(0, room - free_kib) * 1024)
    return disk / "ballast"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a build on a disk with room makes."""
    project = SmallProject(tmp_path_factory.mktemp("good"), "my-kernel").write().without_torch()
    assert build(project).code == 0
    return digest_folder(project.artifact)


@pytest.mark.parametrize("free_kib", POINTS_KIB)
def test_a_disk_that_fills_under_the_project_is_said_and_leaves_nothing_half_written(
    tmp_path: Path, mount: Mount, good: dict[str, str], free_kib: int
) -> None:
    mount(tmp_path / "disk", "size=1m")
    project = SmallProject(tmp_path / "disk", "my-kernel").write().without_torch()
    ballast = fill(tmp_path / "disk", free_kib)
    ran = build(project)
    assert ran.code or free_kib, "without any room a build cannot end well"
    if ran.code:
        assert ran.code == 3, ran.err
        assert "No space left on device" in ran.err
        assert "free some space" in ran.err
        assert not list((project.root / "build").glob("my-kernel/*/metadata.json"))
    else:
        assert digest_folder(project.artifact) == good
    ballast.unlink()
    again = build(project)
    assert (again.code, digest_folder(project.artifact)) == (0, good), again.err


@pytest.mark.parametrize("free_kib", POINTS_KIB)
def test_a_disk_that_fills_under_the_cache_costs_only_what_it_would_have_kept(
    tmp_path: Path, mount: Mount, good: dict[str, str], free_kib: int
) -> None:
    mount(tmp_path / "disk", "size=1m")
    project = SmallProject(tmp_path / "project", "my-kernel").write().without_torch()
    ballast = fill(tmp_path / "disk", free_kib)
    cache = str(tmp_path / "disk/cache")
    ran = build(project, HUBKERNELS_CACHE=cache)
    assert (ran.code, digest_folder(project.artifact)) == (0, good), ran.err
    assert free_kib or "is not kept" in ran.err, "nothing can be kept without any room"
    kept = len(list((tmp_path / "disk").rglob("*.o"))) + len(list((tmp_path / "disk").rglob("*.so")))
    assert (kept == 4) != ("is not kept for later builds: cannot write" in ran.err)
    ballast.unlink()
    shutil.rmtree(project.root / "build")
    again = build(project, HUBKERNELS_CACHE=cache)
    assert (again.code, digest_folder(project.artifact)) == (0, good), again.err
    assert Store(tmp_path / "disk/cache/objects").usage().entries >= 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_home_of_another_user_is_left_alone(tmp_path: Path) -> None:
    """As under sudo, which keeps HOME: files of root in it would break that user's own builds."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 65534, -1)
    project = SmallProject(tmp_path / "project", "my-kernel").write().without_torch()
    ran = build(project, HOME=str(tmp_path / "home"), HUBKERNELS_CACHE="", XDG_CACHE_HOME="")
    assert ran.code == 0
    assert f"{tmp_path}/home belongs to nobody: objects are kept in" in ran.err
    assert not list((tmp_path / "home").iterdir())


def test_a_header_of_a_flag_is_looked_for_where_the_compiler_runs(small: SmallProject, cli: Cli) -> None:
    toml = small.root / "build.toml"
    flags = '[kernel.cpu]\ncxx-flags = ["-include", "pre.h"]'
    toml.write_text(toml.read_text().replace("[kernel.cpu]", flags))
    (small.root / "include/pre.h").write_text("#define FIRST 0\n")
    assert cli("build", "--project", small.root).code == 0
    before = small.op_id
    (small.root / "pre.h").write_text("#define FIRST 1\n")
    assert cli("build", "--project", small.root).out.startswith("built")
    assert small.op_id != before


def test_a_flag_may_name_the_macro_of_the_id(small: SmallProject, cli: Cli) -> None:
    toml, binding = small.root / "build.toml", small.root / "torch-ext/binding.cpp"
    toml.write_text(toml.read_text().replace("[torch]", '[torch]\ncxx-flags = ["-DNAMESPACE=TORCH_EXTENSION_NAME"]'))
    binding.write_text(binding.read_text().replace("TORCH_EXTENSION_NAME", "NAMESPACE"))
    (plan,) = json.loads(cli("plan", "--project", small.root).out)
    (step,) = (step for step in plan["steps"] if step["subject"] == "torch-ext/binding.cpp")
    assert f"-DTORCH_EXTENSION_NAME={plan['op-id']}" in step["command"]


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("// as in TORCH_EXTENSION_NAME\n", False),
        ("/* TORCH_EXTENSION_NAME */\n", False),
        ("inline void TORCH_EXTENSION_NAME() {}\n", True),
        ("inline void TORCH_EXTEN\\\nSION_NAME() {}\n", True),
    ],
)
def test_code_that_names_the_macro_of_the_id_reads_it(small: SmallProject, cli: Cli, text: str, *, reads: bool) -> None:
    """What does not read it is not compiled again when the id changes, as it does with any source."""
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text(text + kernel.read_text())
    (plan,) = json.loads(cli("plan", "--project", small.root).out)
    (step,) = (step for step in plan["steps"] if step["subject"] == "cpu/kernel.cpp")
    assert (f"-DTORCH_EXTENSION_NAME={plan['op-id']}" in step["command"]) is reads


def test_a_header_whose_name_is_no_text_is_told(small: SmallProject, cli: Cli) -> None:
    """As an error of this package: in a workspace the others are built."""
    (small.root / os.fsdecode(b"include/na\xefve.h")).write_text("#pragma once\n")
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_bytes(b'#include "na\xefve.h"\n' + kernel.read_bytes())
    ran = cli("build", "--project", small.root)
    assert ran.code == 3
    assert "cannot read" in ran.err
    assert "ve.h" in ran.err


def test_where_the_preprocessor_fails_no_search_of_its_text_is_passed_over(
    small: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Macros can make the strings of asm: what the text would show is not known."""
    driver = tmp_path / "driver"
    driver.write_text('#!/bin/sh\ncase "$*" in *" -E cpu/"*) exit 1 ;; esac\nexec g++ "$@"\n')
    driver.chmod(0o755)
    monkeypatch.setenv("CXX", str(driver))
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text(kernel.read_text() + 'asm("nop");\n')
    ran = cli("build", "--project", small.root)
    assert ran.code == 2
    assert "does not preprocess it" in ran.err


def test_a_source_is_preprocessed_once_a_look_however_much_its_text_decides(
    small: SmallProject, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for what assembly reads takes the text, and what the files do not tell is told by it."""
    driver, log = tmp_path / "driver", tmp_path / "log"
    asks = "".join(f'*" {mode} cpu/"*) echo {mode} >> {log} ;; ' for mode in ("-M", "-E"))
    driver.write_text(f'#!/bin/sh\ncase "$*" in {asks}esac\nexec g++ "$@"\n')
    driver.chmod(0o755)
    monkeypatch.setenv("CXX", str(driver))
    kernel = small.root / "cpu/kernel.cpp"
    kernel.write_text('#define OPT <no/such.h>\n#if __has_include(OPT)\n#endif\nasm("nop");\n' + kernel.read_text())
    assert cli("build", "--project", small.root).code == 0
    looks = log.read_text().split()
    assert looks == ["-M", "-E"] * (len(looks) // 2)
