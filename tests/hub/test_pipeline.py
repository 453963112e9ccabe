"""A release as a library: gates of our own, events instead of a command line, and a Hub that is asked ahead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hubkernels.build.pipeline import Builder
from hubkernels.build.settings import Settings
from hubkernels.check.verdict import Outcome, Subject, Verdict
from hubkernels.config import load_project
from hubkernels.errors import CheckFailedError, Problem
from hubkernels.hub.prepare import Wishes, prepare
from hubkernels.hub.records import digest_in, write_parity
from hubkernels.hub.remote import Remote
from hubkernels.model.artifact import records_of
from hubkernels.release.gates import Gate
from hubkernels.release.pipeline import carry_out
from hubkernels.release.plan import plan
from hubkernels.release.release import Release
from hubkernels.release.steps import Step, Stop, Taken, gather
from tests.conftest import write_noarch
from tests.hub.conftest import CI, CPU, CUDA, HUB, Serve


@dataclass
class Asked:
    """Gates that only note who was asked. wrong: those that let nothing through. spoils: one that changes a file."""

    wrong: tuple[str, ...] = ()
    spoils: Mapping[str, Path] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def gate(self, name: str) -> Gate:
        return Gate(name, lambda subject: self._run(name, subject), lambda _: {}, f"check {name} {{}}")

    def _run(self, name: str, subject: Subject) -> Verdict:
        self.names.append(name)
        if name in self.spoils:
            spoil(self.spoils[name])
        if name in self.wrong:
            return Verdict(name, subject.package.name, "failed", Outcome(problems=(Problem("it is bad"),)), 1)
        return Verdict(name, subject.package.name, "ok", Outcome(good=("it is good",)))


def spoil(file: Path) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write("# spoilt\n")


@pytest.fixture(autouse=True)
def asked_ahead(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hub where the package may be published."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", serve().url)
    monkeypatch.setenv("HF_TOKEN", CI)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project of Python files for two backends, not built."""
    return write_noarch(tmp_path / "project", "my-table", top=HUB)


@pytest.fixture
def op(root: Path) -> Path:
    """A file of an artifact."""
    return root / "build/my-table" / CPU / "op.py"


def release(root: Path, asked: Asked, *names: str) -> Release:
    builder = Builder(load_project(root), os.environ, Settings(jobs=1))
    gates = tuple(map(asked.gate, names))
    return Release(builder, builder.project.packages, Wishes(allow_dirty=True), gates, Remote, lambda _: None)


def before_publishing(asked: Release) -> dict[str, str]:
    """The state of each gate, and no step after the last one."""
    found: dict[str, str] = {}
    for event in carry_out(asked):
        assert isinstance(event, Taken)
        found |= {step.step: step.state for step in event.steps}
        if asked.gates[-1].name in found:
            break
    return found


def test_a_gate_that_fails_ends_it_and_names_the_way_to_repeat_it(root: Path) -> None:
    asked = Asked(wrong=("second",))
    ended = gather(carry_out(release(root, asked, "first", "second", "third")))
    assert asked.names == ["first", "second"]
    assert ended.stop == Stop("second", ("my-table",), "check second my-table", (Problem("it is bad"),), 1)
    built = [Step("build", "my-table", "ok", f"{tag}: built") for tag in (CPU, CUDA)]
    failed = Step("second", "my-table", "failed", "1 problem, told below")
    assert ended.steps == (*built, Step("first", "my-table", "ok", "it is good"), failed)
    assert ended.deliveries == ()


def test_what_has_passed_is_not_asked_again(root: Path) -> None:
    gather(carry_out(release(root, Asked(wrong=("second",)), "first", "second")))
    asked = Asked()
    again = release(root, asked, "first", "second")
    assert {step.step: step.state for step in plan(again).steps if step.step in {"first", "second"}} == {
        "first": "done",
        "second": "run",
    }
    assert before_publishing(again) == {"build": "ok", "first": "done", "second": "ok"}
    assert asked.names == ["second"]


def test_what_changes_while_a_gate_runs_has_not_passed_it(root: Path, op: Path) -> None:
    """Nor what was there before: nobody knows which of the two it looked at."""
    before_publishing(release(root, Asked(spoils={"first": op}), "first"))
    asked = Asked()
    before_publishing(release(root, asked, "first"))  # built anew: what was there before
    assert asked.names == ["first"]


def test_what_changes_after_the_last_gate_is_refused(root: Path, op: Path) -> None:
    events = carry_out(release(root, Asked(), "first"))
    for event in events:
        if isinstance(event, Taken) and event.steps[0].step == "first":
            spoil(op)
        last = event
    assert isinstance(last, Stop)
    assert (last.step, last.code) == ("publish", 1)
    assert "my-table was changed while it was released: first has not" in last.problems[0].what


def test_what_changes_after_it_was_offered_is_not_read(root: Path, op: Path) -> None:
    asked = release(root, Asked())
    next(carry_out(asked))
    (subject,) = asked.subjects()
    publication, _ = prepare(asked.builder, subject.package, asked.wishes)
    content = publication.files[f"build/{CPU}/op.py"]
    assert content.bytes == op.read_bytes()
    spoil(op)
    with pytest.raises(CheckFailedError, match=r"op\.py was changed while it was published"):
        assert content.bytes
    op.unlink()
    with pytest.raises(CheckFailedError, match=r"op\.py was changed while it was published"):
        assert content.bytes


def test_a_record_is_of_the_bytes_that_were_compared(root: Path, op: Path) -> None:
    next(carry_out(release(root, Asked())))
    folder, found = op.parent, {"package": "my-table", "variant": CPU, "id": "_my_table", "rows": []}
    before = digest_in(folder)
    spoil(op)
    write_parity(folder, before, found)
    assert not records_of(folder).exists()
    write_parity(folder, digest_in(folder), found)
    assert (records_of(folder) / "parity.json").is_file()
