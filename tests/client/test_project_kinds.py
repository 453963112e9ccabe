"""Kinds of real projects, each shown by a small one: what they rely on in upstream's builder holds in ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


PROBE = """\
import json, pathlib, sys
import kernels
kernel = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))
answer = kernel.answer()
maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
print(json.dumps([answer, sorted({line.split(None, 5)[5] for line in maps if "omp" in line.rpartition("/")[2]})]))
"""


def probe(project: SmallProject) -> tuple[int, list[Path]]:
    """What the op returns in a fresh process of the stock client, and the OpenMP libraries that it then has."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(project.artifact)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DISABLE_TELEMETRY": "1"},
    )
    returned, libraries = json.loads(done.stdout)
    return returned, [Path(name) for name in libraries]


def answer(project: SmallProject) -> int:
    return probe(project)[0]


def rewrite(project: SmallProject, path: str, old: str, new: str) -> None:
    text = (project.root / path).read_text()
    assert old in text
    (project.root / path).write_text(text.replace(old, new))


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
    """Seven of the eight community packages say -fopenmp; a second OpenMP would be a second pool of threads."""
    rewrite(small, "build.toml", 'src = ["cpu/kernel.cpp"', 'cxx-flags = ["-fopenmp"]\nsrc = ["cpu/kernel.cpp"')
    (small.root / "cpu/kernel.cpp").write_text(OPENMP_CPP)
    ran = cli("build", "--project", small.root)
    assert ran.code == 0, ran.err
    returned, libraries = probe(small)
    assert returned == sum(range(100))
    assert [library.parent.parent.name for library in libraries] == ["torch"]


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
