"""Several builds of the project's own kernel in one process: the stock client keeps them apart, and each is right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hubkernels.cli import main
from tests.conftest import CPU_VARIANT, environment

pytest.importorskip("kernels", reason="the stock client is not installed")
pytest.importorskip("torch", reason="builds take the headers of an installed torch")

CHANGES = {
    "as it is": (),
    "Python": (("torch-ext/rms_norm/rms_norm/layers.py", "\n__all__ = [", '\nWHOSE = "Python"\n__all__ = ['),),
    "C++": (("cpu/rms_norm/dispatch.cpp", "return tier().isa;", 'return "C++";'),),
    "version 2": (("build.toml", "version = 1", "version = 2"),),
}
"""Builds of rms-norm that differ in one place: file, text, other text."""

PROBE = """\
import json, sys
from pathlib import Path
import kernels, torch

def reference(x, weight, grad):
    x, weight = (t.detach().double().requires_grad_() for t in (x, weight))
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
    return y, *torch.autograd.grad(y, (x, weight), grad.double())

def run(kernel, x, weight, grad):
    x, weight = (t.detach().requires_grad_() for t in (x, weight))
    y = kernel.rms_norm(x, weight, 1e-6)
    return y, *torch.autograd.grad(y, (x, weight), grad)

loaded = [kernels.get_local_kernel(Path(folder)) for folder in sys.argv[1:]]
generator = torch.Generator().manual_seed(0)
x, grad = (torch.randn(5, 67, generator=generator) for _ in range(2))
weight = torch.randn(67, generator=generator)
expected = reference(x, weight, grad)
found = []
for kernel in loaded + loaded[::-1]:
    for actual, wanted in zip(run(kernel, x, weight, grad), expected, strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=1e-5, atol=1e-5)
    found.append([kernel.__name__, getattr(kernel.layers, "WHOSE", ""), kernel.cpu_isa()])
print(json.dumps(found))
"""


def build(source: Path, root: Path, change: str) -> Path:
    """Build a copy of a built project with one change; objects that it does not touch are not compiled again."""
    shutil.copytree(source, root, symlinks=True)
    for file, text, other in CHANGES[change]:
        before = (root / file).read_text(encoding="utf-8")
        assert before.count(text) == 1, f"{file} no longer has {text!r}"
        (root / file).write_text(before.replace(text, other), encoding="utf-8")
    assert main(["build", "rms-norm", "--project", str(root), "--variant", CPU_VARIANT]) == 0
    return root / "build/rms-norm"


def test_builds_and_versions_of_our_kernel_in_one_process_keep_their_own_code_and_are_right(
    rms_norm_folder: Path, tmp_path: Path
) -> None:
    source = rms_norm_folder.parents[2]
    folders = [build(source, tmp_path / str(number), change) for number, change in enumerate(CHANGES)]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(HF_HUB_OFFLINE="1", DISABLE_TELEMETRY="1"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == [*found[:4], *found[3::-1]]
    ids, whose, isas = zip(*found[:4], strict=True)
    assert len(set(ids)) == 4
    assert whose == ("", "Python", "", "")
    assert [isa == "C++" for isa in isas] == [False, False, True, False]
