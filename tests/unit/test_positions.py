"""Lines of keys: the scanner against tomli, which knows the keys, and against the text, which has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tomli

from hubkernels.config.positions import KeyPath, format_path, locate

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
