"""Flags that no build.toml may add, by kind: what is wrong with them, and what to do instead."""

from __future__ import annotations

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """what: is wrong with the whole words that ``flags`` fits; the word itself follows."""

    flags: re.Pattern[str]
    what: str
    hint: str | None = None


_OURS = Kind(
    re.compile(
        r"|-|-[cES]|-o.*|-fsyntax-only|-fgnu-unique|-ccbin"
        r"|(?:-M|-Wp,|-Xpreprocessor|--?save-temps|--output-file|--output-directory|--compiler-bindir|-ccbin=|-wrapper).*"
        r"|--?specs=.*"
    ),
    "has a flag that is the builder's to give",
)

_READ_UNSEEN = Kind(
    re.compile(
        r"(?:-B|--prefix|--sysroot|-isysroot|--gcc-toolchain|--gcc-install-dir|--config|--driver-mode|-Xclang|-mllvm"
        r"|-Xassembler|-fno-integrated-as|-no-integrated-as|-fplugin|-fpass-plugin|-fmodule|-fprebuilt-module"
        r"|-fprofile-use|-fprofile-instr-use|-fprofile-sample-use|-fprofile-list|-fprofile-remapping-file"
        r"|-fauto-profile|-fbranch-probabilities|-fthinlto-index|-fembed-offload-object|-fbuild-session-file"
        r"|-fpre-include|-fxray-(?:always-instrument|never-instrument|attr-list)).*"
        r"|-fsanitize-.*list=.*|-fbasic-block-sections=(?!(?:all|labels|none)$).*",
        re.DOTALL,
    ),
    "has a flag that brings in what no compiler lists",
    "a change of it would not be seen: leave it to a script that CXX names, which is known by what it does",
)
"""Flags by which a compiler takes other parts of itself, or reads files that it does not list."""

_WRITE = Kind(
    re.compile(
        r"-f(?:dump-|time-trace|stack-usage|callgraph-info|profile|cs-profile|test-coverage|compare-debug|proc-stat-report"
        r"|(?:save-)?optimization-record|crash-diagnostics-dir|thin-link-bitcode|deps-|vtv-|opt-info.*=).*"
        r"|-fdiagnostics-(?:format=.*-file|(?:add|set)-output=.*)"
        r"|--?(?:coverage|(?:save-stats|serialize-diagnostics|analyze|dump|time=|emit-).*)"
        r"|-d(?:[ADHIMNPUapx]|ependency-|sym-dir).*"
        r"|-(?:aux-info|gsplit-dwarf|arcmt|objcmt|rewrite|module|gen-reproducer|object-file-name|verify-pch).*"
    ),
    "has a flag that makes the compiler write other files",
    "a step of a build makes its object alone: `kernel-builder devshell` has the compiler for other files",
)
"""Flags for files beside the object, or in its stead. Code that counts for a profile names one beside the object."""

_RECORD = Kind(
    re.compile("-[fg]record-(?:gcc-switches|command-line)"),
    "has a flag that writes the command line into the object",
    "it names folders of this machine and this run: no two builds would be alike; leave it out",
)

_PRINT = Kind(
    re.compile(r"--?print-.*|--(?:help.*|version|target-help|completion=.*)|-###"),
    "has a flag with which the compiler prints, and compiles nothing",
    "leave it out",
)

_SEARCH = Kind(
    re.compile(
        r"-i(?!system(?!-after)|quote|dirafter|nclude(?!-pch)|macros).+|--i(?:nclude|macros).*|-(?:c|cxx|objcxx?)-isystem.*"
        r"|-F.*|-I-|-remap|-index-header-map|-fapinotes.*|--embed-dir.*"
        r"|--?stdlib.*|-stdlib\+\+-isystem.*|--?resource-dir.*|-working-directory.*"
        r"|-(?:I|isystem|iquote|idirafter)(?:=|\$SYSROOT).*"  # below a folder that the compiler knows
    ),
    "searches for headers in a way that is not supported",
    "where headers are looked for must be known: write -I, -iquote, -isystem or -idirafter; -include for a file",
)
"""Spellings that change where headers are looked for, beside the ones that `scan` knows."""

_SPELLED_OUT = Kind(
    re.compile(
        r"--?specs|--(?:output|compile|preprocess|assemble|(?:write-)?(?:user-)?dependencies|print-missing-file-dependencies"
        r"|define-macro|undefine-macro|for-assembler|for-linker)(?:=.*)?"
    ),
    _OURS.what,
    "flags of a source have short names, such as -D",
)
"""Long names of flags that are the builder's, or that stand in a list here by their short names."""

KINDS = (_OURS, _READ_UNSEEN, _SPELLED_OUT, _WRITE, _RECORD, _PRINT, _SEARCH)

_FILES_OF_AS = ("-a", "-o", "--M")
"""What makes the assembler write a file beside the object."""

_READ_BY_AS = re.compile(r"-?-?|[^-].*|-[It].*|--it.*")
"""Words of the assembler that are a file, which it assembles too, or lead to one."""


def why_not_for_assembler(word: str) -> tuple[str, str | None] | None:
    """What is wrong with a word of the compiler that hands others to the assembler, and a hint."""
    parts = word.split(",")[1:] if word.startswith("-Wa,") else []
    if any(part.startswith(_FILES_OF_AS) for part in parts):
        return f"{_OURS.what}: {word!r}", _OURS.hint
    if any(map(_READ_BY_AS.fullmatch, parts)):
        hint = "a change of that file would not be seen: name sources in src; an option and its value are joined by ="
        return f"hands the assembler a file: {word!r}", hint
    return None
