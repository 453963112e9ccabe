"""The project's own kernel, built once for every test of this folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hubkernels.cli import main
from tests.conftest import CPU_VARIANT, KEPT_CACHE, REPOSITORY

SMALL_CASE = '''\
"""The real case of the op at shapes that take no time."""

import dataclasses
from pathlib import Path

from hubkernels.check.cells import load_case

CASE = dataclasses.replace(
    load_case(Path(__file__).with_name("rms_norm.py")),
    shapes={"tiny": (3, 7), "one vector and one element": (5, 17)},
    bench_shapes=("tiny",),
    dtypes=("float32", "bfloat16"),
    peers=(),
)
'''


def rms_norm_alone() -> str:
    """The project's build.toml with one package, and the small case."""
    text = (REPOSITORY / "build.toml").read_text(encoding="utf-8")
    before, _, rest = text.partition("[package.rms-norm]\n")
    own = rest.partition("\n[package.activation]")[0]
    small = 'parity = ["tests/cases/small.py"]'
    return f"{before}[package.rms-norm]\n{re.sub(r'parity = .*?]', small, own, count=1, flags=re.DOTALL)}"


@pytest.fixture(scope="session")
def rms_norm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of rms-norm, in a project of its own whose case has small shapes."""
    root = tmp_path_factory.mktemp("rms-norm")
    for folder in ("cpu", "torch-ext", "tests/cases"):
        shutil.copytree(REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests/cases/small.py").write_text(SMALL_CASE, encoding="utf-8")
    (root / "build.toml").write_text(rms_norm_alone(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUBKERNELS_CACHE", KEPT_CACHE)
        assert main(["build", "rms-norm", "--project", str(root), "--variant", CPU_VARIANT]) == 0
    (found,) = (root / "build/rms-norm").glob("torch-*/")
    return found
