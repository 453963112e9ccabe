"""How often it is told how far something is."""

from __future__ import annotations

import pytest

from hubkernels.build.report import Begun
from hubkernels.cli import console
from hubkernels.cli.pace import Pace
from hubkernels.model.going import Going


def test_a_log_is_not_filled_with_how_far_something_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of files told of themselves every second."""
    pace = Pace(3600)
    monkeypatch.setattr(console, "_pace", lambda: pace)
    for number in range(1000):
        console.report(Begun(Going(f"{number} of 1000")))
    console.report(Begun("and then"))
    assert capsys.readouterr().err == "and then\n"
    monkeypatch.setattr(console, "_pace", lambda: Pace(0))
    console.note(Going("7 of 1000"))
    assert capsys.readouterr().err == "7 of 1000\n"
