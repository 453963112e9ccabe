"""What a source asks the preprocessor without reading it: ``__has_include``, whose answers no compiler lists."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hubkernels.build.text import code, spliced

_SPLICED_WORD = re.compile(rb"\\[ \t\v\f\r]*\n\w")
_WORDS = re.compile(rb"__has_(?:include(?:_next)?|embed)\b")
_OPERAND = re.compile(rb'\s*\(\s*(?:<([^>\n]+)>|"([^"\n]+)")\s*\)')
_PREDEFINED = (b"linux", b"unix")
"""Words of names that compilers define, where GNU's dialect is asked for."""
_WORD = re.compile(rb"[A-Za-z_]\w*")
_WHETHER = re.compile(rb"(?:\bdefined\s*\(?|#\s*(?:(?:el)?ifn?def|define|undef))\s*\Z")
_DEFINE = re.compile(rb"[ \t]*(?:\#|%:)[ \t]*define[ \t]+(\w+)(?:\(([^)\n]*)\))?")
_WRAPPER = re.compile(rb"[ \t]*#[ \t]*define[ \t]+(\w+)\(\s*(\w+)\s*\)[^\n]*")


@dataclass(frozen=True)
class Asked:
    """names: what is asked for. nearby: names that are looked for beside the file that asks too, with that file.

    clear: whether that is all; else the preprocessor alone knows. silent: paths of files without a word of asking.
    """

    names: frozenset[str]
    nearby: frozenset[tuple[str, str]]
    clear: bool
    silent: frozenset[str]


def asked(
    own: Mapping[str, bytes],
    others: Iterable[str],
    read: Callable[[str], bytes],
    flags: Sequence[str],
    silent: Collection[str] = (),
) -> Asked:
    """What files ask for, inactive branches included.

    own: the project's, by path, as `code` gives them. others: paths, to be read. silent: those that are known to be.
    """
    codes = {path: text for path, text in own.items() if b"__has_" in text}
    quiet = []
    for path in others:
        if path not in silent and _may_ask(text := read(path)):
            codes[path] = code(text)
        else:
            quiet.append(path)
    if wrappers := sorted({word for text in codes.values() for word in _wrappers(text)}):
        # One may be used in files that do not have the word. Thousands of texts: no more than one is held at a time.
        uses = re.compile(b"|".join(wrappers))
        codes |= {path: text for path, text in own.items() if uses.search(text)}
        codes |= {path: code(text) for path in quiet if uses.search(text := read(path))}
    words = re.compile(b"|".join([_WORDS.pattern, *(rb"\b%s\b" % word for word in wrappers)]))

    names: set[str] = set()
    nearby: set[tuple[str, str]] = set()
    clear = not any("__has_" in flag or any(word.decode() in flag for word in wrappers) for flag in flags)
    for path, text in codes.items():
        for found in words.finditer(text):
            operand = _OPERAND.match(text, found.end())
            if operand is None:
                clear &= _needs_no_answer(text, found)
                continue
            name = (operand[1] or operand[2]).decode(errors="surrogateescape")
            if name.startswith("/"):  # no place of a search: the preprocessed text tells
                clear = False
                continue
            names.add(name)
            if operand[2] is not None:
                nearby.add((name, path))
            define = _DEFINE.match(text, text.rfind(b"\n", 0, found.start()) + 1)
            literal = operand[1] is None or (define is None and _WORDS.fullmatch(found[0]) is not None)
            fixed = literal or not _made_of_macros(operand[1], define, flags, own.values())
            clear &= fixed and found[0] != b"__has_embed"
    return Asked(frozenset(names), frozenset(nearby), clear, frozenset(quiet))


def _made_of_macros(name: bytes, define: re.Match[bytes] | None, flags: Sequence[str], own: Iterable[bytes]) -> bool:
    """Whether a name in angles may change: in a definition, or handed to a macro, its words are replaced like others.

    own: texts that may define one; those of the toolchain define no word that stands in a name of a header.
    """
    words = _WORD.findall(name)
    given = {*_PREDEFINED, *_given(flags), *_WORD.findall((define[2] if define else None) or b"")}
    defined = re.compile(rb"define[ \t]+(?:%s)\b" % b"|".join(words))
    return bool(words) and (not given.isdisjoint(words) or any(map(defined.search, own)))


def _given(flags: Sequence[str]) -> Iterator[bytes]:
    """The macros that flags define or undefine."""
    for before, word in zip(("", *flags), flags, strict=False):
        whole = before + word if before in {"-D", "-U"} else word
        if whole.startswith(("-D", "-U")):
            yield from _WORD.findall(os.fsencode(whole[2:]))[:1]


def _may_ask(text: bytes) -> bool:
    return b"__has_" in text or (_SPLICED_WORD.search(text) is not None and b"__has_" in spliced(text))


def _wrappers(text: bytes) -> Iterator[bytes]:
    """Macros that ask for what they are given: ``#define HAS(x) __has_include(x)``."""
    return (found[1] for found in _WRAPPER.finditer(text) if _asks_for(found))


def _asks_for(define: re.Match[bytes]) -> bool:
    return re.search(rb"__has_include(?:_next)?\s*\(\s*%s\s*\)" % define[2], define[0]) is not None


def _needs_no_answer(text: bytes, word: re.Match[bytes]) -> bool:
    """Whether a word only is defined or looked for, or stands in a wrapper, all of whose uses are known."""
    start = text.rfind(b"\n", 0, word.start()) + 1
    if _WHETHER.search(text[start : word.start()]):
        return True
    define = _WRAPPER.match(text, start) if _WORDS.fullmatch(word[0]) else None
    return define is not None and re.match(rb"\s*\(\s*%s\s*\)" % define[2], text[word.end() :][:200]) is not None
