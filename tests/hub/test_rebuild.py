"""`kernel-builder verify`: what was published, built again of its sources."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubkernels.build.settings import Settings
from hubkernels.errors import EnvironmentLacksError
from hubkernels.hub.rebuild import Wanted, rebuild, require_some
from tests.conftest import Cli, Ran, SmallProject, write_noarch
from tests.hub.conftest import CPU, Serve, Served, Verb, commit_all, run

pytestmark = pytest.mark.compiler

REPO = "org/my-kernel"
ADDRESS = "https://example.org/sources.git"


@pytest.fixture
def project(tmp_path: Path) -> SmallProject:
    """A compiled project in a folder of a repository, committed."""
    top = tmp_path / "sources"
    made = SmallProject(top / "kernels/my-kernel", "my-kernel").write().without_torch()
    (top / ".gitignore").write_text("build/\n", encoding="utf-8")
    assert run("git", "init", "-q", top).returncode == 0
    commit_all(top)
    return made


@pytest.fixture
def publish(verb: Verb, cli: Cli) -> Callable[..., str]:
    """Build and publish; tells what `verify` takes."""

    def call(hub: Served, folder: Path, *words: str, repo: str = REPO) -> str:
        assert cli("build", "--project", folder).code == 0
        ran = verb(hub, "publish", "--project", folder, "--repo-id", repo, "--json", "--no-read-back", *words)
        assert ran.code == 0, ran.err
        return f"{repo}@{json.loads(ran.out)[0]['commit']}"

    return call


Publish = Callable[..., str]


def results(ran: Ran) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def top_of(project: SmallProject) -> Path:
    return project.root.parents[1]


def test_what_was_published_is_built_again_and_is_equal(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish, tmp_path: Path
) -> None:
    """With an empty cache, so with the compiler; later commits of the sources are not looked at."""
    hub = serve()
    pin = publish(hub, project.root)
    tag = project.artifact.name
    project.write(answer=7)
    commit_all(top_of(project))
    shutil.rmtree(project.root / "build")
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--json", HUBKERNELS_CACHE=str(tmp_path / "cold"))
    assert ran.code == 0, ran.err
    (found,) = results(ran)
    assert (found["variant"], found["outcome"], found["differing"]) == (tag, "equal", [])
    assert found["files"] == 5
    assert not (project.root / "build").exists()


def test_the_sources_come_from_where_the_metadata_say(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish
) -> None:
    hub = serve()
    toml = project.root / "build.toml"
    toml.write_text(toml.read_text().replace("[torch]", f'source = "{ADDRESS}"\n\n[torch]', 1), encoding="utf-8")
    commit_all(top_of(project))
    pin = publish(hub, project.root)
    elsewhere = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{top_of(project)}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
    }
    ran = verb(hub, "verify", pin, **elsewhere)
    assert ran.code == 0, ran.err
    assert f"of {ADDRESS}" in ran.err
    assert "  equal           5 files\n" in ran.out


def test_where_the_metadata_name_no_repository_the_key_that_would_is_told(tmp_path: Path) -> None:
    folder = tmp_path / CPU
    folder.mkdir()
    kernel = {"commit": "1" * 40, "dirty": False}
    (folder / "metadata.json").write_text(json.dumps({"name": "relu", "provenance": {"kernel": kernel}}))
    wanted = Wanted({}, Settings(1, None))
    found = list(rebuild({CPU: folder}, (), wanted, lambda _: None))
    assert [each.reason for each in found] == ["its metadata name no repository of its sources"]
    with pytest.raises(EnvironmentLacksError, match=r"--source DIR\|URL names it; .* `source` below \[general\]"):
        require_some(found, "org/relu")


def replaced(hub: Served, pin: str, path: str, content: bytes) -> str:
    """The pin of a commit in which somebody changed a published file."""
    made = hub.api().upload_file(
        path_or_fileobj=content, path_in_repo=path, repo_id=REPO, repo_type="kernel", revision="v1"
    )
    return f"{pin.partition('@')[0]}@{made.oid}"


def test_a_library_that_somebody_changed_differs_in_a_section(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish
) -> None:
    hub = serve()
    pin = publish(hub, project.root)
    library = f"{project.op_id}.abi3.so"
    content = (project.artifact / library).read_bytes()
    at = content.index(b"GCC: (")
    changed = content[:at] + b"gcc" + content[at + 3 :]
    pin = replaced(hub, pin, f"build/{project.artifact.name}/{library}", changed)
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--json")
    assert ran.code == 1
    (found,) = results(ran)
    assert found["outcome"] == "differs"
    assert found["differing"] == [
        "metadata.json: its digest is not that of the published files",
        f"{library}: section .comment",
    ]
    assert "the same id" in found["could"]
    assert f"{library}: section .comment" in ran.err


def test_a_file_that_no_source_makes_differs(serve: Serve, verb: Verb, project: SmallProject, publish: Publish) -> None:
    """Also where the digest was written for it."""
    hub = serve()
    pin = publish(hub, project.root)
    tag = project.artifact.name
    (project.artifact / "more.py").write_text("", encoding="utf-8")
    from hubkernels.model.digest import digest_folder  # noqa: PLC0415 - beside its use

    metadata = json.loads((project.artifact / "metadata.json").read_text())
    commit = run("git", "-C", project.root, "rev-parse", "HEAD").stdout.strip()
    metadata["provenance"] = {"kernel-builder": {"version": "0"}, "kernel": {"commit": commit, "dirty": False}}
    metadata["digest"]["files"] = digest_folder(project.artifact)
    replaced(hub, pin, f"build/{tag}/more.py", b"")
    pin = replaced(hub, pin, f"build/{tag}/metadata.json", json.dumps(metadata).encode())
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--json")
    assert ran.code == 1
    assert results(ran)[0]["differing"] == ["more.py: no source makes it"]


def test_another_compiler_gives_another_id_and_is_told(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish, tmp_path: Path
) -> None:
    """A compiler that is called by another program counts as another."""
    hub = serve()
    pin = publish(hub, project.root)
    compiler = tmp_path / "bin/g++"
    compiler.parent.mkdir()
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which(os.environ.get("CXX", "g++"))} "$@"\n', encoding="utf-8")
    compiler.chmod(0o755)
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--json", CXX=str(compiler))
    assert ran.code == 1, ran.err
    (found,) = results(ran)
    assert found["differing"][0].startswith(f"metadata.json: the id is {project.op_id}, here _my_kernel_cpu_")
    assert "another compiler or other headers, which the metadata do not tell" in found["could"]
    assert "layers.py" not in " ".join(found["differing"])


def test_what_cannot_be_built_here_is_told_with_the_reason(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish
) -> None:
    """Another platform's, and one whose metadata are as a build leaves them, beside one that is equal."""
    hub = serve()
    pin = publish(hub, project.root)
    tag = project.artifact.name
    here, there = ("x86_64", "aarch64") if "x86_64" in tag else ("aarch64", "x86_64")
    folder = Path(
        hub.api().snapshot_download(
            REPO, repo_type="kernel", revision=pin.partition("@")[2], cache_dir=project.root.parent / "hub"
        )
    )
    copies = {tag.replace(here, there): folder / "build" / tag, "torch-rocm": project.artifact}
    for name, copied in copies.items():
        for path in sorted(copied.iterdir()):
            pin = replaced(hub, pin, f"build/{name}/{path.name}", path.read_bytes())
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--json")
    assert ran.code == 0, ran.err
    assert {each["variant"]: each["reason"] for each in results(ran)} == {
        tag: None,
        tag.replace(here, there): f"built on {there}-linux, this machine is {here}-linux",
        "torch-rocm": "its metadata name no commit that it was built of",
    }
    alone = verb(hub, "verify", pin, "--source", top_of(project), "--variant", "torch-rocm")
    assert alone.code == 3, "nothing is known"
    assert "none of its variants was built here" in alone.err
    assert "hint: nobody can verify that: ask who published it" in alone.err, "it used to be what the machine lacks"
    assert verb(hub, "verify", pin, "--variant", "torch-rocmm").code == 2


def test_of_files_that_were_not_committed_nothing_is_built(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish
) -> None:
    hub = serve()
    (project.root / "cpu/kernel.cpp").write_text((project.root / "cpu/kernel.cpp").read_text() + "\n", encoding="utf-8")
    pin = publish(hub, project.root, "--allow-dirty")
    ran = verb(hub, "verify", pin, "--source", top_of(project))
    assert ran.code == 3
    assert "it was built of files that were not committed" in ran.err
    assert "doctor" not in ran.err


def test_sources_without_the_commit_are_named(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish, tmp_path: Path
) -> None:
    hub = serve()
    pin = publish(hub, project.root)
    assert run("git", "init", "-q", tmp_path / "empty").returncode == 0
    ran = verb(hub, "verify", pin, "--source", tmp_path / "empty")
    assert ran.code == 3
    assert "git does not get the commit" in ran.err
    assert f"--> {tmp_path}/empty" in ran.err


def test_python_alone_needs_no_compiler_and_every_variant_is_equal(
    serve: Serve, verb: Verb, publish: Publish, tmp_path: Path
) -> None:
    hub = serve()
    folder = write_noarch(tmp_path / "project", "my-table")
    (folder / ".gitignore").write_text("build/\n", encoding="utf-8")
    assert run("git", "init", "-q", folder).returncode == 0
    commit_all(folder)
    pin = publish(hub, folder, repo="org/my-table")
    ran = verb(hub, "verify", pin, "--source", folder, "--json", CXX="/nowhere/g++")
    assert ran.code == 0, ran.err
    assert {each["variant"]: each["outcome"] for each in results(ran)} == {"torch-cpu": "equal", "torch-cuda": "equal"}


def test_two_packages_of_one_name_in_the_sources_are_told_apart(
    serve: Serve, verb: Verb, project: SmallProject, publish: Publish
) -> None:
    hub = serve()
    SmallProject(top_of(project) / "old/my-kernel", "my-kernel").write(answer=1).without_torch()
    commit_all(top_of(project))
    pin = publish(hub, project.root)
    ran = verb(hub, "verify", pin, "--source", top_of(project))
    assert ran.code == 2
    assert "several folders of the sources have my-kernel: kernels/my-kernel, old/my-kernel" in ran.err
    ran = verb(hub, "verify", pin, "--source", top_of(project), "--subfolder", "kernels/my-kernel")
    assert ran.code == 0, ran.err
    assert verb(hub, "verify", pin, "--source", top_of(project), "--subfolder", "old/my-kernel").code == 1
