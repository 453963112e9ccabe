"""What the client will demand of an artifact: a sound one passes, and each way of spoiling it is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubkernels.check.builds import check_builds
from hubkernels.check.metadata import PYTHON_DEPENDS
from hubkernels.errors import InputError
from hubkernels.model.digest import digest_folder
from tests.conftest import Cli

TAG = "torch-stable-abi210-cpu-x86_64-linux"
OP_ID = "_my_kernel_cpu_abc123"
METADATA: dict[str, Any] = {
    "name": "my-kernel",
    "id": OP_ID,
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "kernel-depends": [],
    "backend": {"type": "cpu"},
}
LAYER = "from torch import nn\nclass Norm(nn.Module):\n"
FILES = {
    "__init__.py": "from . import layers\nfrom ._ops import ops\n",
    "_ops.py": f"from . import {OP_ID}\n",
    "layers.py": LAYER + "    has_backward = True\n\n    def forward(self, x):\n        return x\n",
    f"{OP_ID}.abi3.so": "library",
}


def seal(folder: Path, metadata: dict[str, Any]) -> None:
    sealed = metadata | {"digest": {"algorithm": "sha256", "files": digest_folder(folder)}}
    (folder / "metadata.json").write_text(json.dumps(sealed))


@pytest.fixture
def package(tmp_path: Path) -> Path:
    variant = tmp_path / "my-kernel" / TAG
    variant.mkdir(parents=True)
    for name, text in FILES.items():
        (variant / name).write_text(text)
    seal(variant, METADATA)
    return variant.parent


def found(package: Path) -> list[str]:
    return [f"{violation.place}: {violation.what}" for violation in check_builds(package)]


def test_a_sound_artifact_has_no_violation(package: Path) -> None:
    assert found(package) == []


def changed(**fields: object) -> Callable[[Path], None]:
    """Change fields of the metadata; None removes one."""

    def spoil(variant: Path) -> None:
        named = {key.replace("_", "-"): value for key, value in fields.items()}
        kept = {key: value for key, value in (METADATA | named).items() if value is not None}
        seal(variant, kept)

    return spoil


def written(name: str, text: str) -> Callable[[Path], None]:
    """Write a file and seal the folder again, so that only the file's content is wrong."""

    def spoil(variant: Path) -> None:
        (variant / name).write_text(text)
        seal(variant, METADATA)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "violation"),
    [
        (changed(name=None), "metadata.json: name is missing"),
        (changed(version="1"), "metadata.json: version must be a JSON integer, found '1'"),
        (changed(version=-1), "metadata.json: version must not be negative, found -1"),
        (changed(license=""), "metadata.json: license is empty"),
        (changed(id="_my_kernel_cpu_abc_dirty"), "metadata.json: id '_my_kernel_cpu_abc_dirty' is not of the form"),
        (changed(id="my_kernel"), f"{OP_ID}.abi3.so: is not the library of this id"),
        (changed(python_depends=["numpy"]), "metadata.json: python-depends names 'numpy'"),
        (
            changed(kernel_depends=[{"repo-id": "a/b"}]),
            "metadata.json: kernel-depends entries have repo-id and exactly",
        ),
        (changed(backend={"type": "cuda"}), "metadata.json: backend.type is 'cuda' in a folder named for cpu"),
        (changed(backend={"type": "gpu"}), "metadata.json: backend.type 'gpu' is unknown to the client"),
        (changed(backend={"type": "cpu", "archs": ["b", "a"]}), "metadata.json: backend.archs must be sorted"),
        (changed(upstream="example"), "metadata.json: upstream is not a git URL"),
        (changed(kernels_minver="0.17"), "metadata.json: kernels-minver must have three parts"),
        (changed(provenance={"kernel-builder": {}}), "metadata.json: provenance.kernel-builder.version is missing"),
        (
            changed(provenance={"kernel-builder": {"version": "1", "commit": "abc", "dirty": False}}),
            "metadata.json: provenance.kernel-builder.commit must be a full hash",
        ),
        (written("a.py", "import my_kernel.b\n"), "a.py:1: imports my_kernel by name"),
        (written("a.py", "\nfrom my_kernel import b\n"), "a.py:2: imports my_kernel by name"),
        (written("a.py", "match x:\n    case 1: pass\n"), "a.py:2: does not parse as Python 3.9"),
        (
            written("layers.py", LAYER + "    def __init__(self): ...\n"),
            "layers.py:3: layer Norm has a member __init__",
        ),
        (written("layers.py", LAYER + "    eps = 1e-6\n"), "layers.py:3: layer Norm has a member eps"),
        (written("layers.py", LAYER + "    eps: float = 1e-6\n"), "layers.py:3: layer Norm has a member eps"),
        (written("__init__.py", "from ._ops import ops\n"), "__init__.py: does not import layers"),
        (written("other.so", "x"), "other.so: is not the library of this id"),
        (lambda variant: (variant / "layers.py").write_text("x = 1\n"), "layers.py: differs from its hash"),
        (lambda variant: (variant / "new.py").write_text("x = 1\n"), "new.py: is in the folder, but not in the digest"),
        (lambda variant: (variant / "layers.py").unlink(), "layers.py: is in the digest, but not in the folder"),
        (lambda variant: (variant / "__init__.py").unlink(), "__init__.py: is missing: there is nothing to import"),
        (lambda variant: (variant / "metadata.json").write_text("{"), "metadata.json: is not JSON"),
        (lambda variant: (variant / "metadata.json").write_text("[]"), "metadata.json: is not a JSON object"),
        (
            lambda variant: (variant / "metadata.json").write_text(json.dumps(METADATA)),
            "metadata.json: digest is missing",
        ),
    ],
)
def test_a_spoiled_artifact_is_found(package: Path, spoil: Callable[[Path], object], violation: str) -> None:
    spoil(package / TAG)
    assert any(text.startswith(violation) for text in found(package)), found(package)


def renamed(package: Path, name: str) -> list[str]:
    (package / TAG).rename(package / name)
    return found(package)


@pytest.mark.parametrize(
    ("name", "violation"),
    [
        ("torch-stable-abi210-cpu-x86_64-linux-v2", "is not a variant name"),
        ("torch213-cxx11-cu1210-x86_64-linux", "cu1210 is read as CUDA 121.0"),
        ("torch-cpu", f"{OP_ID}.abi3.so: is a library in a variant without compiled code"),
    ],
)
def test_a_misleading_folder_name_is_found(package: Path, name: str, violation: str) -> None:
    assert any(violation in text for text in renamed(package, name))


def test_a_folder_that_the_client_does_not_see_is_found(package: Path) -> None:
    (package / "torch213-cxx11-cpu-x86_64-linux").mkdir()
    assert found(package) == ["metadata.json: is missing: the client does not see this folder"]


def test_a_tie_that_the_client_breaks_by_chance_is_found(package: Path) -> None:
    shutil.copytree(package / TAG, package / "torch-cpu")
    shutil.copytree(package / TAG, package / "tvm-ffi01-cpu-x86_64-linux")
    assert any("the client picks by chance" in text for text in found(package))


def test_violations_of_all_variants_are_sorted_values(package: Path) -> None:
    shutil.copytree(package / TAG, package / "torch213-cxx11-cpu-x86_64-linux")
    for variant in package.iterdir():
        (variant / "layers.py").unlink()
        (variant / "new.py").write_text("")
    violations = check_builds(package)
    assert len(violations) == 4
    assert list(violations) == sorted(violations)


def test_nothing_built_is_said_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is built in .*\n  hint: run `kernel-builder build`"):
        check_builds(tmp_path)


def test_the_verb_fails_with_every_violation(package: Path, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "build.toml").write_text(
        '[general]\nname = "my-kernel"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n[torch]\n'
    )
    package.rename(tmp_path / "kept")
    (tmp_path / "build").mkdir()
    (tmp_path / "kept").rename(tmp_path / "build/my-kernel")
    assert cli("check", "builds", "--project", tmp_path).out.split() == ["ok", "my-kernel", TAG]
    (tmp_path / "build/my-kernel" / TAG / "layers.py").unlink()
    ran = cli("check", "builds", "--project", tmp_path)
    assert ran.code == 1
    assert f"error: {TAG}: layers.py: is in the digest, but not in the folder" in ran.err


def test_the_table_of_python_packages_is_the_installed_clients() -> None:
    client = pytest.importorskip("kernels", reason="the stock client is not installed")
    theirs = json.loads((Path(client.__file__).parent / "python_depends.json").read_text())
    names = {"": set(theirs["general"])} | {backend: set(table) for backend, table in theirs["backends"].items()}
    assert {backend: set(found) for backend, found in PYTHON_DEPENDS.items()} == {k: v for k, v in names.items() if v}
