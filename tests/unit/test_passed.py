"""What a release remembers of its gates."""

from __future__ import annotations

from pathlib import Path

from hubkernels.release.passed import Passed


def test_what_passed_is_known_to_the_next_run(tmp_path: Path) -> None:
    Passed(tmp_path / "release.json").note("parity", "one", "key")
    again = Passed(tmp_path / "release.json")
    assert again.why_again("parity", "one", "key") is None
    assert again.why_again("parity", "one", "other") == "artifacts, or what they are tested with, changed since"
    assert again.why_again("parity", "two", "key") == "not done yet"


def test_a_gate_with_nothing_to_look_at_counts_for_this_run_alone(tmp_path: Path) -> None:
    now = Passed(tmp_path / "release.json")
    now.note_now("parity", "one", "key")
    assert now.why_again("parity", "one", "key") is None
    assert now.why_again("parity", "one", "other") == "not done yet"
    assert Passed(tmp_path / "release.json").why_again("parity", "one", "key") == "not done yet"
