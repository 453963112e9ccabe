"""What no list of files tells, by the texts alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.build.names import named_in
from hubkernels.build.once import depends_on_times
from hubkernels.build.search import Search
from hubkernels.build.text import code
from hubkernels.build.unseen import unseen
from hubkernels.host.files import hash_file
from tests.unit.test_plan import TOOLS


def why(text: bytes, preprocessed: str = "", flags: tuple[str, ...] = ()) -> str | None:
    return unseen(
        {"a.cpp": text}, {"a.cpp": code(text)}, flags, TOOLS.compiler, ("a.cpp, preprocessed,", lambda: preprocessed)
    )


@pytest.mark.parametrize(
    "text",
    [
        rb'asm(".incbin \"t.bin\"");',
        rb'asm(".INCBIN \"t.bin\"");',
        rb'asm(".IncLude \"t.s\"");',
        rb'asm(".incbin /* x */ \"t.bin\"");',
        b"#error can't build src/*.cpp\nconst char* when = __TIMESTAMP__; /* */",
        b'asm(R"(.include"t.s")");',
        rb'asm("\t.include\t\"t.s\"\n");',
        rb'asm("nop; .in" "clude \"t.s\"");',
        b"const char* when = __TIMESTAMP__;",
        b"// why??/\n",
    ],
)
def test_a_text_that_brings_in_more_is_refused(text: bytes) -> None:
    assert (why(text) or "").startswith("a.cpp has ")


def test_macros_are_looked_through_where_there_is_assembly() -> None:
    hidden = '.incbin "t.bin"'
    assert why(b"int x;", hidden) is None
    assert "preprocessed, has .incbin" in (why(b"asm(X);", hidden) or "")
    assert "a flag has __TIMESTAMP__" in (why(b"int x;", flags=("-DT=__TIMESTAMP__",)) or "")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b'#include "a.h"\n# include <b/c.h>\n', ["a.h", "b/c.h"]),
        (b'#include_next <a.h>\n%:include "b.h"\n#import "c.h"\n#embed <d.bin>\n', ["a.h", "b.h", "c.h", "d.bin"]),
        (b"#include OTHER\n", [""]),
        (b'#inc\\\nlude "a.h"\n#if __has_include(<b.h>)\n', ["a.h", "b.h"]),
        (b"int include;\n", []),
    ],
)
def test_the_files_that_a_text_names(text: bytes, names: list[str]) -> None:
    assert list(named_in(text)) == names


ONCE = b"#pragma once\n"


@pytest.mark.parametrize(
    ("files", "depends"),
    [
        ({"x.h": ONCE, "a/x.h": ONCE}, True),
        ({"x.h": b"#pragma /* */ once\n", "a/x.h": b"#pragma /* */ once\n"}, True),
        ({"x.h": b"int x;\n", "a/x.h": b"int x;\n"}, False),
        ({"x.h": b"int x;\n", "a/x.h": b"int x;\n", "s.cpp": b"%:import <x.h>\n"}, True),
        ({"x.h": ONCE, "a/y.h": b"int y;\n"}, False),
        ({"s.cpp": b"#include MACRO\n", "x.h": ONCE}, True),
        ({"s.cpp": b"#include MACRO\n", "x.h": b"int x;\n"}, False),
        ({"s.cpp": b"#include/* */MACRO\n", "x.h": ONCE}, True),
        ({"s.cpp": b"// #include the header first\n", "x.h": ONCE}, False),
        ({"s.cpp": b"#include MACRO\n", "x.h": b"// no #pragma once\n"}, False),
        ({"s.cpp": b"#define HAS(x) __has_include(x)\n", "x.h": ONCE}, False),
        ({"s.cpp": b"", "x.h": ONCE, "y.h": ONCE}, True),
    ],
)
def test_of_equal_files_that_are_read_once_times_decide(
    tmp_path: Path, files: dict[str, bytes], *, depends: bool
) -> None:
    """g++ passes over a file that is as one before it, and as old."""
    (tmp_path / "a").mkdir()
    for path, text in files.items():
        (tmp_path / path).write_bytes(text)
    codes = {path: code(text) for path, text in files.items() if not path.startswith("a/")}
    named = [path for path in files if path.startswith("a/")]
    assert depends_on_times(codes, named, tmp_path, lambda path: hash_file(tmp_path / path)) == depends


def test_a_link_to_a_file_that_is_read_once_may_become_another(tmp_path: Path) -> None:
    """clang goes by inodes: a copy of it would be read too."""
    (tmp_path / "x.h").write_bytes(ONCE)
    (tmp_path / "y.h").symlink_to("x.h")
    digest = {"x.h": "1", "y.h": "1", "./x.h": "1"}
    assert depends_on_times({"x.h": ONCE}, ["y.h"], tmp_path, digest.get)
    assert not depends_on_times({"x.h": ONCE}, ["./x.h"], tmp_path, digest.get)


def test_where_headers_are_looked_for(tmp_path: Path) -> None:
    for path in ("src", "inc/hk", "sys", "late"):
        (tmp_path / path).mkdir(parents=True)
    for path in ("src/s.cpp", "inc/hk/x.h", "late/y.h"):
        (tmp_path / path).touch()
    late = str(tmp_path / "late")
    search = Search(tmp_path, ("-Iinc", "-include", "x.h"), (str(tmp_path / "sys"), late))
    paths = ["src/s.cpp", "inc/hk/x.h", f"{late}/y.h"]
    roots = search.roots(paths[:2])
    assert roots == {"src", "inc", "inc/hk", "."}
    names = search.names(paths, roots)
    assert {"hk/x.h", "x.h", "y.h", "s.cpp"} <= names
    near = search.near(roots, names)
    assert near.absent >= {"src/x.h", "src/hk", "inc/y.h", "./hk"}
    assert f"{tmp_path}/sys/y.h" in search.far(paths).absent
    assert not any(path.startswith(late) for path in search.far([f"{late}/y.h"]).absent)
