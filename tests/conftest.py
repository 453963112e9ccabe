"""What every test may use: small projects written to a folder, and the command line called in this process."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hubkernels.cli import main

REPOSITORY = Path(__file__).parent.parent
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""For every torch of a test. Threads that spin while they wait for one another take the cores from the other worker:
on two busy cores a script of ms_deform_attn took 20 s of them, and with this 5 s."""

CPU_VARIANT = f"torch-stable-abi210-cpu-{os.uname().machine}-linux"
"""Of our own packages, which have others where nvcc is."""

KEPT_CACHE = os.environ.get("HUBKERNELS_CACHE", "")
"""The cache outside of the tests. Our own kernels take minutes to compile, and tests of what they do, not of how they
are built, take them from there when no source of theirs has changed."""


def kept_name(*made_of: str) -> str:
    """The name of a cache's entry for what a test makes of this."""
    return f"{hashlib.sha256(repr(made_of).encode()).hexdigest()[:32]}.test"


BUILD_TOML = """\
[general]
name = "{name}"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
include = ["include"]
src = ["cpu/kernel.cpp", "include/kernel.h"]
"""

BINDING = """\
#include <torch/csrc/stable/library.h>

#include "registration.h"

#include "../include/kernel.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) { m.def("answer() -> int"); }

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
  m.impl("answer", TORCH_BOX(&answer));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""

KERNEL_H = "#pragma once\n#include <cstdint>\nint64_t answer();\n"

KERNEL_CPP = """\
#include "kernel.h"

inline int64_t& calls() {{
  static int64_t count = 0;
  return count;
}}

int64_t answer() {{ return {answer} + calls()++; }}
"""

INIT_PY = """\
from . import layers
from ._ops import ops


def answer() -> int:
    return int(ops.answer())


__all__ = ["answer", "layers"]
"""

LAYERS_PY = "WHOSE = {answer}\n"


@dataclass(frozen=True)
class SmallProject:
    """A stable-ABI project of two sources whose op returns a number and counts its calls."""

    root: Path
    name: str

    @property
    def python_name(self) -> str:
        return self.name.replace("-", "_")

    def write(self, answer: int = 42, version: int = 1) -> SmallProject:
        for path, text in {
            "build.toml": BUILD_TOML.format(name=self.name, version=version),
            "torch-ext/binding.cpp": BINDING,
            "include/kernel.h": KERNEL_H,
            "cpu/kernel.cpp": KERNEL_CPP.format(answer=answer),
            f"torch-ext/{self.python_name}/__init__.py": INIT_PY,
            f"torch-ext/{self.python_name}/layers.py": LAYERS_PY.format(answer=answer),
        }.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text, encoding="utf-8")
        return self

    def without_torch(self) -> SmallProject:
        """The same without a header of torch: it compiles in a tenth of the time, and cannot be loaded."""
        text = '#include "../include/kernel.h"\nint64_t TORCH_EXTENSION_NAME() { return answer(); }\n'
        (self.root / "torch-ext/binding.cpp").write_text(text, encoding="utf-8")
        return self

    @property
    def artifact(self) -> Path:
        (found,) = (self.root / "build" / self.name).glob("torch*-*/metadata.json")
        return found.parent

    @property
    def op_id(self) -> str:
        (library,) = self.artifact.glob("*.abi3.so")
        return library.name.removesuffix(".abi3.so")


NOARCH_INIT_PY = """\
from pathlib import Path

from ._ops import ops
from .op import _answer

DATA = (Path(__file__).parent / "data/table.bin").read_bytes()


def answer(x):
    return ops.answer(x)


__all__ = ["DATA", "answer"]
"""

NOARCH_OP_PY = """\
import torch

from ._ops import add_op_namespace_prefix


@torch.library.custom_op(add_op_namespace_prefix("answer"), mutates_args=())
def _answer(x: torch.Tensor) -> torch.Tensor:
    return x + 41
"""


def write_noarch(
    root: Path, name: str, backends: Sequence[str] = ("cpu", "cuda"), more: str = "", top: str = ""
) -> Path:
    """A project of Python files and a table of bytes. more: keys of [torch-noarch]. top: further tables."""
    python = root / "torch-ext" / name.replace("-", "_")
    (python / "data").mkdir(parents=True)
    text = f"""\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = {json.dumps(list(backends))}

[torch-noarch]
pyext = ["bin"]
{more}
{top}"""
    (root / "build.toml").write_text(text, encoding="utf-8")
    (python / "__init__.py").write_text(NOARCH_INIT_PY, encoding="utf-8")
    (python / "op.py").write_text(NOARCH_OP_PY, encoding="utf-8")
    (python / "data/table.bin").write_bytes(bytes(range(256)))
    (python / "data/notes.md").write_text("not shipped\n", encoding="utf-8")
    return root


@dataclass(frozen=True)
class Ran:
    """What one command line left: its exit code and all that it printed."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests share a cache of their own, and build with what is installed: tests/sdk has those of the index."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUBKERNELS_TOOLCHAIN", "system")
        patch.setenv("HUBKERNELS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def no_nvcc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with and without compilers of device code are alike: marked tests alone see them."""
    if request.node.get_closest_marker("nvcc") is None:
        monkeypatch.setattr("hubkernels.build.planner.find_nvcc", lambda _: None)
        monkeypatch.setattr("hubkernels.build.planner.find_clang", lambda *_: "no test has a clang for CUDA")


@pytest.fixture
def cold_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for one test. Tells where its entries are."""
    folder = tmp_path_factory.mktemp("cold")
    monkeypatch.setenv("HUBKERNELS_CACHE", str(folder))
    return folder / "objects"


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run one command line in this process."""

    def run(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def small(tmp_path: Path) -> SmallProject:
    return SmallProject(tmp_path, "my-kernel").write()


Mount = Callable[[Path, str], None]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mount a file system of its own on a folder, with options."""
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this needs the right to mount a file system: {done.stderr.strip()}")
        mounted.append(folder)

    yield mount
    for folder in reversed(mounted):
        subprocess.run(["umount", str(folder)], check=True)


def environment(**changes: str) -> dict[str, str]:
    """The environment of this process with changes."""
    return {**os.environ, **changes}


COSTS = {
    "toolchain": ("compiler",),
    "client": ("compiler", "torch"),
    "ops": ("compiler", "torch"),
    "gpu": ("torch",),
    "hub": ("server",),
    "sdk": ("index",),
    "sanitizers": ("compiler", "torch", "slow"),
}
"""Markers of whole folders; unit and golden cost nothing."""


def pytest_configure() -> None:
    """Interrupts end what a test starts, in each worker, too.

    A shell without job control starts what it sends to the background with SIGINT ignored, and every process below
    inherits that: who sends one and waits would wait for ever.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(REPOSITORY / "tests").parts[0]
        for cost in COSTS.get(folder, ()):
            item.add_marker(cost)
