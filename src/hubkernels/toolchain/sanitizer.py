"""Builds that stop at the first access outside a buffer or undefined operation: their flags, and how to run them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, InputError, Problem
from hubkernels.host.process import run
from hubkernels.toolchain.compiler import Compiler

SANITIZERS = ("address", "undefined")
"""Those that tell the truth while Python and torch are built without: thread and memory do not."""

_RUNTIMES = {"g++": ("libasan.so",), "clang": ("libclang_rt.asan-{cpu}.so", "libclang_rt.asan.so")}
"""LLVM's has the processor in its name, or stands in a folder for it."""

_PACKAGES = {"g++": "libgcc-{major}-dev", "clang": "libclang-rt-{major}-dev"}


def parse_sanitizers(text: str) -> tuple[str, ...]:
    """The sanitizers of ``address,undefined``, in one order. Raises InputError for others."""
    wanted = {word.strip() for word in text.split(",")}
    if unknown := sorted(wanted - set(SANITIZERS)):
        hint = f"allowed: {', '.join(SANITIZERS)}; the others need a Python and a torch built with them"
        raise InputError(Problem(f"no such sanitizer: {', '.join(unknown)}", "--sanitize", hint))
    return tuple(name for name in SANITIZERS if name in wanted)


def sanitizer_flags(compiler: Compiler, sanitizers: tuple[str, ...]) -> tuple[str, ...]:
    """Flags of compile and link alike.

    clang's list of exceptions would stand before the source among the files that it says it reads.
    """
    of_clang = ("-shared-libasan", "-fno-sanitize-ignorelist") if compiler.family == "clang" else ()
    return (f"-fsanitize={','.join(sanitizers)}", "-fno-sanitize-recover=all", *of_clang)


def sanitizer_environment(
    compiler: Compiler, sanitizers: tuple[str, ...], environment: Mapping[str, str]
) -> dict[str, str]:
    """Variables for a program that loads such a build: the runtime has to be there before the program's own malloc.

    libstdc++ too, since the runtime looks for it when it starts. Raises EnvironmentLacksError without a runtime.
    """
    asan = tuple(name.format(cpu=os.uname().machine) for name in _RUNTIMES[compiler.family])
    wanted = [asan, ("libstdc++.so.6",)] if "address" in sanitizers else [("libstdc++.so.6",)]
    found = [_find(compiler, names, environment) for names in wanted]
    return {
        "LD_PRELOAD": " ".join(found),
        # Python and torch leave memory to the end of the process.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _find(compiler: Compiler, names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    for name in names:
        path = Path(run((compiler.command[-1], f"-print-file-name={name}"), env=environment).output.strip())
        if path.is_file():  # the name alone is the answer where there is none
            return str(path.resolve())
    package = _PACKAGES[compiler.family].format(major=compiler.version.parts[0])
    raise EnvironmentLacksError(
        Problem(f"{compiler} has no {' or '.join(names)}: the sanitizers' runtime", hint=f"apt-get install {package}")
    )
