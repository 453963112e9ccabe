"""What is looked at in the first lines of a README.md: that they are keys and values, and name a licence as a text.

It is no YAML parser: none is among our dependencies. What passes here can still fail elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"""(?:[^\s#:'"\[{-][^:]*|"[^"]*"|'[^']*'):(?:\s|$)""")
_BLOCK = re.compile(r":\s*[|>][-+0-9]*\s*$")
_TOLD = 10


def card_warnings(text: str) -> list[str]:
    return [] if _FRONT.match(text) else ["empty or missing yaml metadata in repo card"]


def card_errors(text: str) -> list[str]:
    """Each names its line. The first few alone: who sends a card may send one with an error a line."""
    return list(islice(_errors(text), _TOLD))


def _errors(text: str) -> Iterator[str]:
    front = _FRONT.match(text)
    if not front:
        if text.startswith("---\n"):
            yield "the metadata is not closed: --- is missing"
        return
    inside = False  # a value that goes on in the next lines
    for number, line in enumerate(front[1].splitlines(), 2):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            yield f"line {number}: a tab cannot indent"
        elif line[0] in " -]}":
            if not inside:
                yield f"line {number}: {bare[:60]!r} belongs to no key"
        elif not _KEY.match(line):
            yield f"line {number}: {bare[:60]!r} is no 'key: value'"
        else:
            value = bare.partition(":")[2].strip()
            inside = not value or bool(_BLOCK.search(bare)) or value[0] in "[{\"'&!" or not value.startswith("#")
            if bare.startswith("license:") and (value[:1] in {"[", "{"} or re.fullmatch(r"[\d.]+|true|false", value)):
                yield f"line {number}: license is a text, as in 'license: apache-2.0'"
