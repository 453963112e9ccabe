"""Packages built with AddressSanitizer and UndefinedBehaviorSanitizer, and the environment that their programs need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import FileHashes
from hubkernels.toolchain.compiler import find_compiler
from hubkernels.toolchain.sanitizer import SANITIZERS, sanitizer_environment

ALL = bool(os.environ.get("HUBKERNELS_TEST_ALL"))
REQUIRED = bool(os.environ.get("HUBKERNELS_REQUIRE_SANITIZERS"))
"""Whether to fail where no compiler has its sanitizers, as in CI."""
COMPILERS = ("clang++", "g++")
"""clang checks the masked loads of AVX-512 too, in a third of the time."""


@dataclass(frozen=True)
class Sanitized:
    """One compiler with its sanitizers. environment: of programs that load what it built."""

    compiler: str
    environment: Mapping[str, str]

    def build(self, project: Path, **changes: str) -> Path:
        """Build a project as a user does, and return the folder of its packages. changes: of the environment."""
        command = [sys.executable, "-m", "hubkernels.cli", "build", "--project", str(project)]
        environment = {**os.environ, "CXX": self.compiler, **changes}
        done = subprocess.run(
            [*command, "--sanitize", "address,undefined"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"LD_PRELOAD='{self.environment['LD_PRELOAD']}' ASAN_OPTIONS=detect_leaks=0" in done.stderr
        return project / "build/.hubkernels/sanitized"

    def run(self, *command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a Python program that loads sanitized kernels."""
        return subprocess.run(
            [sys.executable, *command],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def sanitized_by(compiler: str) -> Sanitized | None:
    """The compiler with its runtime; None where this machine lacks one of them."""
    if shutil.which(compiler) is None:
        return None
    environment = {**os.environ, "CXX": compiler}
    try:
        found = find_compiler(environment, FileHashes(Path(os.devnull)))
        runtime = sanitizer_environment(found, SANITIZERS, environment)
    except EnvironmentLacksError:
        return None
    return Sanitized(compiler, {**os.environ, **runtime})


USABLE = [name for name in COMPILERS if sanitized_by(name)]


@pytest.fixture(scope="session", params=(COMPILERS if ALL else USABLE[:1] or ["none"]))
def sanitized(request: pytest.FixtureRequest) -> Sanitized:
    found = sanitized_by(request.param)
    if found is None:
        why = f"{request.param}: no compiler with the runtime of its sanitizers: apt-get install libclang-rt-dev"
        if REQUIRED:
            pytest.fail(why)
        pytest.skip(why)
    return found
