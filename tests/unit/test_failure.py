"""Whose fault it is that a command failed."""

from __future__ import annotations

import pytest

from hubkernels.build.failure import Failure, explain_failures
from hubkernels.errors import EnvironmentLacksError, InputError

KILLED = "hint: the compiler was killed, most likely for want of memory: run again with --jobs 1"
EXHAUSTED = "hint: there was not enough memory: run again with --jobs 1"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", KILLED),
        ("clang++: error: unable to execute command: Killed", KILLED),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", KILLED),
        ("Killed", KILLED),
        ("/bin/sh: line 1: 12345 Killed                  g++ -c x.cpp", KILLED),
        ("virtual memory exhausted: Cannot allocate memory", EXHAUSTED),
        ("cc1plus: out of memory allocating 65536 bytes after a total of 43360256 bytes", EXHAUSTED),
        ("LLVM ERROR: out of memory", EXHAUSTED),
        ("terminate called after throwing an instance of 'std::bad_alloc'", EXHAUSTED),
        ("ptxas fatal   : Memory allocation failure", EXHAUSTED),
    ],
)
def test_want_of_memory_is_no_fault_of_the_source(said: str, hint: str) -> None:
    error = explain_failures([Failure("compile", "a.cu", "torch-cpu", said)])
    assert isinstance(error, EnvironmentLacksError)
    assert f"{said}\na.cu does not compile for torch-cpu\n  {hint}" in str(error)


@pytest.mark.parametrize("why", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_no_fault_of_the_source(why: str) -> None:
    error = explain_failures([Failure("compile", "a.cpp", "torch-cpu", f"fatal error: error writing to a.o: {why}")])
    assert isinstance(error, EnvironmentLacksError)
    assert "hint: the disk is full: free some space and run again" in str(error)


def test_a_source_that_speaks_of_memory_is_at_fault() -> None:
    said = "a.cpp:3:2: error: #error out of memory\n    3 | #error out of memory\n// Killed by a limit"
    error = explain_failures([Failure("compile", "a.cpp", "torch-cpu", said)])
    assert isinstance(error, InputError)
    assert "hint" not in str(error)
