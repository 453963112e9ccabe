"""What a sanitized build leaves behind: nothing that another build, or an editor, would take for its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Cli, SmallProject
from tests.sanitizers.conftest import USABLE

pytest.importorskip("torch", reason="builds take the headers of an installed torch")
SANITIZE = ("build", "--sanitize", "address,undefined", "--project")


@pytest.mark.skipif(not USABLE, reason="no compiler here has the runtime of its sanitizers")
def test_a_sanitized_library_is_linked_anew_and_editors_are_not_told(
    tmp_path: Path, cli: Cli, cold_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds what this machine's compiler links to it, which no key tells."""
    monkeypatch.setenv("CXX", USABLE[0])
    small = SmallProject(tmp_path / "small", "my-kernel").write().without_torch()
    first = cli(*SANITIZE, small.root)
    assert first.code == 0, first.err
    assert (len(list(cold_cache.rglob("*.o"))), list(cold_cache.rglob("*.so"))) == (2, [])
    assert not (small.root / "build/compile_commands.json").exists()
    shutil.rmtree(small.root / "build")
    again = cli(*SANITIZE, small.root)
    (step,) = [line for line in again.err.splitlines() if line.startswith("[")]
    assert step.startswith("[1/1] link the library")
