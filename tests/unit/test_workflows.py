"""What the workflows promise: nothing is published that was not built and compared, and then just those files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubkernels.check.checks import CHECKS
from hubkernels.cli.app import app
from hubkernels.cli.tree import verbs

yaml = pytest.importorskip("yaml", reason="it comes with the client")

WORKFLOWS = Path(__file__).parents[2] / ".github/workflows"
NAMES = ("build.yml", "release.yml", "weekly.yml")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return found


def steps(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from job.get("steps", ())


def commands(name: str) -> list[str]:
    return [str(step["run"]) for job in read(name)["jobs"].values() for step in steps(job) if "run" in step]


def given(job: dict[str, Any], action: str) -> list[dict[str, Any]]:
    """What each step with an action is given."""
    return [step["with"] for step in steps(job) if step.get("uses", "").startswith(f"actions/{action}@")]


def test_there_are_no_others() -> None:
    assert sorted(path.name for path in WORKFLOWS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_job_needs_jobs_that_there_are(name: str) -> None:
    jobs = read(name)["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs)


@pytest.mark.parametrize("name", NAMES)
def test_verbs_and_checks_are_those_of_the_command_line(name: str) -> None:
    known = {verb.words[0] for verb in verbs(app) if verb.words}
    for command in commands(name):
        for line in re.findall(r"^kernel-builder (.+)$", command, re.MULTILINE):
            verb, *words = line.split()
            assert verb in known
            if verb == "check":
                assert set(words) <= set(CHECKS)


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_named_by_their_commit(name: str) -> None:
    """A tag can be moved to other code, and publishing has a token; the release that it was is told beside it."""
    text = (WORKFLOWS / name).read_text(encoding="utf-8")
    used = [line.split("uses: ")[1] for line in text.splitlines() if "uses: " in line]
    for each in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/build\.yml", each)


@pytest.mark.parametrize("name", NAMES)
def test_no_job_may_write_to_the_repository(name: str) -> None:
    assert read(name)["permissions"] == {"contents": "read"}
    own = {job: found["permissions"] for job, found in read(name)["jobs"].items() if "permissions" in found}
    signing = {"publish": {"contents": "read", "id-token": "write"}}
    assert own == (signing if name == "release.yml" else {}), "who publishes signs, and nobody else may"


def test_publishing_needs_the_build_and_the_parity_on_a_gpu() -> None:
    jobs = read("release.yml")["jobs"]
    assert jobs["publish"]["needs"] == ["build", "parity"]
    assert jobs["parity"]["needs"] == "build"
    assert "gpu" in jobs["parity"]["runs-on"]
    assert "if" not in jobs["publish"], "an own condition would not ask whether they are green"
    assert [name for name, job in jobs.items() if any("publish" in str(step.get("run")) for step in steps(job))] == [
        "publish"
    ]


def test_what_is_compared_and_published_is_what_was_built() -> None:
    """Neither job builds anything: both take the files of the one that did."""
    jobs = read("release.yml")["jobs"]
    assert [each["name"] for each in given(jobs["parity"], "upload-artifact")] == ["records"]
    built = {"artifact-ids": "${{ needs.build.outputs.artifact }}", "merge-multiple": True, "path": "build"}
    for name, more in {"parity": [], "publish": [{"name": "records", "path": "records"}]}.items():
        assert given(jobs[name], "download-artifact") == [built, *more], "by its id: a name can be taken over"
        assert not any("kernel-builder build" in str(step.get("run")) for step in steps(jobs[name]))
    build = read("build.yml")["jobs"]["build"]
    (sent,) = (step for step in steps(build) if "upload-artifact" in step.get("uses", ""))
    assert build["outputs"]["artifact"] == f"${{{{ steps.{sent['id']}.outputs.artifact-id }}}}"
    assert jobs["publish"]["runs-on"] == build["runs-on"], "another compiler would make other bytes"


def test_the_machine_with_the_gpu_adds_figures_to_what_is_signed_and_nothing_else(tmp_path: Path) -> None:
    """What it sent was laid over build: a library among it was signed and published."""
    sent = ("op/v.records/parity.json", "op/v.records/bench.json")
    evil = ("op/v/op.so", "op/v/parity.json", "op/v.records/op.so", "op/v.records/x/parity.json", "parity.json")
    for name in (*sent, *evil):
        (tmp_path / "records" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "records" / name).write_text("theirs", encoding="utf-8")
    (tmp_path / "records/op/w.records").symlink_to(tmp_path / "records/op/v.records")
    (tmp_path / "records/op/x.records").mkdir()
    (tmp_path / "records/op/x.records/parity.json").symlink_to("/etc/hostname")
    for name in ("op/v/op.so", "op/v.records/parity.json"):
        (tmp_path / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / name).write_text("ours", encoding="utf-8")
    (step,) = (each for each in steps(read("release.yml")["jobs"]["publish"]) if each.get("working-directory"))
    subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path / step["working-directory"], check=True)
    build = tmp_path / "build"
    found = {path.relative_to(build).as_posix(): path.read_text() for path in build.rglob("*") if path.is_file()}
    assert found == {"op/v/op.so": "ours"} | dict.fromkeys(sent, "theirs")


def test_the_token_is_known_to_publishing_alone() -> None:
    secret = [
        (name, step["run"])
        for name, job in read("release.yml")["jobs"].items()
        for step in steps(job)
        if "secrets." in str(step)
    ]
    assert [(name, run.split()[:2]) for name, run in secret] == [("publish", ["kernel-builder", "publish"])]
