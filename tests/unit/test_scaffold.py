"""What `kernel-builder init` writes beside the sources, and says: nothing that a newcomer cannot do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hubkernels.init.scaffold import parse_start, render
from tests.conftest import Cli


@pytest.mark.parametrize(("name", "told"), [("org/relu", True), ("relu", False)])
def test_the_card_tells_how_to_measure_where_it_can_be_done(name: str, told: bool) -> None:  # noqa: FBT001
    card = render(parse_start(name, "MIT"))["CARD.md"]
    measure = "pip install 'kernels[benchmark]' && kernels benchmark org/relu@v1"
    assert (measure in card, "measure" in card.lower()) == (told, told)


def test_what_other_builders_leave_beside_the_sources_is_ignored() -> None:
    ignored = render(parse_start("relu", "MIT"))[".gitignore"].splitlines()
    assert {"/build/", "torch-ext/**/_*.abi3.so", "torch-ext/**/_ops.py"} <= set(ignored)


def test_who_has_no_license_text_is_told_to_write_one(cli: Cli, tmp_path: Path) -> None:
    assert (
        cli("init", tmp_path / "relu").out.splitlines()[-1].split(":")[0]
        == "      write the text of Apache-2.0 to LICENSE"
    )
    (tmp_path / "gelu").mkdir()
    (tmp_path / "gelu/LICENSE").touch()
    assert "LICENSE" not in cli("init", tmp_path / "gelu").out


def test_init_says_what_the_tests_need_where_it_is_not_here(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build that it names next worked, then the tests ended with a bare ModuleNotFoundError."""
    for module in ("torch", "kernels"):
        monkeypatch.setitem(sys.modules, module, None)
    ran = cli("init", tmp_path / "my-kernel")
    assert "      the tests need what is not here: pip install torch 'hubkernels[client]'\n" in ran.out
    assert "the tests need" not in cli("init", tmp_path / "other", "--backends", "cuda").out
