"""Our own kernels, built twice in different folders: the same bytes, by the compilers that toolchain.lock pins.

Here every source for the device at one architecture, and one package for the host; with HUBKERNELS_TEST_ALL every
variant of every package, at all of its architectures.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import KEPT_CACHE, REPOSITORY, Cli

ALL = bool(os.environ.get("HUBKERNELS_TEST_ALL"))
FOR_THE_DEVICE = ["rms-norm", "ms-deform-attn"]
FOR_THE_HOST = ["activation"]
ONE = re.compile(r"cuda-capabilities = \[[^\]]*\]")

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the lock pins wheels for x86_64"),
    pytest.mark.slow,
]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Our own project, at one architecture where this is a sample; with SDKs that are kept between runs."""
    monkeypatch.setenv("HUBKERNELS_TOOLCHAIN", "locked")
    monkeypatch.setenv("HUBKERNELS_CACHE", KEPT_CACHE)
    for folder in ("cpu", "csrc", "torch-ext", "tests/cases"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "toolchain.lock", tmp_path)
    text = (REPOSITORY / "build.toml").read_text()
    (tmp_path / "build.toml").write_text(text if ALL else ONE.sub('cuda-capabilities = ["9.0"]', text))
    return tmp_path


def check(copied: Path, cli: Cli, words: list[str]) -> list[str]:
    """The variants that came out the same twice."""
    built = cli("build", "--project", copied, *words)
    assert built.code == 0, built.err
    ran = cli("check", "reproducible", "--project", copied, *words)
    assert ran.code == 0, ran.err
    return re.findall(r"(torch-\S+): the same bytes twice", ran.out)


def for_cuda(package: str, release: str) -> list[str]:
    return [package, "--variant", f"torch-stable-abi210-{release}-x86_64-linux"]


@pytest.mark.skipif(ALL, reason="all variants of all packages are looked at")
@pytest.mark.parametrize("release", ["cu130", "cu132"])
@pytest.mark.parametrize("package", FOR_THE_DEVICE)
def test_sources_for_the_device_are_the_same_bytes_twice(copied: Path, cli: Cli, package: str, release: str) -> None:
    assert len(check(copied, cli, for_cuda(package, release))) == 1


@pytest.mark.skipif(ALL, reason="all variants of all packages are looked at")
@pytest.mark.parametrize("package", FOR_THE_HOST)
def test_a_package_for_the_host_is_the_same_bytes_twice(copied: Path, cli: Cli, package: str) -> None:
    assert len(check(copied, cli, [package])) == 1


@pytest.mark.skipif(not ALL, reason="a sample is looked at")
def test_every_variant_of_every_package_is_the_same_bytes_twice(copied: Path, cli: Cli) -> None:
    packages = len(list((REPOSITORY / "torch-ext").glob("*/binding.cpp")))
    assert len(check(copied, cli, [])) >= packages + 2 * len(FOR_THE_DEVICE)


def test_the_device_s_sources_are_all_looked_at() -> None:
    folders = {path.parent.name.replace("_", "-") for path in (REPOSITORY / "csrc").rglob("*.cu")}
    assert folders == set(FOR_THE_DEVICE)
