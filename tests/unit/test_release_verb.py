"""What `release` tells of a run that does not come to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hubkernels.cli.release import _carried_out
from hubkernels.errors import Problem
from hubkernels.release.steps import Event, Step, Stop, Taken


def interrupted(*, published: bool) -> Iterator[Event]:
    yield Taken((Step("build", "op", "ok", "built"),))
    if published:
        order = SimpleNamespace(package=SimpleNamespace(name="op"))
        delivery = cast("Any", SimpleNamespace(order=order, to_json=lambda: {"commit": "c" * 40}))
        yield Taken((Step("publish", "op", "ok", "published"),), delivery=delivery)
    raise KeyboardInterrupt


def test_an_interrupted_release_tells_what_it_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commits of a run that Ctrl-C ended during the read back were nowhere."""
    file = tmp_path / "released.json"
    with pytest.raises(KeyboardInterrupt):
        _carried_out(interrupted(published=True), cast("Any", None), file, "released", json=True)
    written = json.loads(file.read_text())
    assert (written["status"], written["failed"]) == ("interrupted", None)
    assert written["published"] == [{"commit": "c" * 40}]
    assert json.loads(capsys.readouterr().out) == written


def test_warnings_are_in_the_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json they were nowhere: of artifacts that are out of date, of sources that git does not have."""
    events = [Taken((Step("abi", "op", "ok", "fine"),), (Problem("it is old", "op", "build"),))]
    _carried_out(events, cast("Any", None), None, "released", json=True)
    assert json.loads(capsys.readouterr().out)["warnings"] == [Problem("it is old", "op", "build").to_json()]


@pytest.mark.parametrize("ends", [True, False], ids=["stopped", "interrupted"])
def test_a_summary_that_cannot_be_written_hides_no_end(capsys: pytest.CaptureFixture[str], *, ends: bool) -> None:
    """It took the place of what stopped the release, and nothing was printed."""
    stop = Stop("read back", ("op",), "publish op", (Problem("it does not load"),), 1)
    file = Path("/dev/full")
    if ends:
        builder = cast("Any", SimpleNamespace(project=SimpleNamespace(root=Path.cwd())))
        told, _ = _carried_out(iter([stop]), builder, file, "released", json=True)
        assert told.stop == stop
    else:
        with pytest.raises(KeyboardInterrupt):
            _carried_out(interrupted(published=True), cast("Any", None), file, "released", json=True)
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == ("failed" if ends else "interrupted")
    assert "cannot write /dev/full" in captured.err


def test_an_interrupted_release_that_published_nothing_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "released.json"
    with pytest.raises(KeyboardInterrupt):
        _carried_out(interrupted(published=False), cast("Any", None), file, "released", json=False)
    assert not file.exists()
