"""The stock client's own parser of build.toml agrees with ours, but where ours is stricter for a reason."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli

from hubkernels.config import load_project
from hubkernels.config.explain import edition5_text
from hubkernels.config.migrate import migrate
from hubkernels.errors import InputError
from tests.conftest import REPOSITORY
from tests.golden.update_build import OLD, golden

FIXTURES = os.environ.get("HUBKERNELS_FIXTURES", "")
FILES = sorted((Path(FIXTURES) / "build-toml").glob("*.toml")) if FIXTURES else []
STRICTER_ON_FILES = {
    "examples__relu-invalid-capability": "its devices do not exist; upstream refuses it when it builds"
}
"""Files that the client's parser reads and ours refuses, with the reason."""

HEAD = '[general]\nname = "ab"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'
NOARCH = "[torch-noarch]\n"
KERNEL = '[kernel.x]\nbackend = "cpu"\ndepends = []\nsrc = ["a.cpp"]\n'
STRICTER = {
    "a section for an undeclared backend": (HEAD + "[torch]\n" + KERNEL.replace("cpu", "cuda"), "it would never ship"),
    "noarch with kernel sections": (HEAD + NOARCH + KERNEL, "upstream leaves the sections out without a word"),
    "an unknown Python package": (
        HEAD + 'python-depends = ["numpy"]\n' + NOARCH,
        "upstream refuses it when it builds, the client when it loads",
    ),
    "a repository without an owner": (HEAD + 'hub.repo-id = "ab"\n' + NOARCH, "the Hub has no such name"),
    "a branch that git refuses": (HEAD + 'hub.branch = "a b"\n' + NOARCH, "it cannot be published"),
    "an empty license": (HEAD.replace("MIT", "") + NOARCH, "the Hub refuses the card"),
    "minver above maxver": (HEAD + '[torch]\nminver = "2.13"\nmaxver = "2.9"\n', "nothing can be built"),
    "a capability that does not exist": (
        HEAD.replace("cpu", "cuda") + "[torch]\n" + KERNEL.replace("cpu", "cuda") + 'cuda-capabilities = ["99999.0"]\n',
        "upstream refuses it when it builds",
    ),
    "flags that are the builder's": (HEAD + "[torch]\n" + KERNEL + 'cxx-flags = ["-o", "x"]\n', "the build breaks"),
    "pyext with a dot": (HEAD + '[torch-noarch]\npyext = [".json"]\n', "no file would ship"),
    "a backend named twice": (HEAD.replace('["cpu"]', '["cpu", "cpu"]') + NOARCH, "nothing is to be built twice"),
    "a git host without a name": (HEAD + 'source = "https://10.0.0.1/x"\n' + NOARCH, "the client refuses it elsewhere"),
}
"""Kinds of files that the client's parser reads and ours refuses: an example, and the reason."""

BOTH_REFUSE = {
    "stable-abi with three numbers": HEAD + '[torch]\nstable-abi = "2.10.1"\n',
    "edition 6": HEAD.replace("edition = 5", "edition = 6") + NOARCH,
    "edition 4 that says so": HEAD.replace("edition = 5", "edition = 4") + NOARCH,
    "edition 3": HEAD.replace("edition = 5\n", "").replace("version = 1\n", "") + "[torch]\n",
    "edition 3, noarch": HEAD.replace("edition = 5\n", ""),
    "no framework": HEAD,
    "a wrong name": HEAD.replace('"ab"', '"Ab"') + NOARCH,
    "an unknown key": HEAD + "sauce = 1\n" + NOARCH,
    "an unknown dependency": HEAD + "[torch]\n" + KERNEL.replace("depends = []", 'depends = ["numpy"]'),
    "an address that is none": HEAD + 'source = "ftp://x.y/z"\n' + NOARCH,
    "a section without src": HEAD + "[torch]\n" + KERNEL.replace('src = ["a.cpp"]\n', ""),
    "version and revision": HEAD + 'kernel-depends = [{ repo-id = "a/b", version = 1, revision = "x" }]\n' + NOARCH,
    "a version with letters": HEAD + '[torch]\nminver = "2.x"\n',
    "a CPU section with CUDA keys": HEAD + "[torch]\n" + KERNEL + "cuda-capabilities = []\n",
}


def theirs(folder: Path) -> bool:
    """Whether the client's parser reads the file."""
    parser = pytest.importorskip("kernels._rust", reason="the stock client is not installed")
    try:
        parser.Build.open(str(folder))
    except Exception:  # noqa: BLE001 - it documents no class of its own
        return False
    return True


def ours(folder: Path) -> bool:
    try:
        load_project(folder)
    except InputError:
        return False
    return True


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.toml").write_text(text, encoding="utf-8")
    return folder


fixtures = pytest.mark.skipif(not FILES, reason="HUBKERNELS_FIXTURES names no folder with build-toml/*.toml")


@fixtures
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_the_clients_parser_agrees_on_a_real_file_and_on_what_we_write_of_it(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path / "build.toml")
    assert theirs(tmp_path)
    assert ours(tmp_path) == (file.stem not in STRICTER_ON_FILES)
    if file.stem not in STRICTER_ON_FILES:
        (package,) = load_project(tmp_path).packages
        for name, text in {
            "explained": edition5_text(package, tmp_path),
            "migrated": migrate(tmp_path / "build.toml").text,
        }.items():
            assert theirs(write(tmp_path / name, text))
            assert ours(tmp_path / name)


SPOILED = ("relu-torch-stable-abi", "sonic-moe", "relu-tvm-ffi", "extra-data", "relu-nki", "cv-utils")
VALUES: tuple[Any, ...] = (None, 1, "x", "1.0", [], ["x"], {})


def spoiled(table: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - any TOML
    """The path of every key."""
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from spoiled(value, (*path, key))


@fixtures
@pytest.mark.parametrize("name", SPOILED)
def test_we_read_nothing_that_the_clients_parser_refuses(name: str, tmp_path: Path) -> None:
    """Each key of a real file in turn is removed, or has each kind of value."""
    tomlkit = pytest.importorskip("tomlkit", reason="the stock client, which brings tomlkit, is not installed")
    (file,) = (file for file in FILES if file.stem.endswith(f"__{name}"))
    text = file.read_text(encoding="utf-8")
    read = 0
    for path, value in itertools.product(spoiled(tomli.loads(text)), VALUES):
        table = tomli.loads(text)
        around = functools.reduce(dict.__getitem__, path[:-1], table)
        around.pop(path[-1])
        if value is not None:
            around[path[-1]] = value
        if ours(write(tmp_path, tomlkit.dumps(table))):
            read += 1
            assert theirs(tmp_path), f"{'.'.join(path)} = {value!r}"
    assert read


def test_the_clients_parser_reads_our_own_packages_as_edition_5(tmp_path: Path) -> None:
    project = load_project(REPOSITORY)
    for package in project.packages:
        assert theirs(write(tmp_path / package.name, edition5_text(package, project.root)))


@pytest.mark.parametrize("kind", STRICTER)
def test_where_we_are_stricter_there_is_a_reason(kind: str, tmp_path: Path) -> None:
    text, reason = STRICTER[kind]
    assert reason
    assert theirs(write(tmp_path, text))
    assert not ours(tmp_path)


@pytest.mark.parametrize("kind", BOTH_REFUSE)
def test_what_the_client_refuses_we_refuse(kind: str, tmp_path: Path) -> None:
    assert not theirs(write(tmp_path, BOTH_REFUSE[kind]))
    assert not ours(tmp_path)


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_the_clients_parser_reads_what_update_build_made(old: Path, tmp_path: Path) -> None:
    shutil.copy(golden(old), tmp_path / "build.toml")
    assert theirs(tmp_path)
