"""Words of compiler command lines that a build.toml may not, or had better not, add."""

from __future__ import annotations

import re

from hubkernels.model.backend import BACKENDS

_OURS = re.compile(
    r"|-|-[cES]|-o.*|-fsyntax-only|-fgnu-unique|-ccbin"
    r"|(?:-M|-Wp,|-Xpreprocessor|--?save-temps|--output-file|--output-directory|--compiler-bindir|-ccbin=|-wrapper).*"
    r"|--?specs=.*"
)
"""Flags that are the builder's to give."""
_READ_UNSEEN = (
    *("-B", "--prefix", "--sysroot", "-isysroot", "--gcc-toolchain", "--gcc-install-dir", "--config", "-Xclang"),
    *("-Xassembler", "-Wa,-I", "-fno-integrated-as", "-no-integrated-as", "-fplugin", "-fpass-plugin", "-fmodule"),
    *("-fprebuilt-module", "-fprofile-use", "-fprofile-instr-use", "-fprofile-sample-use", "-fprofile-list"),
    *("-fauto-profile", "-fbranch-probabilities"),
)
"""Beginnings of flags by which a compiler takes other parts of itself, or reads files that it does not list."""

_SEARCHES = re.compile(
    r"-i(?!system(?!-after)|quote|dirafter|nclude(?!-pch)|macros).+|--i(?:nclude|macros).*|-(?:c|cxx|objcxx?)-isystem.*"
    r"|--?stdlib.*|-stdlib\+\+-isystem.*|--?resource-dir.*|-working-directory.*"
    r"|-(?:I|isystem|iquote|idirafter)(?:=|\$SYSROOT).*"  # below a folder that the compiler knows
)
"""Spellings that change where headers are looked for, beside the ones that `scan` knows."""

_SEARCHED = frozenset({"-I", "-isystem", "-iquote", "-idirafter"})

_SPELLED_OUT = re.compile(
    r"--?specs|--(?:output|compile|preprocess|assemble|(?:write-)?(?:user-)?dependencies|print-missing-file-dependencies"
    r"|define-macro|undefine-macro|for-assembler|for-linker)(?:=.*)?"
)
"""Long names of flags that are the builder's, or that stand in a list here by their short names."""

# Of libraries, those that every link has where a symbol of theirs is used are no mistake.
_OF_THE_LINK = re.compile(
    r"-l(?!(?:ineinfo|to|gomp|m|dl|pthread|rt|c)$).*|-L.*|-Wl,.*|-Xlinker.*|-fuse-ld=.*|-static|-shared|-rdynamic"
)
_FILES_OF_AS = ("-a", "-o", "--MD")
"""What makes the assembler write a file beside the object."""
_MOST_EXPRESSIONS = 64
_FROM_FILE = ("-optf", "--options-file")
_OURS_TO_DEFINE = frozenset(
    {"TORCH_EXTENSION_NAME", "TORCH_TARGET_VERSION", "Py_LIMITED_API", "_GLIBCXX_USE_CXX11_ABI"}
    | {backend.define for backend in BACKENDS.values() if backend.define}
)
_ARCHS_BY_START = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "--gpu-code", "--offload-arch")
_NATIVE = frozenset({"-march=native", "-mcpu=native", "-mtune=native"})


_TAKES_A_WORD = frozenset({*_SEARCHED, "-include", "-imacros", "-D", "-U", "-x", "-Xassembler", "-Xclang"})
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
    if word.startswith(("@", *_FROM_FILE)) or ",@" in word or (word.startswith("-X") and "=@" in word):
        return f"reads flags from a file: {word}", "write its flags here: a change of the file would not be seen"
    to_assembler = word.split(",")[1:] if word.startswith("-Wa,") else []
    if _OURS.fullmatch(word) or any(part.startswith(_FILES_OF_AS) for part in to_assembler):
        return f"has a flag that is the builder's to give: {word!r}", None
    if word.startswith(_READ_UNSEEN):
        hint = "a change of it would not be seen: leave it to a script that CXX names, which is known by what it does"
        return f"has a flag that brings in what no compiler lists: {word!r}", hint
    whole = before + word if before in {"-D", "-U"} else word
    if whole.startswith(("-D", "-U")) and whole[2:].partition("=")[0] in _OURS_TO_DEFINE:
        return f"has a macro that is the builder's to define: {whole!r}", None
    return _why_spelling_refused(before + word if before in _SEARCHED else word)


def _why_spelling_refused(word: str) -> tuple[str, str] | None:
    if _SEARCHES.fullmatch(word):
        hint = (
            "where headers are looked for must be known: write -I, -iquote, -isystem or -idirafter; -include for a file"
        )
        return f"searches for headers in a way that is not supported: {word!r}", hint
    if _SPELLED_OUT.fullmatch(word):
        return f"has a flag that is the builder's to give: {word!r}", "flags of a source have short names, such as -D"
    return None


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
