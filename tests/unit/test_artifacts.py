"""Which artifacts are there, and what is said of those that are not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hubkernels.build.artifacts import built, choose_built, strays
from hubkernels.config.variant_table import load_variant_table
from hubkernels.errors import InputError
from tests.conftest import Cli, SmallProject
from tests.unit.test_select import STABLE, package

FULL = "torch213-cxx11-cpu-x86_64-linux"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two artifacts, and what is none."""
    folder = tmp_path / "build/my-kernel"
    for name in (STABLE, FULL, ".hidden"):
        (folder / name).mkdir(parents=True)
        (folder / name / "metadata.json").write_text("{}", encoding="utf-8")
    (folder / "empty").mkdir()
    return folder


def test_a_folder_with_metadata_is_an_artifact(folder: Path) -> None:
    assert built(folder) == {STABLE: folder / STABLE, FULL: folder / FULL}
    assert built(folder / "nowhere") == {}


def test_they_are_chosen_in_the_order_in_which_they_were_named(folder: Path) -> None:
    assert list(choose_built(folder)) == [STABLE, FULL]
    assert list(choose_built(folder, [FULL, STABLE, FULL])) == [FULL, STABLE]


def test_those_that_build_toml_makes_no_more_are_strays(folder: Path) -> None:
    assert strays(built(folder), package(), load_variant_table()) == (folder / FULL,)


def test_every_tag_that_is_not_built_is_told(folder: Path) -> None:
    with pytest.raises(InputError) as raised:
        choose_built(folder, [STABLE, STABLE[:-1], "other"])
    near, far = raised.value.problems
    assert near.what == f"{STABLE[:-1]} of my-kernel is not built; built: {STABLE}, {FULL}"
    assert (near.hint, far.hint) == (f"did you mean {STABLE}?", "`kernel-builder list-variants` tells which can be")


@pytest.mark.parametrize(
    "words",
    [("check", "builds"), ("check", "abi"), ("check", "load"), ("export", "--wheel", "my-kernel")],
    ids=["builds", "abi", "load", "wheel"],
)
def test_all_verbs_say_it_alike(small: SmallProject, cli: Cli, words: tuple[str, ...]) -> None:
    folder = small.root / "build/my-kernel"
    nothing = cli(*words, "--project", small.root)
    assert (nothing.code, nothing.err) == (
        2,
        f"error: nothing is built in {folder}\n  hint: run `kernel-builder build` first\n",
    )
    (folder / STABLE).mkdir(parents=True)
    (folder / STABLE / "metadata.json").write_text("{}", encoding="utf-8")
    other = cli(*words, "--project", small.root, "--variant", "other")
    assert other.code == 2
    assert f"error: other of my-kernel is not built; built: {STABLE}\n" in other.err
    assert os.listdir(folder) == [STABLE]  # noqa: PTH208 - names alone
