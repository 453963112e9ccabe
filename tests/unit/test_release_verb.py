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
from hubkernels.release.steps import Event, Step, Taken


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


def test_an_interrupted_release_that_published_nothing_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "released.json"
    with pytest.raises(KeyboardInterrupt):
        _carried_out(interrupted(published=False), cast("Any", None), file, "released", json=False)
    assert not file.exists()
