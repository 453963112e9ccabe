"""What is kept may only save time: after any change a build makes what a copy of the project with no cache makes."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubkernels.model.digest import digest_folder
from tests.conftest import Cli, SmallProject

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
pytestmark = pytest.mark.usefixtures("cold_cache")

BINDING = """\
#include "../include/kernel.h"
extern "C" [[gnu::visibility("default")]] int64_t op() { return answer(); }
int64_t TORCH_EXTENSION_NAME() { return answer(); }
"""
RETURNS_V = '#include "kernel.h"\n#include <v.h>\nint64_t answer() { return V; }\n'
ONE, TWO = "#define V 1\n", "#define V 2\n"
TWIN = "#pragma once\n#ifdef FIRST\n#define V 2\n#else\n#define V 1\n#endif\n#define FIRST\n"

Edit = Callable[[Path], object]


@dataclass(frozen=True)
class Change:
    """files: those of the project beside the usual ones, and its kernel. include: further folders of headers."""

    kernel: str
    files: Mapping[str, str]
    edit: Edit
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    before: Edit = lambda _: None


def write(path: str, text: str) -> Edit:
    def edit(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return edit


def asking(question: str, before: str = "") -> str:
    then = "int64_t answer() { return 1; }\n#else\nint64_t answer() { return 2; }\n#endif\n"
    return f'{before}#include "kernel.h"\n#if {question}\n{then}'


def lead(link: str, to: str) -> Edit:
    def edit(root: Path) -> None:
        (root / link).unlink(missing_ok=True)
        (root / link).symlink_to(to)

    return edit


def make_older(path: str) -> Edit:
    return lambda root: os.utime(root / path, (1e9, 1e9))


CHANGES = {
    "a parameter is the name that is asked for": Change(
        asking("HAS(fast)", "#define HAS(name) __has_include(<name/name.h>)\n"), {}, write("include/fast/fast.h", "")
    ),
    "a macro is the name that is asked for": Change(
        asking("HAS", "#define DIR fast\n#define HAS __has_include(<DIR/x.h>)\n"), {}, write("include/fast/x.h", "")
    ),
    "a flag is the name that is asked for": Change(
        asking("HAS", "#define HAS __has_include(<DIR/x.h>)\n"),
        {},
        write("include/fast/x.h", ""),
        flags=("-DDIR=fast",),
    ),
    "a quote in what is skipped hides no question": Change(
        asking('__has_include("opt.h")', "#ifdef _WIN32\n#error You can't build src/*.cpp here\n#endif\n")
        + "/* end */\n",
        {},
        write("include/opt.h", ""),
    ),
    "of two equal headers one is older": Change(
        '#include "kernel.h"\n#include <a/x.h>\n#undef V\n#include <b/x.h>\n#ifndef V\n#define V 3\n#endif\n'
        "int64_t answer() { return V; }\n",
        {"include/a/x.h": TWIN, "include/b/x.h": TWIN},
        make_older("include/b/x.h"),
    ),
    "an equal header named by a macro changes": Change(
        '#include "kernel.h"\n#define X <b/x.h>\n#include <a/x.h>\n#include X\n#ifndef V\n#define V 3\n#endif\n'
        "int64_t answer() { return V; }\n",
        {"include/a/x.h": "#pragma once\n", "include/b/x.h": "#pragma once\n"},
        write("include/b/x.h", "#pragma once\n#define V 4\n"),
    ),
    "a folder that a name only passes through": Change(
        RETURNS_V.replace("<v.h>", "<fast/../v.h>"),
        {"include/v.h": ONE, "late/v.h": TWO, "late/fast/x.h": ""},
        lambda root: (root / "include/fast").mkdir(),
        include=("late",),
    ),
    "a link to a folder that a name passes through": Change(
        RETURNS_V.replace("<v.h>", "<sub/../v.h>"),
        {"late/v.h": TWO, "late/sub/x.h": "", "other/v.h": ONE, "other/sub/x.h": ""},
        lambda root: (root / "include/sub").symlink_to("../other/sub"),
        include=("late",),
    ),
    "a header that is read once is named in two ways": Change(
        '#include "kernel.h"\n#include "../include/hk/v.h"\n#include "hk/v.h"\nint64_t answer() { return V; }\n',
        {"include/hk/v.h": f"#pragma once\n{ONE}"},
        write("cpu/hk/v.h", f"#undef V\n{TWO}"),
    ),
    "a link leads to another folder": Change(
        '#include "kernel.h"\n#include <v1/x.h>\n#include <cur/x.h>\nint64_t answer() { return V; }\n',
        {"include/v1/x.h": f"#pragma once\n{ONE}", "include/v2/x.h": f"#undef V\n{TWO}"},
        lead("include/cur", "v2"),
        before=lead("include/cur", "v1"),
    ),
    "the next of an equal name is another": Change(
        RETURNS_V,
        {
            "include/v.h": "#pragma once\n#ifndef V\n#define V 1\n#endif\n#include_next <v.h>\n",
            "late/v.h": "#pragma once\n#ifndef V\n#define V 1\n#endif\n#include_next <v.h>\n",
            "last/v.h": "",
        },
        write("late/v.h", f"#undef V\n{TWO}"),
        include=("late", "last"),
    ),
    "two folders of the search are one no more": Change(
        RETURNS_V,
        {"include/v.h": "#include_next <v.h>\n", "late/v.h": ONE, "other/v.h": TWO},
        lead("same", "other"),
        include=("same", "late"),
        before=lead("same", "include"),
    ),
    "the number of a line hangs on an answer": Change(
        '#include "kernel.h"\n#define NAME "opt.h"\n#if __has_include(NAME)\n#line 500\n#endif\n'
        "int64_t answer() { return __builtin_LINE(); }\n",
        {},
        write("include/opt.h", ""),
    ),
}


def project(
    root: Path, kernel: str, files: Mapping[str, str], include: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> SmallProject:
    made = SmallProject(root, "my-kernel").write()
    for path, text in {"torch-ext/binding.cpp": BINDING, "cpu/kernel.cpp": kernel, **files}.items():
        write(path, text)(root)
    for header in root.rglob("*.h"):
        os.utime(header, (1.5e9, 1.5e9))
    folders = ", ".join(f'"{folder}"' for folder in ("include", *include))
    toml = (root / "build.toml").read_text().replace('include = ["include"]', f"include = [{folders}]")
    words = ", ".join(f'"{flag}"' for flag in flags)
    (root / "build.toml").write_text(toml.replace("[kernel.cpu]", f"[kernel.cpu]\ncxx-flags = [{words}]"))
    return made


def assert_as_clean(cli: Cli, made: SmallProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build, and compare with a copy elsewhere that has nothing kept."""
    assert cli("build", "--project", made.root).code == 0
    copy = made.root.parent / f"{made.root.name} clean"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(made.root, copy, symlinks=True, ignore=shutil.ignore_patterns("build"))
    with monkeypatch.context() as changed:
        changed.setenv("HUBKERNELS_CACHE", str(made.root.parent / f"cache {time.monotonic_ns()}"))
        assert cli("build", "--project", copy).code == 0
    clean = SmallProject(copy, made.name)
    assert (made.op_id, digest_folder(made.artifact)) == (clean.op_id, digest_folder(clean.artifact))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    made = project(tmp_path / "project", change.kernel, change.files, change.include, change.flags)
    change.before(made.root)
    assert_as_clean(cli, made, monkeypatch)
    before = digest_folder(made.artifact)
    change.edit(made.root)
    assert_as_clean(cli, made, monkeypatch)
    assert digest_folder(made.artifact) != before


def test_clang_reads_a_copy_where_it_passed_over_a_link(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("clang++") is None:
        pytest.skip("clang++ is not installed")
    monkeypatch.setenv("CXX", "clang++")
    kernel = '#include "kernel.h"\n#include <a/x.h>\n#undef V\n#include <b/x.h>\n#ifndef V\n#define V 3\n#endif\n'
    made = project(tmp_path / "project", f"{kernel}int64_t answer() {{ return V; }}\n", {"include/a/x.h": TWIN})
    (made.root / "include/b").mkdir()
    (made.root / "include/b/x.h").symlink_to("../a/x.h")
    assert_as_clean(cli, made, monkeypatch)
    (made.root / "include/b/x.h").unlink()
    shutil.copy2(made.root / "include/a/x.h", made.root / "include/b/x.h")
    assert_as_clean(cli, made, monkeypatch)


def drive(path: Path, while_asked: str, source: str = "kernel.cpp") -> str:
    """A compiler that runs a script after it has told what a source reads, once."""
    armed = path.parent / "armed"
    armed.touch()
    mark = "${0%/*}/armed"  # no path of a file: those that a script names are part of it
    script = f"case \"$*\" in *' -M '*{source}) [ ! -e {mark} ] || {{ rm {mark}; {while_asked}; }} ;; esac"
    path.write_text(f'#!/bin/sh\ng++ "$@" || exit\n{script}\n')
    path.chmod(0o755)
    time.sleep(0.02)  # so that nothing else was written at the time of the scan
    return str(path)


@pytest.mark.parametrize("by", ["a link", "a name"])
def test_a_folder_that_changes_places_while_the_compiler_is_asked_is_seen(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    root = tmp_path / "project"
    files = {"v1/inc/v.h": ONE, "v2/inc/v.h": '#include "w.h"\n', "v2/inc/w.h": TWO}
    made = project(root, RETURNS_V, files, ("cur/inc",))
    if by == "a link":
        (root / "cur").symlink_to("v1")
        swap = f"ln -sfn v2 {root}/cur"
    else:
        (root / "v1").rename(root / "cur")
        swap = f"mv {root}/cur {root}/v1; mv {root}/v2 {root}/cur; touch {root}/cur/new"
    monkeypatch.setenv("CXX", drive(tmp_path / "driver", swap))
    assert cli("plan", "--project", root).code == 0
    write("cur/inc/w.h", ONE.replace("1", "7"))(root)
    assert_as_clean(cli, made, monkeypatch)


def test_a_header_that_changes_between_the_looks_at_it_is_seen(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read for one source, then written while the compiler was asked for another."""
    root = tmp_path / "project"
    made = project(root, RETURNS_V, {"include/v.h": '#include "w.h"\n', "include/w.h": ONE})
    write("torch-ext/binding.cpp", f'#include "../include/w.h"\n{BINDING}')(root)
    monkeypatch.setenv("CXX", drive(tmp_path / "driver", "true"))
    assert cli("build", "--project", root, "-j", "1").code == 0
    write("include/w.h", TWO)(root)
    drive(tmp_path / "driver", f"echo '#define V 5' > {root}/include/v.h", "binding.cpp")
    cli("build", "--project", root, "-j", "1")
    write("include/v.h", '#include "w.h"\n')(root)
    assert_as_clean(cli, made, monkeypatch)
    write("include/w.h", ONE.replace("1", "777"))(root)
    assert_as_clean(cli, made, monkeypatch)


def test_a_header_of_the_compilers_own_that_comes_while_it_compiles_is_in_no_object(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another source fails, and what did compile is kept."""
    root = tmp_path / "project"
    made = project(root, RETURNS_V, {"cpu/bad.cpp": "int x = ;\n"})
    text = (root / "build.toml").read_text()
    (root / "build.toml").write_text(text.replace('"cpu/kernel.cpp"', '"cpu/kernel.cpp", "cpu/bad.cpp"'))
    for number, line in ((1, ""), (2, TWO)):
        (tmp_path / f"own{number}").mkdir()
        (tmp_path / f"own{number}/v.h").write_text(line)
    (tmp_path / "own1/v.h").unlink()
    driver, own = tmp_path / "driver", f"-isystem {tmp_path}/own1 -isystem {tmp_path}/own2"
    come = f"[ ! -e ${{0%/*}}/armed ] || echo '{ONE.strip()}' > {tmp_path}/own1/v.h"
    driver.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*kernel.cpp*) {come} ;; esac\nexec g++ "$@" {own}\n')
    driver.chmod(0o755)
    (tmp_path / "armed").touch()
    monkeypatch.setenv("CXX", str(driver))
    assert cli("build", "--project", root).code == 2
    for path in (tmp_path / "armed", tmp_path / "own1/v.h"):
        path.unlink()
    write("cpu/bad.cpp", "int x = 1;\n")(root)
    assert_as_clean(cli, made, monkeypatch)


def test_a_script_that_stands_for_the_compiler_counts_by_its_text(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may choose by its arguments, which differ between what it is asked and what it compiles."""
    driver = tmp_path / "driver"
    made = project(tmp_path / "project", '#include "kernel.h"\nint64_t answer() { return N; }\n', {})
    monkeypatch.setenv("CXX", str(driver))
    for number in (1, 7, 8, 9):
        (tmp_path / f"{number}.h").write_text(f"#define N {number}\n")
        flag = f"-DN={number}" if number < 8 else f"-include {tmp_path}/{number}.h"
        choose = f'case " $* " in *\' -c \'*) exec g++ {flag} "$@" ;; esac'
        driver.write_text(f'#!/bin/sh\n{choose}\nexec g++ -DN=0 "$@"\n')
        driver.chmod(0o755)
        assert_as_clean(cli, made, monkeypatch)
