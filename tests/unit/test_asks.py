"""What texts ask the preprocessor for."""

from __future__ import annotations

import pytest

from hubkernels.build.asks import Asked, asked
from hubkernels.build.text import code, literals_joined


def ask(texts: dict[str, bytes], flags: tuple[str, ...]) -> Asked:
    return asked({path: code(text) for path, text in texts.items()}, (), texts.__getitem__, flags)


HAS = b"#define HAS(x) __has_include(x)\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (b"#if __has_include(<a.h>) || __has_include_next ( <b/c.h> )", {"a.h", "b/c.h"}),
        (b'#if 0\n#if __has_include/* */("a.h")\n#endif\n#endif', {"a.h"}),
        (b'#if __has_\\\ninclude("a.h")', {"a.h"}),
        (b'#if __has_inc\\ \t\r\nlude("a.h")', {"a.h"}),
        (b"#if __has_include(<no/*such.h>)\n#if __has_include(<a.h>)\n/* */", {"no/*such.h", "a.h"}),
        (b"// why\\?\n#if __has_include(<a.h>)", {"a.h"}),
        (HAS + b"#if HAS(<a.h>)", {"a.h"}),
        (HAS + b"#undef HAS\n#define HAS(x) 0\n#ifdef HAS\n#endif", set()),
        (b"#if defined(__has_include) && defined __has_include\n#elifdef __has_include\n#endif", set()),
        (b"// __has_include(X)\n/* __has_include(Y) */", set()),
        (b'const char* s = R"a(/*)a";\n#if __has_include(<a.h>)', {"a.h"}),
        (b"#error can't build src/*.cpp\n#if __has_include(<a.h>)\n#endif\n/* */", {"a.h"}),
        (b'#error a " build src/*.cpp\n#if __has_include(<a.h>)\n#endif\n/* */', {"a.h"}),
        (b"#define HAS(name) __has_include(<a.h>)\n#if HAS(a)", {"a.h"}),
        (b"int n = 1'000; char c = '\"'; /* \" */\n#if __has_include(<a.h>)", {"a.h"}),
    ],
)
def test_names_that_a_text_tells(text: bytes, names: set[str]) -> None:
    found = ask({"x.h": text}, ())
    assert (set(found.names), found.clear) == (names, True)


@pytest.mark.parametrize(
    "text",
    [
        b"#if __has_include(OPT)",
        b"#define ASK __has_include\n#if ASK(<a.h>)",
        b'#if __has_include("/opt/a.h")',
        b"#if __has_embed(<a.bin>)",
        HAS + b"#if HAS(OPT)",
        HAS + b"#define TOO(x) HAS(x)\n#if TOO(<a.h>)",
        HAS + b"#define ASK HAS\n#if ASK(<a.h>)",
        b"#define BOTH(x, y) __has_include(x)\n#if BOTH(<a.h>, 1)",
        HAS + b"#define DIR a\n#if HAS(<DIR/x.h>)",
        b"#define HAS __has_include(<linux/x.h>)\n#if HAS",
        b"#define HAS(name) __has_include(<name/x.h>)\n#if HAS(a)",
        b"#define NAME a\n#define HAS __has_include(<NAME/x.h>)\n#if HAS",
        b'const char* s = "/*";\n#if __has_include(OPT)\n/* */',
        b"int n = 1'000, m = '\"'; int k = '/*';\n#if __has_include(OPT)\n/* */",
    ],
)
def test_what_the_preprocessor_alone_knows(text: bytes) -> None:
    assert not ask({"x.h": text}, ()).clear


def test_a_macro_that_asks_is_known_in_files_that_do_not_have_the_word() -> None:
    found = ask({"a.h": HAS, "b.h": b'#if HAS("c.h")'}, ())
    assert (set(found.names), set(found.nearby), found.clear) == ({"c.h"}, {("c.h", "b.h")}, True)
    assert not ask({"a.h": HAS}, ("-DASK=HAS",)).clear


@pytest.mark.parametrize("flags", [("-DDIR=fast",), ("-D", "DIR=fast"), ("-UDIR",)])
def test_a_flag_that_defines_a_word_of_a_name_is_not_clear(flags: tuple[str, ...]) -> None:
    texts = {"x.h": b"#define HAS __has_include(<DIR/x.h>)\n#if HAS"}
    assert ask(texts, ()).clear
    assert not ask(texts, flags).clear
    for other in (("-include", "DIR.h"), ("-IDIR/include",), ("-DOTHER=DIR",)):
        assert ask(texts, other).clear


def test_a_flag_that_asks_is_not_clear() -> None:
    assert ask({"x.h": b"#if ASK(<a.h>)"}, ()).clear
    assert not ask({"x.h": b"#if ASK(<a.h>)"}, ("-DASK=__has_include",)).clear


@pytest.mark.parametrize("operand", ['"/opt/a.h"', "</opt/a.h>"])
def test_a_full_path_is_no_name_to_look_for(operand: str) -> None:
    """It is in no folder of the search: what is there is for the preprocessed text to tell."""
    found = ask({"x.h": f"#if __has_include({operand})".encode()}, ())
    assert (found.names, found.nearby, found.clear) == (frozenset(), frozenset(), False)


def test_a_text_that_asks_nothing_is_read_once() -> None:
    texts = {"a.h": b"#if __has_include(<c.h>)", "b.h": b"int b;"}
    read: list[str] = []

    def reader(path: str) -> bytes:
        read.append(path)
        return texts[path]

    found = asked({}, tuple(texts), reader, ())
    assert found.silent == {"b.h"}
    assert asked({}, tuple(texts), reader, (), found.silent) == found
    assert read == ["a.h", "b.h", "a.h"]


def test_comments_go_and_literals_join() -> None:
    assert code(b'a // b\\\nc\nd /* "e" */ f "/* g */"') == b'a  \nd   f "/* g */"'
    assert literals_joined(code(rb'"a\"" /* */ "b" u8"c" "\" "')) == rb'"a\"bc\" "'
