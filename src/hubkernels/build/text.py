"""A text of C++ as the compiler takes it, before it is preprocessed."""

from __future__ import annotations

import re

_SPLICE = re.compile(rb"\\[ \t\v\f\r]*\n")
_TOKEN = re.compile(
    rb"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?:u8|[uUL])?R"(?P<raw>[^ ()\\\t\v\f\n]{0,16})\(.*?\)(?P=raw)"
    |(?:\b__has_\w+\s*\(|(?:\#|%:)\s*(?:include(?:_next)?|import|embed))\s*<[^>\n]*>  # a name may have /* in it
    |[A-Za-z_]\w*
    |[0-9](?:[\w.]|'\w)*
    |"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z)  # in what is skipped a quote may stand alone: it takes the rest of its line
    |'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z)
    """,
    re.DOTALL | re.VERBOSE,
)
_ADJACENT = re.compile(rb'(?<!\\)"\s*(?:u8|[uUL])?"')


def spliced(text: bytes) -> bytes:
    """A text with the lines joined that end in a backslash."""
    return _SPLICE.sub(b"", text)


def code(text: bytes) -> bytes:
    """A text as the compiler takes it: spliced lines joined, comments gone."""
    return _TOKEN.sub(lambda found: b" " if found["comment"] is not None else found[0], spliced(text))


def literals_joined(text: bytes) -> bytes:
    """A text, as `code` gives it, with adjacent string literals made one."""
    return _ADJACENT.sub(b"", text)
