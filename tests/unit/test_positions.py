"""Lines of keys: the scanner against tomli, which knows the keys, and against the text, which has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from hubkernels.config.positions import KeyPath, basic_string, format_path, locate

Choice = TypeVar("Choice")

TRICKY = (
    '''\
# a comment with [brackets] and "quotes"
title = "a # no comment" # a comment
"quoted key" = 1
'literal.key' = 'C:\\path # still a string'
dotted.key.here = true
date = 1979-05-27T07:32:00Z
multi = """
[not.a.table]
x = 1 \\"""
"""
lit = \'\'\'
it's ] } here\'\'\'
numbers = [ 1, 2, # one
  [3, 4],
  { a = 1, b.c = [5, "x]"] },
]

[table]
key = "v"
[table."sub.table"]
u\u00f6 = 1
'''.replace("u\u00f6 = 1", 'unicode = "\u00fc"')
    + """
[[items]]
name = "first"
[items.below]
x = 1
[[items]]
name = "second"
[[items.nested]]
y = 2
[ spaced . "key" ]
z = { }
w = []
"""
)


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:  # noqa: ANN401 - a TOML value
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*path, index)
            yield from paths(item, (*path, index))


def test_every_path_that_tomli_knows_has_a_line() -> None:
    lines = locate(TRICKY)
    assert set(paths(tomli.loads(TRICKY))) <= set(lines)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("title",), "title ="),
        (("quoted key",), '"quoted key"'),
        (("dotted", "key", "here"), "dotted.key.here"),
        (("numbers", 2, 0), "[3, 4]"),
        (("numbers", 3, "b", "c", 1), '"x]"'),
        (("table", "sub.table"), '[table."sub.table"]'),
        (("items", 0, "below", "x"), "x = 1"),
        (("items", 1, "name"), '"second"'),
        (("items", 1, "nested", 0, "y"), "y = 2"),
        (("spaced", "key", "z"), "z = {"),
    ],
)
def test_a_key_is_on_the_line_that_shows_it(path: KeyPath, text: str) -> None:
    line = TRICKY.splitlines()[locate(TRICKY)[path] - 1]
    assert text in line


def test_windows_line_ends_count_as_one() -> None:
    assert locate("a = 1\r\n\r\n[b]\r\nc = 2\r\n") == {("a",): 1, ("b",): 3, ("b", "c"): 4}


def test_paths_are_spelled_as_toml_spells_them() -> None:
    assert format_path(("package", "rms-norm", "kernel", "a b", "src", 0)) == 'package.rms-norm.kernel."a b".src[0]'


@pytest.mark.parametrize("key", ['a"b', "a\\b", "tab\tnewline\n", "\x00\x1b\x7f", "dot.ted", "\u00fc", ""])
def test_a_quoted_key_is_spelled_so_that_tomli_reads_it_back(key: str) -> None:
    assert tomli.loads(f"{format_path((key,))} = 1") == {key: 1}


def test_every_escape_of_toml_is_known_in_keys() -> None:
    text = r""""\x41\e\b\t\n\f\r\"\\\u00fc\U0001F600" = 1"""
    assert locate(text) == {('A\x1b\b\t\n\f\r"\\\u00fc\U0001f600',): 1}


def test_a_header_is_the_line_of_its_table_whatever_implied_it_before() -> None:
    assert locate("[a.b]\n[c.d]\n[a]\n[[e.f]]\n[e]\n") == {
        ("a",): 3,
        ("a", "b"): 1,
        ("c",): 2,
        ("c", "d"): 2,
        ("e",): 5,
        ("e", "f"): 4,
        ("e", "f", 0): 4,
    }


@pytest.mark.parametrize("pair", [("[", "]"), ("{ a = ", "}")])
def test_values_are_scanned_as_deep_as_tomli_nests(pair: tuple[str, str]) -> None:
    text = f"a = {pair[0] * 200}{pair[1] * 200}".replace("= }", "= 1}")
    assert set(paths(tomli.loads(text))) <= set(locate(text))


class Author:
    """Writes TOML as a random source draws it. Each key ends in a tag of its own, by which a line shows it."""

    PREFIXES = ("", "a-", "b_", "c.d", "[e] #", 'f"', "g\\", "h'", "i\t\n", "\u00fc \x7f", "=,{}")
    SCALARS = ("1", "-1e5", "true", "1979-05-27 07:32:00", '"a # ] }"', "'b\\'", '"\\"]"', "'''\n[c]\n'd''''")
    GAPS = ("", " ", "\n", " # ]}\"'\n", "\r\n\t")

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.keys = 0

    def text(self) -> str:
        return self.pairs() + self.sections((), 3)

    def pairs(self) -> str:
        return "".join(f"{self.pair(2)}{self.one_of((' # [x]', ''))}\n" for _ in self.some(3))

    def sections(self, above: KeyPath, depth: int) -> str:
        return "".join(self.section((*above, self.new_key()), depth) for _ in self.some(2 if depth else 0))

    def section(self, path: KeyPath, depth: int) -> str:
        if self.one_of((True, False)):
            items = (f"[[{self.spelled(path)}]]\n{self.pairs()}{self.sections(path, depth - 1)}" for _ in self.some(2))
            return "".join(items)
        below = self.sections(path, depth - 1)
        own = f"[{self.spelled(path)}]\n{self.pairs()}"
        return self.one_of((own + below, below + own, below))

    def pair(self, depth: int) -> str:
        keys = [self.new_key(), *(self.new_key() for _ in self.some(1))]
        return f"{self.spelled(keys)} = {self.value(depth)}"

    def value(self, depth: int) -> str:
        match self.one_of(("scalar", "array", "table") if depth else ("scalar",)):
            case "array":
                items = [f"{self.gap()}{self.value(depth - 1)}{self.gap()}" for _ in self.some(3)]
                return f"[{','.join(items)}{self.one_of((',', '')) if items else ''}{self.gap()}]"
            case "table":
                return f"{{ {', '.join(self.pair(depth - 1) for _ in self.some(2))} }}"
            case _:
                return self.one_of(self.SCALARS)

    def new_key(self) -> str:
        self.keys += 1
        return f"{self.one_of(self.PREFIXES)}k{self.keys:03}"

    def spelled(self, keys: Iterable[str | int]) -> str:
        return self.one_of((".", " . ")).join(self.one_of([*spellings(str(key))]) for key in keys)

    def gap(self) -> str:
        return self.one_of(self.GAPS)

    def some(self, most: int) -> range:
        return range(self.data.draw(st.integers(0, most)))

    def one_of(self, choices: Sequence[Choice]) -> Choice:
        return self.data.draw(st.sampled_from(choices))


def spellings(key: str) -> Iterator[str]:
    yield basic_string(key)
    prefix, tag = key[:-4], key[-4:]
    escaped = "".join(rf"\u{ord(character):04X}" for character in prefix)
    yield f'"{escaped}{tag}"'
    if not re.search(r"['\x00-\x1f\x7f]", key):
        yield f"'{key}'"
    if re.fullmatch(r"[\w-]+", key, re.ASCII):
        yield key


@given(st.data())
@settings(derandomize=True, database=None, deadline=None, max_examples=60)
def test_in_random_texts_every_key_is_on_a_line_that_shows_it(data: st.DataObject) -> None:
    text = Author(data).text()
    rows, lines = text.split("\n"), locate(text)
    headers = {
        found[1]: number
        for number, row in enumerate(rows, 1)
        if (found := re.fullmatch(r"""\[[^\[].*(k\d{3})["']?\]""", row))
    }
    for path in paths(tomli.loads(text)):
        if isinstance(path[-1], int):
            assert lines[path] >= lines[path[:-1]]
        else:
            tag = path[-1][-4:]
            assert tag in rows[lines[path] - 1]
            assert lines[path] == headers.get(tag, lines[path])
