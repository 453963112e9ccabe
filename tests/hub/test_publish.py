"""`kernel-builder publish`, in a fresh process, to a Hub of our own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hubkernels.cli.options import open_target
from hubkernels.errors import InputError
from hubkernels.hub.offer import read_offer
from hubkernels.hub.prepare import Wishes, prepare
from hubkernels.hub.refusals import local_reasons, unfit
from tests.conftest import Cli, Ran, environment
from tests.hub.conftest import (
    CI,
    CPU,
    CUDA,
    OTHER,
    OWNER,
    READER,
    REPO,
    Serve,
    Served,
    Verb,
    commit_all,
    run,
)

pytest.importorskip("torch", reason="what is published is loaded back")
pytestmark = pytest.mark.torch


Publish = Callable[..., Ran]


@pytest.fixture
def publish(verb: Verb) -> Publish:
    def call(hub: Served, project: Path, *words: str, back: bool = False, name: str = "publish", **changes: str) -> Ran:
        options = (*words, *(() if back else ("--no-read-back",)))
        return verb(hub, name, "--project", project, *options, **changes)

    return call


def tree(hub: Served, revision: str = "v1", repo: str = REPO) -> set[str]:
    return set(hub.api().list_repo_files(repo, repo_type="kernel", revision=revision))


def head(hub: Served, branch: str = "v1", repo: str = REPO, token: str | None = OWNER) -> str:
    refs = hub.api(token).list_repo_refs(repo, repo_type="kernel")
    return next(each.target_commit for each in refs.branches if each.name == branch)


def commits(hub: Served, branch: str = "v1") -> list[str]:
    return [each.commit_id for each in hub.api().list_repo_commits(REPO, repo_type="kernel", revision=branch)]


def change(project: Path, cli: Cli, name: str = "op.py", text: str = "\n# changed\n") -> None:
    """Another content of one file, committed and built."""
    with (project / "torch-ext/my_table" / name).open("a", encoding="utf-8") as file:
        file.write(text)
    commit_all(project)
    assert cli("build", "--project", project).code == 0


def done(ran: Ran) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    (result,) = json.loads(ran.out)
    found: dict[str, Any] = result
    return found


@pytest.mark.parametrize(("lfs", "xet"), [("never", "0"), ("never", "1"), ("always", "0"), ("always", "1")])
def test_what_is_built_becomes_one_commit_and_then_none(
    serve: Serve, project: Path, publish: Publish, lfs: str, xet: str
) -> None:
    """With Xet on and off, through plain and LFS servers."""
    hub = serve(lfs=lfs)
    first = done(publish(hub, project, "--json", HF_HUB_DISABLE_XET=xet))
    assert (first["status"], first["branch"], first["commit"]) == ("uploaded", "v1", head(hub))
    assert first["previous"] in commits(hub)
    names = {"__init__.py", "_ops.py", "op.py", "data/table.bin", "metadata.json"}
    assert {path for path in tree(hub) if path.startswith("build/")} == {
        f"build/{tag}/{name}" for tag in (CPU, CUDA) for name in names
    }
    again = done(publish(hub, project, "--json", HF_HUB_DISABLE_XET=xet))
    assert (again["status"], again["commit"], again["previous"]) == ("no_changes", first["commit"], first["commit"])
    assert head(hub) == first["commit"]
    hub.check(f"kernels/{REPO}")


def test_metadata_carry_the_commit_that_was_built(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    commit = run("git", "-C", project, "rev-parse", "HEAD").stdout.strip()
    done(publish(hub, project, "--json"))
    path = hub.api().hf_hub_download(
        REPO, f"build/{CPU}/metadata.json", repo_type="kernel", revision="v1", cache_dir=project.parent / "cache"
    )
    metadata = json.loads(Path(path).read_text())
    assert metadata["provenance"]["kernel"] == {"commit": commit, "dirty": False}
    own = json.loads((project / f"build/my-table/{CPU}/metadata.json").read_text())
    assert own == {key: value for key, value in metadata.items() if key != "provenance"}


def test_the_same_content_at_a_later_commit_is_not_published_again(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    first = done(publish(hub, project, "--json"))
    (project / "README.md").write_text("# more\n", encoding="utf-8")
    commit_all(project)
    shutil.rmtree(project / "build")
    assert cli("build", "--project", project).code == 0
    assert done(publish(hub, project, "--json"))["status"] == "no_changes"
    assert head(hub) == first["commit"]


def test_stale_files_of_its_variants_go_and_other_variants_stay(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    done(publish(hub, project, "--json"))
    (project / "torch-ext/my_table/data/table.bin").rename(project / "torch-ext/my_table/data/other.bin")
    source = project / "torch-ext/my_table/__init__.py"
    source.write_text(source.read_text().replace("table.bin", "other.bin"), encoding="utf-8")
    commit_all(project)
    assert cli("build", "--project", project).code == 0
    ran = done(publish(hub, project, "--json", "--variant", CPU))
    assert ran["deleted"] == [f"build/{CPU}/data/table.bin"]
    assert ran["added"] == [f"build/{CPU}/data/other.bin"]
    assert {f"build/{CPU}/data/other.bin", f"build/{CUDA}/data/table.bin"} <= tree(hub)
    assert len(commits(hub)) == len(set(commits(hub)))


def test_a_new_branch_keeps_nothing_of_main(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().upload_file(path_or_fileobj=b"1", path_in_repo="build/old/x.py", repo_id=REPO, repo_type="kernel")
    done(publish(hub, project, "--json"))
    assert "build/old/x.py" not in tree(hub)
    assert "build/old/x.py" in tree(hub, "main")


def test_bytecode_and_what_lies_beside_artifacts_is_not_sent(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    cache = project / f"build/my-table/{CPU}/__pycache__"
    cache.mkdir()
    (cache / "op.cpython-311.pyc").write_bytes(b"code")
    done(publish(hub, project, "--json"))
    assert not [path for path in tree(hub) if "pyc" in path or path.endswith(".build.json")]


def test_a_dry_run_tells_by_variant_and_changes_nothing(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    ran = publish(hub, project, "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        f"  build/{CPU}: 5 added",
        f"  build/{CUDA}: 5 added",
        f"{REPO} v1: would be published",
    ]
    assert not list(hub.api().list_models(author="org"))
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404
    first = done(publish(hub, project, "--json"))
    change(project, cli)
    ran = publish(hub, project, "--dry-run")
    assert f"  build/{CPU}: 3 changed\n" in ran.out
    assert ran.out.endswith(f"{REPO} v1 at {first['commit']}: would be published\n")
    assert head(hub) == first["commit"]


def test_a_proposal_needs_no_right_to_write_on_the_branch(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    first = done(publish(hub, project, "--json"))
    change(project, cli)
    ran = done(publish(hub, project, "--json", "--create-pr", token=READER))
    assert ran["status"] == "pull_request_created"
    assert ran["pull_requests"][0]["branch"] == "v1"
    assert head(hub) == first["commit"]


def test_each_run_that_proposes_makes_a_pull_request(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    """An earlier one was taken for it. A Hub does not tell for which branch that is, nor whether it was merged."""
    hub = serve()
    done(publish(hub, project, "--json"))
    assert done(publish(hub, project, "--json", "--create-pr", token=READER))["status"] == "no_changes"
    change(project, cli)
    ran = [done(publish(hub, project, "--json", "--create-pr", token=READER)) for _ in range(2)]
    assert [each["status"] for each in ran] == ["pull_request_created"] * 2
    assert [each["pull_requests"][0]["url"].rpartition("/")[2] for each in ran] == ["1", "2"]


def meanwhile(word: str, act: Callable[[], object]) -> Callable[[Any], Any]:
    """A Hub where something happens on this machine, once, while a request to such an address is under way."""
    left = [act]

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def hub(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if word in scope.get("path", "") and left:
                left.pop()()
            await app(scope, receive, send)

        return hub

    return wrap


def write_over(file: Path) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write("# spoilt\n")


def build_anew(file: Path) -> None:
    """As a build does: another folder in its place."""
    gone = file.parent.rename(file.parent.with_name(".gone"))
    shutil.copytree(gone, file.parent)
    write_over(file)


def delete(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("act", [write_over, build_anew, delete])
def test_what_changes_after_it_was_looked_at_is_refused_by_name(
    serve: Serve, project: Path, publish: Publish, act: Callable[[Path], None]
) -> None:
    file = project / f"build/my-table/{CPU}/op.py"
    hub = serve(wrap=meanwhile("/api/repos/create", lambda: act(file)))
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"error: {file} was changed while it was published: this commit was not made\n" in ran.err
    assert "Traceback" not in ran.err
    assert head(hub) == head(hub, "main")


@pytest.mark.parametrize(("lfs", "xet"), [("never", "0"), ("never", "1"), ("always", "1")])
@pytest.mark.parametrize("word", ["/preupload/", "/commit/"])
def test_what_changes_while_it_is_sent_is_not_what_is_sent(  # noqa: PLR0913, PLR0917 - fixtures
    serve: Serve, project: Path, publish: Publish, lfs: str, xet: str, word: str
) -> None:
    file = project / f"build/my-table/{CPU}/op.py"
    before = file.read_bytes()
    hub = serve(lfs=lfs, wrap=meanwhile(word, lambda: write_over(file)))
    done(publish(hub, project, "--json", HF_HUB_DISABLE_XET=xet))
    assert file.read_bytes() != before
    there = hub.api().hf_hub_download(
        REPO, f"build/{CPU}/op.py", repo_type="kernel", revision="v1", cache_dir=project.parent / "cache"
    )
    assert Path(there).read_bytes() == before


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (READER, "the token of reader is one to read with"),
        (OTHER, "the token of other has no role on org"),
        ("hf_unknown", "the Hub refused (401)"),
        ("hf_late", "the Hub refused (401)"),
        ("", "there is no token to write with"),
    ],
)
def test_who_may_not_write_is_told_the_way_out(
    serve: Serve, project: Path, publish: Publish, token: str, why: str
) -> None:
    hub = serve()
    ran = publish(hub, project, token=token)
    assert ran.code == 4
    assert f"error: {why}" in ran.err
    assert "hint: " in ran.err


@pytest.mark.parametrize(
    ("token", "why"), [(READER, "the token of reader is one to read with"), ("", "there is no token to write with")]
)
def test_a_dry_run_warns_who_may_not_write(serve: Serve, project: Path, publish: Publish, token: str, why: str) -> None:
    """It passed without a word, and `release` names it as what tells why publishing would fail."""
    ran = publish(serve(), project, "--dry-run", token=token)
    assert ran.code == 0, ran.err
    assert ran.out.endswith("would be published\n")
    assert f"warning: publishing would fail: {why}\n" in ran.err
    assert "hint: " in ran.err


def test_the_variable_that_keeps_a_token_back_is_named(serve: Serve, project: Path, publish: Publish) -> None:
    """There was one, and the hint was to get one."""
    ran = publish(serve(), project, HF_HUB_DISABLE_IMPLICIT_TOKEN="1")  # noqa: S106 - a switch
    assert ran.code == 4
    assert "there is no token to write with" in ran.err
    assert "hint: HF_HUB_DISABLE_IMPLICIT_TOKEN is set" in ran.err
    assert "hf auth login" not in ran.err


@pytest.mark.parametrize("words", [(), ("--create-pr",)], ids=["write", "propose"])
def test_a_commit_that_is_forbidden_has_the_way_out_of_who_writes(
    serve: Serve, project: Path, publish: Publish, cli: Cli, words: tuple[str, ...]
) -> None:
    """The Hub tells of some tokens at the commit only. A proposal is the way out of what is none."""

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def forbid(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if "/commit/" in scope.get("path", "") and (project / "forbidden").exists():
                await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
                await send({"type": "http.response.body", "body": b""})
            else:
                await app(scope, receive, send)

        return forbid

    hub = serve(wrap=wrap)
    done(publish(hub, project, "--json"))
    change(project, cli)
    (project / "forbidden").touch()
    ran = publish(hub, project, "--allow-dirty", *words)
    assert ran.code == 4
    assert "the Hub refused (403)" in ran.err
    assert "ask an owner of the organization for the right" in ran.err
    assert ("--create-pr proposes the change" in ran.err) == (not words)


def test_a_hub_that_is_not_there_is_an_error_of_the_environment(project: Path, publish: Publish, serve: Serve) -> None:
    hub = serve()
    ran = publish(hub, project, HF_ENDPOINT="http://127.0.0.1:9")
    assert ran.code == 3
    assert "the Hub cannot be reached" in ran.err
    assert "Traceback" not in ran.err


def test_a_dirty_tree_is_refused_but_on_request(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    (project / "torch-ext/my_table/op.py").write_text(
        (project / "torch-ext/my_table/op.py").read_text() + "# new\n", encoding="utf-8"
    )
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"{CPU} is out of date" in ran.err
    assert cli("build", "--project", project).code == 0
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"the checkout had files that are not committed when these were built: {CPU}, {CUDA}" in ran.err
    assert "--allow-dirty" in ran.err
    assert done(publish(hub, project, "--json", "--allow-dirty"))["status"] == "uploaded"
    commit_all(project)
    shutil.rmtree(project / "build")
    assert cli("build", "--project", project).code == 0
    assert done(publish(hub, project, "--json"))["status"] == "uploaded", "now clean: that is another provenance"


@pytest.mark.parametrize(
    ("why", "said", "way_out"),
    [
        ("owner", "dubious ownership in repository", "`git config --global --add safe.directory {project}`"),
        ("index", "index file", "`git -C {project} status` tells the same"),
        ("no git", "cannot start git", "install git"),
        ("no commit", "ambiguous argument 'HEAD'", "it has no commit yet: commit the sources"),
    ],
)
def test_where_git_fails_in_a_checkout_nothing_passes_as_clean(  # noqa: PLR0913, PLR0917 - fixtures and cases
    serve: Serve, project: Path, publish: Publish, why: str, said: str, way_out: str
) -> None:
    """It passed as what is in no checkout: a changed file was published, and the warning told to commit it."""
    source = project / "torch-ext/my_table/op.py"
    source.write_text(f"{source.read_text()}# new\n", encoding="utf-8")
    variables = {
        "owner": {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"},
        "no git": {"PATH": str(project / "nothing")},
    }.get(why, {})
    if why == "index":
        (project / ".git/index").write_text("garbage", encoding="utf-8")
    if why == "no commit":
        shutil.rmtree(project / ".git")
        assert run("git", "init", "-q", project).returncode == 0
    hub = serve()
    assert run(sys.executable, "-m", "hubkernels.cli", "build", "--project", project, **variables).returncode == 0
    ran = publish(hub, project, **variables)
    assert ran.code == 3, ran.err
    assert said in ran.err
    assert f"hint: {way_out.format(project=project)}" in ran.err
    assert "--allow-dirty" in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404, "nothing was made"
    ran = publish(hub, project, "--allow-dirty", "--json", **variables)
    assert done(ran)["status"] == "uploaded"
    assert ran.err.count("warning: ") == 1
    assert said in ran.err


@pytest.mark.parametrize("how", ["a link to what is ignored", "ignored", "excluded", "not shown"])
def test_what_no_commit_has_passes_as_clean_by_no_word_of_git_s(
    serve: Serve, project: Path, publish: Publish, cli: Cli, how: str
) -> None:
    """What ships and is in no commit: a link of a pull request led to a token beside it."""
    folder = project / "torch-ext/my_table"
    if how == "a link to what is ignored":
        (project / "token.py").write_text("TOKEN = 1\n", encoding="utf-8")
        (folder / "more.py").symlink_to("../../token.py")
        (project / ".gitignore").write_text("token.py\nbuild/\n", encoding="utf-8")
    else:
        (folder / "more.py").write_text("MORE = 1\n", encoding="utf-8")
    if how == "ignored":
        (project / ".gitignore").write_text("more.py\nbuild/\n", encoding="utf-8")
    if how == "excluded":
        (project / ".git/info/exclude").write_text("more.py\n", encoding="utf-8")
    if how == "not shown":
        assert run("git", "-C", project, "config", "status.showUntrackedFiles", "no").returncode == 0
    if how in {"a link to what is ignored", "ignored"}:
        commit_all(project)
    hub = serve()
    assert cli("build", project).code == 0
    ran = publish(hub, project)
    assert ran.code == 1, ran.err
    assert "not committed" in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404, "nothing was made"


def test_what_was_built_while_git_failed_is_asked_about_once_it_does_not(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    source = project / "torch-ext/my_table/op.py"
    source.write_text(f"{source.read_text()}# new\n", encoding="utf-8")
    other = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    assert run(sys.executable, "-m", "hubkernels.cli", "build", "--project", project, **other).returncode == 0
    hub = serve()
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"it is not known whether the files are committed that were built: {CPU}, {CUDA}" in ran.err
    assert cli("build", "--project", project).code == 0
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"the checkout had files that are not committed when these were built: {CPU}, {CUDA}" in ran.err
    commit_all(project)
    assert cli("build", "--project", project).code == 0
    assert done(publish(hub, project, "--json"))["status"] == "uploaded"


def test_an_artifact_that_was_changed_is_refused(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    (project / f"build/my-table/{CPU}/op.py").write_text("changed = True\n", encoding="utf-8")
    ran = publish(hub, project, "--allow-dirty")
    assert ran.code == 1
    assert "op.py" in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404, "nothing was made"


def test_a_branch_of_another_version_is_refused(serve: Serve, project: Path, publish: Publish) -> None:
    ran = publish(serve(), project, "--branch", "v2")
    assert ran.code == 1
    assert "the branch v2 is for version 2; the artifacts are version 1" in ran.err


@pytest.mark.parametrize(("branch", "version"), [("v01", 1), ("v1_0", 10), ("v\u0661", 1), ("v-1", -1)])
def test_a_branch_that_clients_take_for_a_version_by_another_name_is_refused(
    project: Path, branch: str, version: int
) -> None:
    """Of v01 the card was said to be left to a newer version, and there was none; the client loads it as version 1."""
    offered = read_offer({CPU: project / f"build/my-table/{CPU}"})
    (problem,) = local_reasons(offered, branch)
    assert f"clients read the branch {branch} as version {version}" in problem.what
    assert not local_reasons(offered, "v1")
    assert not local_reasons(offered, "v1-next")


@pytest.mark.parametrize(
    ("changed", "whats"),
    [
        (
            {"license": "No-Such-1.0", "version": 2},
            (
                f"the variants differ in their version: {CPU} has 1, {CUDA} has 2",
                f"the variants differ in their license: {CPU} has Apache-2.0, {CUDA} has No-Such-1.0",
                "the Hub knows no license No-Such-1.0",
            ),
        ),
        ({"name": "other"}, (f"the variants differ in their name: {CPU} has my-table, {CUDA} has other",)),
        (
            {"kernel-depends": [{"repo-id": "org/base", "version": 1}]},
            ("kernel-depends takes org/base at version 1, which can move",),
        ),
        (
            {"kernel-depends": [{"repo-id": "org/base", "revision": "a" * 39}]},
            (f"kernel-depends takes org/base at {'a' * 39}, which can move",),
        ),
        ({"kernel-depends": [{"repo-id": "org/base", "revision": "a" * 40}], "license": "apache-2.0"}, None),
    ],
    ids=["version and licence", "name", "a version", "short", "pinned"],
)
def test_what_metadata_have_against_them_is_told(
    project: Path, changed: dict[str, Any], whats: tuple[str, ...] | None
) -> None:
    cpu, cuda = read_offer({tag: project / f"build/my-table/{tag}" for tag in (CPU, CUDA)})
    if whats is None:
        assert not local_reasons([replace(cuda, own=json.dumps({**cuda.metadata, **changed}).encode())], None)
        return
    found = local_reasons([cpu, replace(cuda, own=json.dumps({**cuda.metadata, **changed}).encode())], None)
    assert tuple(each.what for each in found) == whats
    assert all(each.hint for each in found)


def test_upload_is_publish_by_another_name(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    ran = done(publish(hub, project, "--json", name="upload"))
    assert (ran["status"], ran["commit"]) == ("uploaded", head(hub))


def test_another_api_beside_a_variant_that_stays_is_refused(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    first = done(publish(hub, project, "--json"))
    source = project / "torch-ext/my_table/__init__.py"
    text = source.read_text().replace('__all__ = ["DATA", "answer"]', '__all__ = ["answer", "more"]\nmore = answer')
    source.write_text(text, encoding="utf-8")
    commit_all(project)
    assert cli("build", "--project", project).code == 0
    ran = publish(hub, project, "--variant", CPU)
    assert ran.code == 1
    assert f"build/{CUDA} stays as it is, and DATA is no longer in __all__" in ran.err
    assert f"build/{CUDA} stays as it is, and more is new in __all__" in ran.err
    assert "raise general.version" in ran.err
    assert head(hub) == first["commit"]
    assert done(publish(hub, project, "--json"))["status"] == "uploaded", "every variant has it now"


def test_all_there_is_against_it_is_told_at_once(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    """What the Hub has against it was told when all else was mended."""
    asked: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def listen(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            asked.append(f"{scope.get('method')} {scope.get('path')}")
            await app(scope, receive, send)

        return listen

    hub = serve(wrap=wrap)
    first = done(publish(hub, project, "--json"))
    source = project / "torch-ext/my_table/__init__.py"
    source.write_text(f"{source.read_text()}\n__all__ += []\n__all__ = ['answer']\n", encoding="utf-8")
    assert cli("build", "--project", project, "--variant", CPU).code == 0
    source.write_text(f"{source.read_text()}# newer\n", encoding="utf-8")
    (project / "CARD.md").write_text("{{ nothing", encoding="utf-8")
    asked.clear()
    ran = publish(hub, project, "--variant", CPU, "--branch", "v1", token=READER)
    assert ran.code == 4
    told = (
        f"the checkout had files that are not committed when these were built: {CPU}",
        "--allow-dirty",
        "the token of reader is one to read with",
        "--create-pr proposes the change",
        f"build/{CUDA} stays as it is, and DATA is no longer in __all__",
        "raise general.version",
        "CARD.md",
    )
    assert [each for each in told if each not in ran.err] == [], ran.err
    assert not [each for each in asked if not each.startswith(("GET", "HEAD"))]
    assert head(hub) == first["commit"]
    ran = publish(hub, project, "--variant", CPU, "--branch", "v2", token=READER)
    assert "the branch v2 is for version 2" in ran.err
    assert "the token of reader is one to read with" in ran.err


def test_what_another_publishes_meanwhile_is_kept(serve: Serve, project: Path, publish: Publish) -> None:
    """Between the look and the commit the branch moves, once: the commit goes onto what is there then."""
    moved: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def between(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if "/commit/v1" in scope.get("path", "") and not moved:
                moved.append(scope["path"])
                api = hub.api()
                import anyio  # noqa: PLC0415 - comes with the server

                await anyio.to_thread.run_sync(
                    lambda: api.upload_file(
                        path_or_fileobj=b"1", path_in_repo="theirs.txt", repo_id=REPO, repo_type="kernel", revision="v1"
                    )
                )
            await app(scope, receive, send)

        return between

    hub = serve(wrap=wrap)
    ran = done(publish(hub, project, "--json"))
    assert moved
    assert ran["status"] == "uploaded"
    assert {"theirs.txt", f"build/{CPU}/op.py"} <= tree(hub)


def test_the_summary_is_written_in_the_form_of_upstream(
    serve: Serve, project: Path, publish: Publish, tmp_path: Path
) -> None:
    hub = serve()
    ran = publish(hub, project, "--output-json", str(tmp_path / "out.json"))
    assert ran.code == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["status"] == "uploaded"
    assert (found["repo_id"], found["branch"], found["commit"]) == (REPO, "v1", head(hub))
    assert found["url"] == f"{hub.url}/kernels/{REPO}"


def test_a_summary_that_cannot_be_written_hides_nothing_that_was_published(
    serve: Serve, project: Path, publish: Publish
) -> None:
    """A full disk was all that was told, and the branch had moved."""
    hub = serve()
    ran = publish(hub, project, "--json", "--output-json", "/dev/full")
    assert ran.code == 3
    (result,) = json.loads(ran.out)
    assert (result["status"], result["commit"]) == ("uploaded", head(hub))
    (problem,) = json.loads(ran.err.splitlines()[-1])["problems"]
    assert problem["what"] == "cannot write /dev/full: No space left on device"
    assert problem["hint"] == f"it is published all the same: {REPO} v1 at {head(hub)}"


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_publisher_that_is_told_to_end_tells_what_it_published(  # noqa: PLR0913, PLR0917 - fixtures and cases
    serve: Serve, project: Path, publish: Publish, cli: Cli, tmp_path: Path, signal: str, code: int
) -> None:
    """SIGTERM, which CI and containers send, ended it without a word."""
    change(project, cli, "__init__.py", f"import os, signal\nos.kill(os.getppid(), signal.{signal})\nsignal.pause()\n")
    hub, file = serve(), tmp_path / "published.json"
    ran = publish(hub, project, "--json", "--output-json", str(file), back=True)
    assert ran.code == code, ran.err
    (result,) = json.loads(ran.out)
    assert (result["status"], result["commit"]) == ("uploaded", head(hub))
    assert json.loads(file.read_text()) == result
    assert "Traceback" not in ran.err


def test_the_summary_goes_into_what_is_no_file_and_through_a_link(
    serve: Serve, project: Path, publish: Publish, tmp_path: Path
) -> None:
    """They were replaced: as root, by `--output-json /dev/full`, a device of the machine."""
    hub, pipe = serve(), tmp_path / "pipe"
    os.mkfifo(pipe)
    handle = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # both ends, so that nobody waits
    assert publish(hub, project, "--output-json", str(pipe)).code == 0
    assert pipe.is_fifo()
    assert json.loads(os.read(handle, 1 << 16))["status"] == "uploaded"
    os.close(handle)
    (tmp_path / "link").symlink_to(tmp_path / "led-to.json")
    assert publish(hub, project, "--output-json", str(tmp_path / "link")).code == 0
    assert json.loads((tmp_path / "led-to.json").read_text())["status"] == "no_changes"
    assert (tmp_path / "link").is_symlink()
    shown = publish(hub, project, "--quiet", "--output-json", "/dev/stdout")
    assert json.loads(shown.out)["status"] == "no_changes"


@pytest.mark.parametrize("name", ["publish", "release"])
@pytest.mark.parametrize(("file", "what"), [("nowhere/x.json", "there is no folder"), ("", "is a folder")])
def test_a_place_for_the_summary_is_looked_at_first(  # noqa: PLR0913, PLR0917 - fixtures and cases
    serve: Serve, project: Path, verb: Verb, tmp_path: Path, name: str, file: str, what: str
) -> None:
    """The folder was made unasked, or the file found not to be one after the commit."""
    hub = serve()
    ran = verb(hub, name, "--project", project, "--output-json", str(tmp_path / file))
    assert (ran.code, what in ran.err) == (2, True), ran.err
    assert not (tmp_path / "nowhere").exists()
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


def test_a_private_repository_is_private(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    done(publish(hub, project, "--json", "--private"))
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OTHER).status == 404
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=READER).status == 200


def test_where_nothing_can_be_loaded_back_it_is_told(serve: Serve, project: Path, publish: Publish) -> None:
    """It ended as where all was loaded, as on a machine without torch."""
    ran = publish(serve(), project, "--variant", CUDA, back=True)
    assert ran.code == 0, ran.err
    assert f"warning: nothing of {REPO} was loaded back\n  - {CUDA}: needs a torch for cuda; " in ran.err
    assert "hint: publish, or `check load`, where its variants can be loaded" in ran.err


def test_benchmarks_go_along_and_stale_ones_go(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    folder = project / "benchmarks"
    folder.mkdir()
    for name in ("benchmark.py", "benchmark_more.py", "helper.py"):
        (folder / name).write_text("x = 1\n", encoding="utf-8")
    commit_all(project)
    done(publish(hub, project, "--json", "--allow-dirty"))
    assert {path for path in tree(hub) if path.startswith("benchmarks/")} == {
        "benchmarks/benchmark.py",
        "benchmarks/benchmark_more.py",
    }
    (folder / "benchmark_more.py").unlink()
    assert done(publish(hub, project, "--json", "--allow-dirty"))["deleted"] == ["benchmarks/benchmark_more.py"]


@pytest.mark.parametrize("make", ["link", "folder", "pipe", "hidden"])
def test_benchmarks_are_files_of_the_project(serve: Serve, project: Path, publish: Publish, make: str) -> None:
    """A link to /proc/self/environ used to be offered with all variables of the job, its token too."""
    hub, file = serve(), project / "benchmarks/benchmark_env.py"
    if make != "folder":
        file.parent.mkdir()
    if make == "link":
        file.symlink_to("/proc/self/environ")
    elif make == "folder":
        (project.parent / "else").mkdir()
        (project.parent / "else/benchmark_env.py").touch()
        file.parent.symlink_to(project.parent / "else")
    elif make == "hidden":
        file.symlink_to("../.git/config")
    else:
        os.mkfifo(file)
    ran = publish(hub, project, "--allow-dirty")
    assert ran.code == (3 if make == "pipe" else 2)
    why = {"pipe": "is no regular file", "hidden": "is a link to what is hidden"}
    assert why.get(make, "benchmarks/benchmark_env.py is a link out of the project") in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


def test_what_was_published_is_loaded_back_at_its_commit(serve: Serve, project: Path, publish: Publish) -> None:
    """Of an organization that nobody vouches for, too, and from a private repository."""
    hub = serve(trust="another-org")
    ran = done(publish(hub, project, "--json", "--private", back=True))
    (loaded,) = ran["read_back"]
    assert (loaded["variant"], loaded["commit"], loaded["passed"], loaded["rows"]) == (CPU, ran["commit"], 0, 0)
    told = publish(hub, project, back=True)
    assert f"read back  {CPU}  {head(hub)[:12]}: loaded" in told.err


def test_other_bytes_that_come_back_are_refused(serve: Serve, project: Path, publish: Publish) -> None:
    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def spoil(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            spoilt = scope.get("path", "").endswith("/table.bin") and scope["method"] == "GET"

            async def other(message: Any) -> None:  # noqa: ANN401
                if spoilt and message.get("body"):
                    message = {**message, "body": b"!" + message["body"][1:]}
                await send(message)

            await app(scope, receive, other)

        return spoil

    hub = serve(wrap=wrap)
    ran = publish(hub, project, back=True)
    assert ran.code == 1
    assert f"gives other bytes for {CPU} than were sent" in ran.err


def test_a_kernel_that_does_not_load_fails_the_reading_back(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    change(project, cli, "__init__.py", "\nraise RuntimeError('not here')\n")
    ran = publish(hub, project, back=True)
    assert ran.code == 1
    assert "not here" in ran.err
    assert "Traceback" in ran.err, "that of the kernel"


def test_build_and_upload_builds_first(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    shutil.rmtree(project / "build")
    ran = publish(hub, project, name="build-and-upload", back=True)
    assert ran.code == 0, ran.err
    assert f"{REPO} v1 at {head(hub)}: published" in ran.out.splitlines()


def test_a_publisher_that_is_killed_leaves_the_branch_as_it_was_or_as_it_is_to_be(
    serve: Serve, project: Path, cli: Cli, tmp_path: Path, publish: Publish
) -> None:
    hub = serve()
    seen = {done(publish(hub, project, "--json"))["commit"]}
    variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": CI, "HF_HOME": str(tmp_path / "hf")}
    command = (sys.executable, "-m", "hubkernels.cli", "publish", "--project", str(project), "--no-read-back")
    random = Random(0)  # noqa: S311 - moments, no secret
    for number in range(60 if os.environ.get("HUBKERNELS_TEST_ALL") else 8):
        change(project, cli, text=f"\n# {number}\n")
        with subprocess.Popen(command, env=environment(**variables), stdout=subprocess.DEVNULL) as publisher:
            time.sleep(random.uniform(0.2, 1.5))
            publisher.kill()
        files = {path for path in tree(hub) if path.startswith("build/")}
        assert len(files) == 10, "all of a commit or nothing"
        ran = done(publish(hub, project, "--json"))
        assert ran["status"] in {"uploaded", "no_changes"}
        assert ran["commit"] not in seen
        seen.add(ran["commit"])
    assert len(commits(hub)) == len(set(commits(hub)))
    hub.check(f"kernels/{REPO}")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_asked_again(serve: Serve, project: Path, publish: Publish, status: int) -> None:
    """Each path fails once: refs, tree, preupload, the commit."""
    failed: set[str] = set()

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def busy(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            path = scope.get("path", "")
            if path.startswith("/api/kernels") and path not in failed:
                failed.add(path)
                headers = [(b"retry-after", b"1"), (b"content-length", b"0")]
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body"})
                return
            await app(scope, receive, send)

        return busy

    hub = serve(wrap=wrap)
    ran = done(publish(hub, project, "--json"))
    assert ran["status"] == "uploaded"
    assert {path.split("/")[5] for path in failed} >= {"refs", "tree", "branch", "preupload", "commit"}
    assert len(commits(hub)) == 2, "the first is that of main"


def test_a_model_repository_of_old_takes_it_too(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    ran = done(publish(hub, project, "--json", "--repo-type", "model", back=True))
    assert (ran["status"], ran["url"], ran["read_back"]) == ("uploaded", f"{hub.url}/{REPO}", [])
    assert f"build/{CPU}/op.py" in hub.api().list_repo_files(REPO, revision="v1")


def test_a_proposal_is_read_back_too(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    done(publish(hub, project, "--json"))
    change(project, cli)
    ran = done(publish(hub, project, "--json", "--create-pr", token=READER, back=True))
    assert [each["variant"] for each in ran["read_back"]] == [CPU]


def test_two_who_make_a_branch_at_once_keep_each_other_s_variants(
    serve: Serve, project: Path, publish: Publish
) -> None:
    """The other is quicker by all of its publication: the branch is there, and is not what main is."""
    theirs = f"build/{CUDA}/__init__.py"
    moved: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def between(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if scope.get("path", "").endswith("/branch/v1") and not moved:
                moved.append(scope["path"])
                import anyio  # noqa: PLC0415 - comes with the server

                await anyio.to_thread.run_sync(publish_theirs)
            await app(scope, receive, send)

        return between

    def publish_theirs() -> None:
        api = hub.api()
        api.create_branch(REPO, branch="v1", repo_type="kernel")
        content = b'__all__ = ["DATA", "answer"]\n'
        api.upload_file(path_or_fileobj=content, path_in_repo=theirs, repo_id=REPO, repo_type="kernel", revision="v1")

    hub = serve(wrap=wrap)
    ran = done(publish(hub, project, "--json", "--variant", CPU))
    assert moved
    assert (ran["status"], ran["deleted"]) == ("uploaded", [])
    assert {theirs, f"build/{CPU}/op.py"} <= tree(hub)


def test_a_branch_that_was_there_keeps_the_variants_of_others(serve: Serve, project: Path, publish: Publish) -> None:
    """Also where it is what main is: that does not tell who made it, and they were deleted."""
    hub = serve()
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().upload_file(path_or_fileobj=b"1", path_in_repo="build/other/x.py", repo_id=REPO, repo_type="kernel")
    hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
    assert done(publish(hub, project, "--json"))["deleted"] == []
    assert "build/other/x.py" in tree(hub)


def test_a_record_there_that_cannot_be_read_does_not_block_the_branch(
    serve: Serve, project: Path, publish: Publish
) -> None:
    hub, path = serve(), f"records/{CPU}/parity.json"
    done(publish(hub, project, "--json"))
    deep = b"[" * 200_000
    hub.api().upload_file(path_or_fileobj=deep, path_in_repo=path, repo_id=REPO, repo_type="kernel", revision="v1")
    assert done(publish(hub, project, "--json"))["deleted"] == [path]


def test_a_file_that_a_gitignore_there_leaves_out_is_missed(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().upload_file(path_or_fileobj=b"*.bin\n", path_in_repo=".gitignore", repo_id=REPO, repo_type="kernel")
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"build/{CPU}/data/table.bin is not in {head(hub)} as it was sent" in ran.err
    assert "a .gitignore" in ran.err


def test_a_proposal_for_a_branch_that_is_not_there_is_told_what_to_do(
    serve: Serve, project: Path, publish: Publish
) -> None:
    hub = serve()
    hub.api().create_repo(REPO, repo_type="kernel")
    ran = publish(hub, project, "--create-pr", token=READER)
    assert ran.code == 4
    assert f"v1 of {REPO} is not there, and a proposal is for a branch that is" in ran.err


def test_an_artifact_that_build_toml_no_longer_makes_is_refused(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    hub = serve()
    toml = project / "build.toml"
    toml.write_text(toml.read_text().replace('["cpu", "cuda"]', '["cpu"]'), encoding="utf-8")
    commit_all(project)
    assert cli("build", "--project", project).code == 0
    ran = publish(hub, project)
    assert ran.code == 1
    assert f"build.toml no longer makes {CUDA}" in ran.err
    assert done(publish(hub, project, "--json", "--variant", CPU))["status"] == "uploaded"


def test_a_kernel_that_lies_nearer_is_not_taken_for_what_was_published(
    serve: Serve, project: Path, publish: Publish
) -> None:
    """As in a shell of `testshell`, where the client looks into build/ first."""
    asked: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def listen(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            asked.append(scope.get("path", ""))
            await app(scope, receive, send)

        return listen

    hub = serve(wrap=wrap)
    near = f"{REPO}={project / 'build/my-table'}"
    ran = publish(hub, project, back=True, LOCAL_KERNELS=near, KERNELS_CACHE=str(project.parent / "kernels"))
    assert ran.code == 0, ran.err
    assert [path for path in asked if path.endswith(f"build/{CPU}/op.py")]


def test_metadata_there_that_are_no_json_are_replaced(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    done(publish(hub, project, "--json"))
    path = f"build/{CPU}/metadata.json"
    hub.api().upload_file(path_or_fileobj=b"[", path_in_repo=path, repo_id=REPO, repo_type="kernel", revision="v1")
    ran = done(publish(hub, project, "--json"))
    assert (ran["status"], ran["changed"]) == ("uploaded", [path])


@pytest.mark.parametrize("key", ["license", "kernel-depends"])
def test_metadata_changed_by_hand_are_told_as_checks_tell_it(project: Path, key: str) -> None:
    """It was a traceback."""
    artifact = project / f"build/my-table/{CPU}"
    file = artifact / "metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: {"license": ["a"]}.get(key, 5)}), encoding="utf-8")
    reasons = unfit(read_offer({CPU: artifact}))
    assert [each for each in reasons if key in each.what]


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/v1", "0" * 40, "a" * 300])
def test_a_branch_that_no_hub_makes_is_refused_before_anything_is_made(project: Path, name: str) -> None:
    builder, target = open_target(project, None)
    with pytest.raises(InputError, match="is no name for a branch"):
        prepare(builder, target.packages[0], Wishes(branch=name))


def test_a_backslash_in_a_file_name_is_refused_by_us(project: Path) -> None:
    artifact = project / f"build/my-table/{CPU}"
    file = artifact / "metadata.json"
    metadata = json.loads(file.read_text())
    metadata["digest"]["files"]["a\\b"] = ""
    file.write_text(json.dumps(metadata), encoding="utf-8")
    with pytest.raises(InputError, match="backslash"):
        read_offer({CPU: artifact})


def test_what_no_commit_is_known_of_is_published_with_a_warning(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    """Once, whatever the number of variants. It used to go without a word, and `verify` found it out."""
    shutil.rmtree(project / ".git")
    shutil.rmtree(project / "build")
    assert cli("build", "--project", project).code == 0
    ran = publish(serve(), project)
    assert ran.code == 0, ran.err
    what = "warning: no git commit is known for the sources of my-table: `verify` cannot build again what is published"
    hint = "commit the sources to git and build again, then publish"
    assert ran.err.count("warning: ") == 1
    assert f"{what}\n  --> {project}\n  hint: {hint}\n" in ran.err


def test_logs_have_no_progress_bars(serve: Serve, project: Path, publish: Publish, verb: Verb) -> None:
    """Of the Hub's client: where standard error is no terminal, each step of one used to be a line."""
    hub = serve(lfs="always")
    ran = publish(hub, project, "--no-card", back=True)
    assert ran.code == 0, ran.err
    fetched = verb(hub, "prefetch", f"{REPO}@{head(hub)}")
    assert fetched.code == 0, fetched.err
    assert "it/s" not in ran.err + fetched.err
    assert "%|" not in ran.err + fetched.err, ran.err + fetched.err


_SPY = """
import os
from pathlib import Path
given = dict(word.split("=", 1) for word in Path("/proc/self/environ").read_text().split("\\0") if "=" in word)
Path(os.environ["SPY"]).write_text("\\n".join((
    *(f"{name}={os.environ.get(name)}" for name in ("HF_TOKEN", "HUBKERNELS_SIGN_PASSWORD")),
    f"secrets {'hf_ci' in str(given)}",
    f"file {any(os.path.exists(p) for p in (given.get('HF_TOKEN_PATH', ''), given.get('HF_HOME', '') + '/token'))}",
    f"token {__import__('huggingface_hub').get_token()}",
    f"offline {__import__('huggingface_hub').constants.HF_HUB_OFFLINE}",
)))
"""


def test_who_runs_what_came_back_has_no_token_and_no_hub(
    serve: Serve, project: Path, publish: Publish, cli: Cli, tmp_path: Path
) -> None:
    """Nor does its environment, at the start or later, tell the place of a token that was left by a login."""
    change(project, cli, "__init__.py", _SPY)
    (tmp_path / "hf").mkdir()
    for place in ("token", "hf/token"):
        (tmp_path / place).write_text(CI)
    told = {"SPY": str(tmp_path / "spied"), "HF_TOKEN_PATH": str(tmp_path / "token"), "HUBKERNELS_SIGN_PASSWORD": CI}
    assert publish(serve(), project, back=True, **told).code == 0
    assert (tmp_path / "spied").read_text().splitlines() == [
        *("HF_TOKEN=None", "HUBKERNELS_SIGN_PASSWORD=None"),
        *("secrets False", "file False", "token None", "offline True"),
    ]


def test_other_bytes_that_come_back_are_not_run(
    serve: Serve, project: Path, publish: Publish, cli: Cli, tmp_path: Path
) -> None:
    ran_it = tmp_path / "ran"
    change(project, cli, "__init__.py", f"\nif 0: open({str(ran_it)!r}, 'w')\n")

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def spoil(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            async def other(message: Any) -> None:  # noqa: ANN401
                if scope["method"] == "GET":
                    message = {**message, "body": message.get("body", b"").replace(b"\nif 0:", b"\nif 1:")}
                await send(message)

            await app(scope, receive, other if scope["type"] == "http" else send)

        return spoil

    ran = publish(serve(wrap=wrap), project, back=True)
    assert ran.code == 1
    assert f"gives other bytes for {CPU} than were sent" in ran.err
    assert not ran_it.exists()


def test_a_proposal_that_may_have_been_made_is_not_asked_for_again(
    serve: Serve, project: Path, publish: Publish
) -> None:
    asked: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def lose(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if "/commit/" not in scope.get("path", "") or b"create_pr" not in scope["query_string"]:
                await app(scope, receive, send)
                return
            asked.append(scope["path"])

            async def nothing(message: Any) -> None:  # noqa: ANN401
                pass

            await app(scope, receive, nothing)
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        return lose

    hub = serve(wrap=wrap)
    hub.api().create_repo(REPO, repo_type="kernel")
    hub.api().create_branch(REPO, branch="v1", repo_type="kernel")
    ran = publish(hub, project, "--create-pr")
    assert (ran.code, "the Hub refused (502)" in ran.err) == (4, True)
    assert len(asked) == 1


def test_what_a_kernel_depends_on_is_there_when_it_is_loaded_back(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    """Of an organization that nobody vouches for, too: it runs where it can take nothing."""
    hub = serve(trust="another-org")
    base = done(publish(hub, project, "--json", "--repo-id", "org/base"))["commit"]
    build = project / "build.toml"
    depends = f'[[general.kernel-depends]]\nrepo-id = "org/base"\nrevision = "{base}"\n'
    build.write_text(build.read_text().replace("[general.hub]", f"{depends}[general.hub]"), encoding="utf-8")
    change(project, cli, "__init__.py", 'from kernels import get_kernel_dep\nBASE = get_kernel_dep("org/base")\n')
    (loaded,) = done(publish(hub, project, "--json", back=True))["read_back"]
    assert loaded["variant"] == CPU
