"""Kinds of real projects, each shown by a small one: what they rely on in upstream's builder holds in ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import Cli, SmallProject

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="builds take the headers of an installed torch")

TIER_SECTION = """
[kernel.a_tier]
backend = "cpu"
depends = ["torch"]
include = ["include"]
cxx-flags = ["-mavx512f", "-mavx512vl"]
src = ["cpu/tier.cpp"]

[kernel.cpu]
"""
TIER_H = """
inline __attribute__((noinline)) int64_t width() {
#if defined(__AVX512F__)
  return 512;
#elif defined(__AVX2__)
  return 256;
#else
  return 0;
#endif
}
"""
OPENMP_CPP = """\
#include "kernel.h"

#include <omp.h>

int64_t answer() {
  int64_t sum = 0;
#pragma omp parallel for num_threads(2) reduction(+ : sum)
  for (int64_t i = 0; i < 100; ++i) sum += omp_get_num_threads() == 2 ? i : 0;
  return sum;
}
"""


def answer(project: SmallProject) -> int:
    """What the op returns in a fresh process of the stock client."""
    code = f"import kernels, pathlib; print(kernels.get_local_kernel(pathlib.Path({str(project.artifact)!r})).answer())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DISABLE_TELEMETRY": "1"},
    )
    return int(done.stdout)


def rewrite(project: SmallProject, path: str, old: str, new: str) -> None:
    text = (project.root / path).read_text()
    assert old in text
    (project.root / path).write_text(text.replace(old, new))


def needed(library: bytes) -> set[str]:
    """Names of libraries in its string table, which the client's torch has under the same names."""
    return {name.decode() for name in re.findall(rb"\0(lib[\w+.-]+\.so[.\d]*)(?=\0)", library)}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the flags are those of x86_64; this machine is another")
def test_baseline_code_runs_its_own_copy_of_what_an_avx512_section_shares(small: SmallProject, cli: Cli) -> None:
    """A tier named first in build.toml was linked first, and gave baseline code its copies of inline functions.

    So is megablocks: c10::fromIntArrayRefSlow of its fallback was AVX-512 code.
    """
    rewrite(small, "build.toml", "\n[kernel.cpu]\n", TIER_SECTION)
    (small.root / "include/kernel.h").write_text((small.root / "include/kernel.h").read_text() + TIER_H)
    (small.root / "cpu/tier.cpp").write_text('#include "kernel.h"\nint64_t tier() { return width(); }\n')
    (small.root / "cpu/kernel.cpp").write_text('#include "kernel.h"\nint64_t answer() { return width(); }\n')
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    assert answer(small) == 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the flags are those of x86_64; this machine is another")
def test_an_avx2_section_runs_its_own_copy_of_what_an_avx512_section_shares(small: SmallProject, cli: Cli) -> None:
    rewrite(small, "build.toml", "\n[kernel.cpu]\n", TIER_SECTION)
    rewrite(small, "build.toml", 'src = ["cpu/kernel.cpp"', 'cxx-flags = ["-mavx2"]\nsrc = ["cpu/kernel.cpp"')
    (small.root / "include/kernel.h").write_text((small.root / "include/kernel.h").read_text() + TIER_H)
    (small.root / "cpu/tier.cpp").write_text('#include "kernel.h"\nint64_t tier() { return width(); }\n')
    (small.root / "cpu/kernel.cpp").write_text('#include "kernel.h"\nint64_t answer() { return width(); }\n')
    assert cli("build", "--project", small.root).code == 0
    assert answer(small) == 256


def test_a_section_with_openmp_runs_on_the_openmp_of_torch(small: SmallProject, cli: Cli) -> None:
    """The flag is given to the compiler alone, as upstream does: a second OpenMP beside torch's must not be loaded."""
    rewrite(small, "build.toml", 'src = ["cpu/kernel.cpp"', 'cxx-flags = ["-fopenmp"]\nsrc = ["cpu/kernel.cpp"')
    (small.root / "cpu/kernel.cpp").write_text(OPENMP_CPP)
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    (library,) = small.artifact.glob("*.so")
    assert not {name for name in needed(library.read_bytes()) if "omp" in name}
    assert answer(small) == sum(range(100))


def test_a_flag_for_another_compiler_is_left_out(small: SmallProject, cli: Cli) -> None:
    """A project that also builds on Windows writes CMake's generator expressions."""
    flags = '["$<$<CXX_COMPILER_ID:MSVC>:/arch:AVX2>", "$<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-DBASE=7>"]'
    rewrite(small, "build.toml", 'src = ["cpu/kernel.cpp"', f'cxx-flags = {flags}\nsrc = ["cpu/kernel.cpp"')
    (small.root / "cpu/kernel.cpp").write_text('#include "kernel.h"\nint64_t answer() { return BASE; }\n')
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    shown = json.loads(cli("explain", "--json", "--project", small.root).out)
    assert "/arch:AVX2" not in json.dumps(shown)
    assert answer(small) == 7


def test_a_source_elsewhere_finds_the_macros_where_upstream_writes_them(small: SmallProject, cli: Cli) -> None:
    rewrite(small, "cpu/kernel.cpp", "inline int64_t&", '#include "../torch-ext/registration.h"\ninline int64_t&')
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    assert not (small.root / "torch-ext/registration.h").exists()
