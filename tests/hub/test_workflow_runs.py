"""The workflows as they are, run on this machine: build, parity, publish to a Hub and a sigstore of our own.

The plain run takes a small project with the release in it, and reuses the environment that the tests run in: `pip`
notes what it is asked and installs nothing. HUBKERNELS_TEST_ALL runs that of this repository, each job in a fresh
environment that pip fills, and the weekly one. What needs a GPU runs on the CPU in both.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.hub.conftest import CI, CPU, REPO, Serve, Served, Verb, commit_all, run
from tests.hub.test_publish import head, tree
from tests.hub.test_release import project as small_project

pytest.importorskip("torch", reason="what is built is loaded")
pytest.importorskip("sigstore", reason="an extra: it is what signs")
pytest.importorskip("yaml", reason="it comes with the client")

from tests.hub.served_sigstore import ServedSigstore, serve_sigstore
from tests.hub.workflow_runner import Job, Runner, StepError, evaluate, expand

pytestmark = [pytest.mark.torch, pytest.mark.slow]
project = small_project

TAG = "refs/tags/v0.1.0"
ALL = pytest.mark.skipif(not os.environ.get("HUBKERNELS_TEST_ALL"), reason="long: HUBKERNELS_TEST_ALL is not set")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServedSigstore]:
    folder = tmp_path / "sigstore"
    folder.mkdir()
    with serve_sigstore(folder) as served:
        served.workflow = f"release.yml@{TAG}"
        yield served


@pytest.fixture
def repository(project: Path) -> Path:
    """A small project with the workflows of this one, at a tag."""
    shutil.copytree(REPOSITORY / ".github", project / ".github")
    commit_all(project)
    assert run("git", "-C", project, "tag", "v0.1.0").returncode == 0
    return project


def runner_of(repository: Path, folder: Path, hub: Served, own: ServedSigstore, *, real: bool = False) -> Runner:
    folder.mkdir()
    variables = {"HF_ENDPOINT": hub.url, "HUBKERNELS_SIGN_CONFIG": str(own.config())}
    return Runner(repository, folder, TAG, variables, own.variables, {"HF_TOKEN": CI}, real=real)


def results(done: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: job["result"] for name, job in done.items()}


def test_a_release_is_built_compared_signed_published_and_read_back(
    serve: Serve, own: ServedSigstore, repository: Path, tmp_path: Path, verb: Verb
) -> None:
    hub = serve()
    runner = runner_of(repository, tmp_path / "run", hub, own)
    done = runner.run("release.yml")
    assert results(done) == {"build": "success", "parity": "success", "publish": "success"}, "\n".join(runner.log)
    assert runner.log == ["build", "parity", "publish"]
    (told,) = (tmp_path / "run/jobs/2-publish/work").glob("published.json")
    published = json.loads(told.read_text())
    published = published[0] if isinstance(published, list) else published
    assert (published["status"], published["commit"]) == ("uploaded", head(hub))
    (back,) = published["read_back"]
    assert (back["variant"], back["passed"]) == (CPU, 2)
    assert {f"build/{CPU}/metadata.json.sigstore", f"records/{CPU}/parity.json"} <= tree(hub)
    ran = verb(hub, "verify-signature", f"{REPO}@{head(hub)}", "--policy", own.policy())
    assert ran.code == 0, ran.err
    assert own.signer in ran.out
    asked = [file.read_text().split() for file in sorted((tmp_path / "run/jobs").glob("*/pip.log"))]
    assert [words[:2] for words in asked] == [["install", "torch==2.13.0"]] * 3


def test_what_differs_on_the_other_machine_is_not_published(
    serve: Serve, own: ServedSigstore, repository: Path, tmp_path: Path
) -> None:
    """Parity fails there alone, and publishing is skipped: not even a token to sign with is asked for."""
    case = repository / "tests/cases/answer.py"
    wrong = 'OFFSET = 42 if os.environ["GITHUB_JOB"] == "parity" else 41'
    case.write_text(case.read_text().replace("OFFSET = 41", wrong), encoding="utf-8")
    commit_all(repository)
    assert run("git", "-C", repository, "tag", "-f", "v0.1.0").returncode == 0
    hub = serve()
    runner = runner_of(repository, tmp_path / "run", hub, own)
    assert results(runner.run("release.yml")) == {"build": "success", "parity": "failure", "publish": "skipped"}
    assert any(each.startswith("kernel-builder check parity") for each in runner.log)
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=CI).status == 404
    assert own.asked == []


@ALL
def test_a_new_torch_is_tried_every_week(serve: Serve, own: ServedSigstore, repository: Path, tmp_path: Path) -> None:
    runner = runner_of(repository, tmp_path / "run", serve(), own)
    assert results(runner.run("weekly.yml")) == {"newest-torch": "success"}, "\n".join(runner.log)
    asked = [file.read_text() for file in sorted((tmp_path / "run/jobs").glob("*/pip.log"))]
    assert asked == ["install --upgrade torch install .[client,test] ", "install --pre torch install .[client,test] "]


@ALL
def test_this_repository_is_released_by_its_own_workflow(own: ServedSigstore, tmp_path: Path) -> None:
    """With pip, torch and all, in three environments."""
    from hubkernels.hub.local.accounts import Accounts, parse_tokens  # noqa: PLC0415 - collected without them, too
    from hubkernels.hub.local.serve import serve as serve_hub  # noqa: PLC0415

    repository = tmp_path / "repository"
    if run("git", "clone", "-q", "--no-hardlinks", REPOSITORY, repository).returncode:
        pytest.skip("this is no checkout of git")
    assert run("git", "-C", repository, "tag", "v0.1.0").returncode == 0
    accounts = Accounts(parse_tokens(f"ci:{CI}=hubkernels:write", "test"), frozenset({"hubkernels"}))
    with serve_hub(tmp_path / "hub", accounts) as running:
        hub = Served(running)
        runner = runner_of(repository, tmp_path / "run", hub, own, real=True)
        done = results(runner.run("release.yml"))
        assert done == {"build": "success", "parity": "success", "publish": "success"}, "\n".join(runner.log)
        (told,) = (tmp_path / "run/jobs").glob("*-publish/*/published.json")
        published = json.loads(told.read_text())
        assert {each["repo_id"].partition("/")[0] for each in published} == {"hubkernels"}
        for each in published:
            assert each["read_back"]
            assert each["commit"] == head(hub, repo=each["repo_id"], token=CI)


CONTEXT = {"vars": {"INDEX": "https://x"}, "steps": {"name": {"outputs": {"artifact": "a"}}}, "failed": False}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("vars.INDEX && format('--index-url {0}', vars.INDEX)", "--index-url https://x"),
        ("vars.NONE && format('--index-url {0}', vars.NONE)", ""),
        ("steps.name.outputs.artifact", "a"),
        ("steps.name.outputs.artifact == 'a' && !failure()", True),
        ("(vars.NONE || 'it''s') != ''", True),
        ("always()", True),
    ],
)
def test_expressions_are_those_of_workflows(expression: str, expected: object) -> None:
    assert evaluate(expression, CONTEXT) == expected
    assert expand(f"<${{{{ {expression} }}}}>", CONTEXT) == f"<{str(expected).replace('True', 'true')}>"


def test_artifacts_are_as_the_actions_leave_them(tmp_path: Path) -> None:
    """Hidden files stay, paths begin at the first wildcard, a name is taken once, and no file may be executed.

    By an id, one is in a folder of its name, or right there where it is merged.
    """
    job = Job(Runner(tmp_path, tmp_path, TAG), "one", tmp_path / "one", {}, {})
    for name in ("build/p/v/x.so", "build/.hubkernels/state", "build/p/v.records/parity.json", "build/p/v/.hidden"):
        (job.workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (job.workspace / name).write_text(name, encoding="utf-8")
        (job.workspace / name).chmod(0o755)
    told = job._upload_artifact({"name": "build", "path": "build"})
    for merged, place in (("true", "merged"), ("false", "apart/build")):
        folder = place.partition("/")[0]
        job._download_artifact({"artifact-ids": told["artifact-id"], "merge-multiple": merged, "path": folder})
        assert (job.workspace / place / "p/v/x.so").is_file()
    job._upload_artifact({"name": "records", "path": "build/*/*.records/"})
    with pytest.raises(StepError, match="already exists"):
        job._upload_artifact({"name": "build", "path": "build"})
    with pytest.raises(StepError, match="no files were found"):
        job._upload_artifact({"name": "more", "path": "more", "if-no-files-found": "error"})
    for name, expected in (
        ("build", {"p/v.records/parity.json", "p/v/x.so"}),
        ("records", {"p/v.records/parity.json"}),
    ):
        job._download_artifact({"name": name, "path": f"got-{name}"})
        got = job.workspace / f"got-{name}"
        files = {file.relative_to(got).as_posix(): file for file in got.rglob("*") if file.is_file()}
        assert set(files) == expected
        assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o644}
