"""Words of compiler command lines that a build.toml may not, or had better not, add."""

from __future__ import annotations

import re

from hubkernels.model.backend import BACKENDS

_OURS = frozenset({"", "-", "-o", "-c", "-E", "-S", "-fsyntax-only", "-fgnu-unique", "-B", "-ccbin", "-odir"})
_OURS_BY_START = (
    *(
        "-M",
        "-Wp,",
        "-Xpreprocessor",
        "-save-temps",
        "--save-temps",
        "--output-file",
        "--output-directory",
        "--compiler-bindir",
    ),
    *("-ccbin=", "-wrapper", "-fplugin", "-specs=", "--specs="),
)
_FILES_OF_AS = ("-a", "-o", "-I", "--MD")
"""What makes the assembler write a file beside the object, or search folders that nothing looks at."""
_MOST_EXPRESSIONS = 64
_FROM_FILE = ("-optf", "--options-file")
_OURS_TO_DEFINE = frozenset(
    {"TORCH_EXTENSION_NAME", "TORCH_TARGET_VERSION", "Py_LIMITED_API", "_GLIBCXX_USE_CXX11_ABI"}
    | {backend.define for backend in BACKENDS.values() if backend.define}
)
_ARCHS_BY_START = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "--gpu-code", "--offload-arch")
_NATIVE = frozenset({"-march=native", "-mcpu=native", "-mtune=native"})
_TUNING = ("-mtune=", "-mprefer-vector-width=", "-mno-")


def why_refused(word: str, before: str = "") -> tuple[str, str | None] | None:
    """What is wrong with a word, and a hint. before: the word before it."""
    if word.count("$<") > _MOST_EXPRESSIONS:
        return f"has a word with more than {_MOST_EXPRESSIONS} expressions of CMake", "write the flag itself"
    if "$<" in word:  # an expression of CMake: any part of it may become a flag
        parts = (why_refused(part, before) for part in re.split("[:;<>]", word) if part)
        return next((found for found in parts if found), None)
    if word.startswith(("@", *_FROM_FILE)) or ",@" in word or (word.startswith("-X") and "=@" in word):
        return f"reads flags from a file: {word}", "write its flags here: a change of the file would not be seen"
    to_assembler = [word] if before == "-Xassembler" else word.split(",")[1:] if word.startswith("-Wa,") else []
    if word in _OURS or word.startswith(_OURS_BY_START) or any(part.startswith(_FILES_OF_AS) for part in to_assembler):
        return f"has a flag that is the builder's to give: {word!r}", None
    whole = before + word if before in {"-D", "-U"} else word
    if whole.startswith(("-D", "-U")) and whole[2:].partition("=")[0] in _OURS_TO_DEFINE:
        return f"has a macro that is the builder's to define: {whole!r}", None
    return None


def why_suspicious(word: str) -> tuple[str, str] | None:
    """What a word does that its writer may not want, and a hint."""
    if word in _NATIVE:
        return f"compiles for the machine that builds: {word}", "name what every user's machine has: -mavx2"
    if word.startswith(_ARCHS_BY_START):
        hint = "cuda-capabilities and rocm-archs: what metadata.json says comes from there"
        return f"chooses architectures, which have a key of their own: {word}", hint
    return None


def chooses_isa(word: str) -> bool:
    """Whether a flag changes the instruction set that g++ and clang compile for."""
    return word.startswith("-m") and not word.startswith(_TUNING)
