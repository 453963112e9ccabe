"""Every CPU kernel in every tier under the sanitizers of addresses and of undefined behaviour; what they must see."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hubkernels.check.parity import check_parity
from hubkernels.config import load_project
from hubkernels.host.cpu import cpu_features
from hubkernels.model.isa import ISAS, usable_isas
from hubkernels.model.project import Package
from tests.conftest import KEPT_CACHE, REPOSITORY, SmallProject
from tests.ops.tiers import OPS
from tests.sanitizers.conftest import ALL, USABLE, Sanitized

pytest.importorskip("kernels", reason="kernels are loaded by the stock client")

TIERS = ["scalar", *usable_isas(cpu_features())]
PACKAGES = load_project(REPOSITORY).packages

CASE = """\
import dataclasses, math
from pathlib import Path
from hubkernels.check.cells import load_case

CASE = load_case(Path({file!r}))
CASE = dataclasses.replace(
    CASE,
    shapes={{name: shape for name, shape in CASE.shapes.items() if math.prod(shape) <= {elements}}},
    bench_shapes=(),
    peers=(),
)
"""


@pytest.fixture(scope="session")
def artifacts(sanitized: Sanitized) -> Path:
    """Our own packages, built."""
    return sanitized.build(REPOSITORY, HUBKERNELS_CACHE=KEPT_CACHE)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_cases_of_a_package_run_clean(
    sanitized: Sanitized, artifacts: Path, tmp_path: Path, package: Package, tier: str
) -> None:
    """Sizes beyond the caches take minutes, most of them for the reference: by one compiler."""
    elements = 2**40 if sanitized.compiler == USABLE[0] else 2**22
    files = []
    for number, file in enumerate(package.parity):
        files.append(str(tmp_path / f"case_{number}.py"))
        text = CASE.format(file=str(package.root / file), elements=elements if ALL else 2**18)
        Path(files[-1]).write_text(text, encoding="utf-8")
    (variant,) = (artifacts / package.name).glob("torch-*/")
    environment = {**sanitized.environment, "HUBKERNELS_ISA": tier}
    report = check_parity(replace(package, parity=tuple(files)), variant, environment=environment)
    assert report.passed == len(report.rows) > 0


Guarded = Callable[[str], "subprocess.CompletedProcess[str]"]


def run_guarded(sanitized: Sanitized, module: str, packages: Path, tier: str) -> subprocess.CompletedProcess[str]:
    command = ("-m", f"tests.ops.{module}", packages)
    return sanitized.run(*command, HUBKERNELS_ISA=tier, PYTHONPATH=":".join(filter(None, sys.path)))


@pytest.fixture(scope="session")
def guarded(sanitized: Sanitized, artifacts: Path) -> Guarded:
    """tier -> how every op ran there beside guard pages."""
    return functools.cache(lambda tier: run_guarded(sanitized, "guarded", artifacts, tier))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("op", OPS)
def test_an_op_stays_inside_its_buffers(guarded: Guarded, op: str, tier: str) -> None:
    done = guarded(tier)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert re.search(rf"^{op} {tier}: \d{{3,}} cases$", done.stdout, re.MULTILINE)


def test_the_tests_of_the_ops_run_clean(sanitized: Sanitized, artifacts: Path) -> None:
    """But those that compile a model, whose compiler would be preloaded too."""
    # A sample leaves half types to the cases and to the guard pages, which have every dtype.
    sample = "not compiled and not tier and not 32_bits and not float16 and not dtype1 and not dtype2"
    wanted = "not compiled" if ALL else sample
    command = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(REPOSITORY / "tests/ops"),
        "-k",
        wanted,
        "-m",
        "not slow",
    )
    done = sanitized.run(
        *command, HUBKERNELS_TEST_ARTIFACTS=str(artifacts), PYTHONPATH=":".join(filter(None, sys.path))
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 100


# What never ships


def test_a_sanitized_build_is_no_release(sanitized: Sanitized, small: SmallProject) -> None:
    """It stands where no client looks, names its sanitizers, and does not load without their runtime."""
    packages = sanitized.build(small.root)
    assert not list((small.root / "build").glob("[!.]*/*"))
    (note,) = (packages / "my-kernel").glob("*.build.json")
    assert json.loads(note.read_text())["toolchain"]["sanitizers"] == "address,undefined"
    done = call(sanitized, packages / "my-kernel", 0)
    assert done.stdout == "42\n", done.stderr
    bare = Sanitized(sanitized.compiler, {**sanitized.environment, "LD_PRELOAD": ""})
    assert call(bare, packages / "my-kernel", 0).returncode != 0


# What they must see

WIDER = "AddressSanitizer: (heap-buffer-overflow|unknown-crash)"
"""Of an access wider than what it checks at once g++ tells the place, and not always the kind."""

MISTAKES = {
    "one element beyond": ("for (int64_t i = 0; i <= n; ++i) sum += x[i];", "heap-buffer-overflow"),
    "one element before": ("for (int64_t i = -1; i < n; ++i) sum += x[i];", "heap-buffer-overflow"),
    "one lane of a vector": ("sum = _mm512_reduce_add_ps(_mm512_loadu_ps(x + n - 15));", WIDER),
    "one lane of a mask": (
        "sum = _mm512_reduce_add_ps(_mm512_maskz_loadu_ps(0x00ff, x + n - 7));",
        "heap-buffer-overflow",
    ),
    "a sum that does not fit": ("sum = 2147483647 + static_cast<int>(n);", "signed integer overflow"),
    "a shift too far": ("sum = 1 << n;", "shift exponent 37 is too large"),
}
KERNEL = """\
#include "kernel.h"
#include <cstdlib>
#include <immintrin.h>

int64_t answer() {{
  const int64_t n = std::strlen(std::getenv("ELEMENTS"));
  float* x = static_cast<float*>(std::malloc(n * sizeof(float)));
  for (int64_t i = 0; i < n; ++i) x[i] = 1;
  float sum = 0;
  switch (std::atoi(std::getenv("MISTAKE"))) {{
    {cases}
  }}
  std::free(x);
  return static_cast<int64_t>(sum);
}}
"""
WIDE = "avx512" in TIERS


@pytest.fixture(scope="session")
def mistaken(sanitized: Sanitized, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel that makes the mistake of a number; the first that there is not is none."""
    small = SmallProject(tmp_path_factory.mktemp("mistaken"), "my-kernel").write()
    lines = (line if WIDE or "_mm512" not in line else "" for line, _ in MISTAKES.values())
    cases = "\n".join(f"case {number}: {{ {line} break; }}" for number, line in enumerate(lines))
    text = KERNEL.format(cases=cases).replace("<cstdlib>", "<cstdlib>\n#include <cstring>")
    (small.root / "cpu/kernel.cpp").write_text(text, encoding="utf-8")
    toml = small.root / "build.toml"
    flags = json.dumps(list(ISAS["avx512"].flags) if WIDE else [])
    toml.write_text(toml.read_text() + f"cxx-flags = {flags}\n", encoding="utf-8")
    return sanitized.build(small.root) / "my-kernel"


def call(sanitized: Sanitized, package: Path, mistake: int) -> subprocess.CompletedProcess[str]:
    program = f"import kernels, pathlib; print(kernels.get_local_kernel(pathlib.Path({str(package)!r})).answer())"
    return sanitized.run("-c", program, MISTAKE=str(mistake), ELEMENTS="x" * 37)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_kernel_is_seen(sanitized: Sanitized, mistaken: Path, mistake: str) -> None:
    line, told = MISTAKES[mistake]
    if "_mm512" in line and not WIDE:
        pytest.skip("this machine has no AVX-512")
    if "maskz" in line and sanitized.compiler == "g++":
        pytest.skip("g++ does not check masked loads; the pages of rms_norm_guarded.py do")
    done = call(sanitized, mistaken, list(MISTAKES).index(mistake))
    assert done.returncode != 0
    assert re.search(told, done.stderr)
    assert "kernel.cpp:" in done.stderr, "the report names the line"


def test_without_a_mistake_nothing_is_seen(sanitized: Sanitized, mistaken: Path) -> None:
    done = call(sanitized, mistaken, len(MISTAKES))
    assert (done.returncode, done.stdout) == (0, "0\n")


@pytest.mark.skipif(not ALL, reason="builds the kernels a second time")
@pytest.mark.parametrize("tier", TIERS)
def test_a_tail_of_rms_norm_that_is_one_too_long_is_seen(
    sanitized: Sanitized, tmp_path_factory: pytest.TempPathFactory, tier: str
) -> None:
    root = tmp_path_factory.getbasetemp() / f"mutant-{sanitized.compiler}"
    if not root.exists():
        for folder in ("cpu", "torch-ext", "tests/cases"):
            shutil.copytree(REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "build.toml", root)
        rows = root / "cpu/rms_norm/rows.h"
        right = "const Lanes v = source(Part{c, smaller(kLanes, end - c)});"
        assert right in rows.read_text()
        rows.write_text(rows.read_text().replace(right, right.replace("end - c", "end - c + 1")))
    packages = sanitized.build(root)
    done = run_guarded(sanitized, "rms_norm_guarded", packages / OPS["rms_norm"], tier)
    assert done.returncode != 0
    assert re.search(r"ERROR: AddressSanitizer: (heap-buffer-overflow|SEGV)", done.stderr)
    assert "rows.h:" in done.stderr
