"""What makes other bytes of a source though no file that the compiler lists has changed: it is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from hubkernels.build.text import literals_joined
from hubkernels.model.version import Version
from hubkernels.toolchain.compiler import Compiler

_READS_UNSEEN = re.compile(rb"\.(incbin|include)(?:\s|\\t)*\\*\"", re.IGNORECASE)
"""Directives of the assembler, with the quote that follows: a comment may speak of them."""
_ANYWHERE = re.compile(rb"(?:(?<![\w)\]])|(?<=\\[a-z]))\.(incbin|include)\b", re.IGNORECASE)
"""The same where there is assembly: comments of its own may stand before the quote. Not a member of that name."""
_ASM = re.compile(rb"\b_*asm_*\b")
_STAMP = re.compile(rb"\b__TIMESTAMP__\b")
_CLOCK = re.compile(rb"\b__(?:TIMESTAMP|DATE|TIME)__\b")
_HEEDS_EPOCH = Version((16,))
"""The first clang that holds the day and the time fixed, as g++ does."""


def unseen(
    texts: Mapping[str, bytes],
    codes: Mapping[str, bytes],
    flags: Sequence[str],
    compiler: Compiler,
    whole: tuple[str, Callable[[], str]],
) -> str | None:
    """Why a source of these texts, by path, and flags is refused; None where it is not.

    codes: the texts, as `code` gives them.
    whole: a name for what the preprocessor makes of it, and what gives that: called where macros could hide a string.
    """
    codes = {**codes, "a flag": " ".join(flags).encode(errors="surrogateescape")}
    times = _CLOCK if compiler.family == "clang" and compiler.version < _HEEDS_EPOCH else _STAMP
    if path := next((path for path, text in texts.items() if b"??/" in text), None):
        return f"{path} has ??/, which is a backslash in some standards of C++ and none in others: leave it out"
    for path, text in codes.items():
        if time_of := times.search(text):
            word = time_of[0].decode()
            return f"{path} has {word}: what is built would not be the same at another time; leave it out"
    read = {path: literals_joined(text) for path, text in codes.items()}
    directive = _READS_UNSEEN
    if any(_ASM.search(text) for text in codes.values()):  # its strings can be made by macros
        directive = _ANYWHERE
        name, preprocessed = whole
        read[name] = literals_joined(preprocessed().encode(errors="surrogateescape"))
    for path, text in read.items():
        if found := directive.search(text):
            why = "no compiler lists what that reads, and changes of it would go unseen"
            return f"{path} has .{found[1].decode()}: {why}"
    return None
