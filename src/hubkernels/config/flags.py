"""Words of compiler command lines that a build.toml may not, or had better not, add."""

from __future__ import annotations

import re

from hubkernels.config.refused_flags import KINDS, why_not_for_assembler
from hubkernels.model.backend import BACKENDS

_SEARCHED = frozenset({"-I", "-isystem", "-iquote", "-idirafter"})

# Of libraries, those that every link has where a symbol of theirs is used are no mistake.
_OF_THE_LINK = re.compile(
    r"-l(?!(?:ineinfo|to|gomp|m|dl|pthread|rt|c)$).*|-L.*|-Wl,.*|-Xlinker.*|-fuse-ld=.*|-static|-shared|-rdynamic"
)
_MOST_EXPRESSIONS = 64
_FROM_FILE = ("-optf", "--options-file")
_OURS_TO_DEFINE = frozenset(
    {"TORCH_EXTENSION_NAME", "TORCH_TARGET_VERSION", "Py_LIMITED_API", "_GLIBCXX_USE_CXX11_ABI"}
    | {backend.define for backend in BACKENDS.values() if backend.define}
)
_ARCHS_BY_START = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "--gpu-code", "--offload-arch")
_NATIVE = frozenset({"-march=native", "-mcpu=native", "-mtune=native"})


_SEVERAL = re.compile(r"-\S+\s+-\S")
_TAKES_A_WORD = frozenset(
    {
        *_SEARCHED,
        "-include",
        "-imacros",
        "-D",
        "-U",
        "-A",
        "-x",
        "-L",
        "-l",
        "-u",
        "-z",
        "-T",
        "-e",
        "--param",
        "-Xlinker",
    }
)
"""Flags that take the next word, whatever it is."""


def why_unfinished(word: str) -> tuple[str, str] | None:
    """What is wrong with a word that is the last of its list, and a hint."""
    if word in _TAKES_A_WORD:
        return f"ends in a flag that takes a word: {word!r}", "write that word behind it, or without a space in one"
    return None


def why_refused(word: str, before: str = "") -> tuple[str, str | None] | None:
    """What is wrong with a word, and a hint. before: the word before it."""
    if "$<" in word:
        return _why_expression_refused(word, before)
    if _SEVERAL.match(word):
        return f"has several flags in one string: {word!r}", "write each as a string of its own"
    if word.startswith(("@", *_FROM_FILE)) or ",@" in word or (word.startswith("-X") and "=@" in word):
        return f"reads flags from a file: {word}", "write its flags here: a change of the file would not be seen"
    if refused := why_not_for_assembler(word):
        return refused
    whole = before + word if before in {"-D", "-U"} else word
    if whole.startswith(("-D", "-U")) and whole[2:].partition("=")[0] in _OURS_TO_DEFINE:
        return f"has a macro that is the builder's to define: {whole!r}", None
    joined = before + word if before in _SEARCHED else word
    found = next((kind for kind in KINDS if kind.flags.fullmatch(joined)), None)
    return (f"{found.what}: {joined!r}", found.hint) if found else None


def _why_expression_refused(word: str, before: str) -> tuple[str, str | None] | None:
    """Any part of an expression of CMake may become a flag."""
    if word.count("$<") > _MOST_EXPRESSIONS:
        return f"has a word with more than {_MOST_EXPRESSIONS} expressions of CMake", "write the flag itself"
    parts = (why_refused(part, before) for part in re.split("[:;<>]", word) if part)
    return next((found for found in parts if found), None)


def why_suspicious(word: str) -> tuple[str, str] | None:
    """What a word does that its writer may not want, and a hint."""
    if word in _NATIVE:
        return f"compiles for the machine that builds: {word}", "name what every user's machine has: -mavx2"
    if word.startswith(_ARCHS_BY_START):
        hint = "cuda-capabilities and rocm-archs: what metadata.json says comes from there"
        return f"chooses architectures, which have a key of their own: {word}", hint
    if _OF_THE_LINK.fullmatch(word):
        hint = "kernels link the libraries that every machine has: drop it, or compile that library's sources"
        return f"has a flag of the link, which it never reaches: {word}", hint
    return None
