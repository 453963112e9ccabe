"""The card that `publish` leaves on main, and the records beside the builds."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from hubkernels.config import load_project
from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.hub.card import CardFacts
from hubkernels.hub.card_template import card_of
from hubkernels.hub.description import describe
from hubkernels.init.scaffold import parse_start, render
from hubkernels.model.digest import digest_folder, hash_digest
from hubkernels.model.project import Package
from tests.conftest import REPOSITORY, Cli, write_noarch
from tests.hub.conftest import CPU, CUDA, HUB, OWNER, REPO, Serve, Served, commit_all
from tests.hub.test_publish import Publish, change, commits, done, head, publish, tree

pytest.importorskip("torch", reason="what is published is loaded back")
pytestmark = pytest.mark.torch

__all__ = ["publish"]


def read(hub: Served, path: str, revision: str = "main") -> str:
    answer = hub.ask("GET", f"/kernels/{REPO}/resolve/{revision}/{path}", token=OWNER)
    assert answer.status == 200, answer.body
    return answer.body.decode()


def card(hub: Served) -> str:
    return read(hub, "README.md")


def write_record(project: Path, **changes: Any) -> None:  # noqa: ANN401 - any JSON
    """A benchmark record of this project, made of one of ours."""
    ours = REPOSITORY / "bench/records/rms-norm-rms_norm-float32-4096x4096-fwd-t2-pre-touched.json"
    record = {**json.loads(ours.read_text()), "package": "my-table", "op": "answer", **changes}
    (project / "bench/records").mkdir(parents=True, exist_ok=True)
    (project / "bench/records/one.json").write_text(json.dumps(record), encoding="utf-8")


def write_parity(project: Path, tag: str = CPU, **changes: Any) -> Path:  # noqa: ANN401 - any JSON
    artifact = project / f"build/my-table/{tag}"
    file = project / f"build/my-table/{tag}.records/parity.json"
    file.parent.mkdir(exist_ok=True)
    value = {"schema": 1, "digest": hash_digest(digest_folder(artifact)), "rows": [], **changes}
    file.write_text(json.dumps(value), encoding="utf-8")
    return file


def test_the_card_tells_to_load_the_commit_that_was_published(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    ran = done(publish(hub, project, "--json", back=True))
    text = card(hub)
    assert f'get_kernel("{REPO}", revision="{ran["commit"]}")' in text
    assert text.startswith("---\nlicense: apache-2.0\nlibrary_name: kernels\ntags:\n- kernel\n- cpu\n- cuda\n---\n")
    assert "- `answer(x)`\n" in text
    assert "- `DATA`\n" in text
    assert f"| `{CPU}` | cpu |" in text
    assert f"| `{CUDA}` | cuda |" in text
    assert (ran["card_commit"], ran["card"]) == (head(hub, "main"), "uploaded")
    assert "were not committed" not in text


def test_the_same_again_makes_no_new_card(serve: Serve, project: Path, publish: Publish) -> None:
    """Also where the second time nothing is loaded back."""
    hub = serve()
    first = done(publish(hub, project, "--json", back=True))
    count = len(commits(hub, "main"))
    told = publish(hub, project)
    assert f"{REPO} main: the card says just this\n" in told.out
    again = done(publish(hub, project, "--json", back=True))
    assert (again["card_commit"], again["card"]) == (first["card_commit"], "no_changes")
    assert len(commits(hub, "main")) == count


def test_builds_come_first_and_the_card_last(serve: Serve, project: Path, publish: Publish) -> None:
    asked: list[str] = []

    def wrap(app: Any) -> Any:  # noqa: ANN401 - an ASGI application
        async def note(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
            if "/commit/" in scope.get("path", ""):
                asked.append(scope["path"].rpartition("/")[2])
            await app(scope, receive, send)

        return note

    done(publish(serve(wrap=wrap), project, "--json"))
    assert asked == ["v1", "main"]


@pytest.mark.parametrize("option", ["--no-card", "--create-pr"])
def test_the_card_is_left_out(serve: Serve, project: Path, publish: Publish, cli: Cli, option: str) -> None:
    hub = serve()
    done(publish(hub, project, "--json", "--no-card"))
    before = head(hub, "main")
    change(project, cli)
    ran = done(publish(hub, project, "--json", option))
    assert ran["card_commit"] is None
    assert head(hub, "main") == before


def test_variants_that_stay_are_in_the_card(serve: Serve, project: Path, publish: Publish) -> None:
    hub = serve()
    done(publish(hub, project, "--json", "--variant", CUDA))
    done(publish(hub, project, "--json", "--variant", CPU))
    assert f"| `{CUDA}` | cuda |" in card(hub)


def test_a_dirty_build_has_a_banner(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    (project / "torch-ext/my_table/more.py").write_text("x = 1\n", encoding="utf-8")
    assert cli("build", "--project", project).code == 0
    done(publish(hub, project, "--json", "--allow-dirty"))
    assert "**Built of files that were not committed:**" in card(hub)


def test_an_older_version_leaves_the_card_to_the_newer(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    done(publish(hub, project, "--json"))
    build = project / "build.toml"
    build.write_text(build.read_text().replace("version = 1", "version = 2"), encoding="utf-8")
    commit_all(project)
    assert cli("build", "--project", project).code == 0
    newer = done(publish(hub, project, "--json"))
    assert newer["commit"] in card(hub)
    build.write_text(build.read_text().replace("version = 2", "version = 1"), encoding="utf-8")
    change(project, cli)
    older = done(publish(hub, project, "--json"))
    assert (older["status"], older["card"], older["card_commit"]) == ("uploaded", "left_to_newer_version", None)
    assert newer["commit"] in card(hub)


def test_a_branch_of_no_version_leaves_the_card_where_there_are_versions(
    serve: Serve, project: Path, publish: Publish
) -> None:
    hub = serve()
    done(publish(hub, project, "--json"))
    before = card(hub)
    ran = publish(hub, project, "--branch", "next")
    assert "org/my-table main: the branch moved on meanwhile, or is of no version: the card stays\n" in ran.out
    assert card(hub) == before


def test_where_there_are_no_versions_the_card_is_of_the_last_branch(
    serve: Serve, project: Path, publish: Publish
) -> None:
    """As docs/publishing.md has it, which used to say that it is left alone."""
    hub = serve()
    for branch in ("stable", "feature/x"):
        ran = done(publish(hub, project, "--json", "--branch", branch))
        assert ran["card"] == "uploaded"
        assert f"branch `{branch}`" in card(hub)


def test_a_project_has_a_card_of_its_own(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    """With the variables of upstream, and its white space."""
    hub = serve()
    (project / "CARD.md").write_text(
        "---\nlicense: {{ license }}\n---\n{{ repo_id }} {{ version }} {{ commit }}\n"
        "{% for name in functions %}\n- {{ name }}\n{% endfor %}\n{{ layers }} {{ has_benchmark }}\n",
        encoding="utf-8",
    )
    change(project, cli)
    ran = done(publish(hub, project, "--json"))
    assert card(hub) == (f"---\nlicense: apache-2.0\n---\n{REPO} 1 {ran['commit']}\n- DATA\n- answer\n[] False\n")


BAD = {
    "{% for x %}": "2: ",
    "{{ version.a.b }}": "2",
    "{{ nope }}": "2\n  hint: there are repo_id, version, functions,",
    "{{ 1 / 0 }}": "2",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "",
    "{{ '\\ud800' }}": "",
    "{% include 'x' %}": "2",
    "{{ 'x' * 9999999 }}": "",
    "{{ ''.__class__.__mro__ }}": "2",
}


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return load_project(write_noarch(tmp_path / "project", "my-table", top=HUB)).packages[0]


def facts() -> CardFacts:
    return CardFacts("org/my-table", "0" * 40, "v1", 1, "Apache-2.0", "", ())


@pytest.mark.parametrize("text", BAD)
def test_a_template_that_cannot_be_filled_is_named_with_its_line(package: Package, text: str) -> None:
    file = package.root / "CARD.md"
    file.write_text(f"# card\n{text}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"CARD\.md ") as raised:
        card_of(package)(facts())
    assert BAD[text].removesuffix(": ") in str(raised.value)


@pytest.mark.parametrize("owner", ["org/", ""])
def test_the_card_of_a_new_project_tells_how_to_load_what_was_published(package: Package, owner: str) -> None:
    """It used to tell of a folder that nobody has who reads it on the Hub."""
    text = render(parse_start(f"{owner}my-table", "MIT"))["CARD.md"]
    (package.root / "CARD.md").write_text(text, encoding="utf-8")
    use, build = card_of(package)(facts()).split("## Build and test")
    assert f'kernel = kernels.get_kernel("org/my-table", revision="{"0" * 40}")' in use
    assert "get_local_kernel" not in use
    assert 'get_local_kernel(Path("build/my-table"))' in build


def test_front_matter_that_is_none_is_refused(package: Package) -> None:
    """The Hub refuses it, when the builds are there."""
    (package.root / "CARD.md").write_text("---\na: b\nlicense: [\n---\n# card\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"front matter of CARD\.md, filled, is no YAML(.|\n)*CARD\.md:4"):
        card_of(package)(facts())


def test_front_matter_that_cannot_be_looked_at_is_not_passed_over(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be, where PyYAML was missing."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    (package.root / "CARD.md").write_text("---\nlicense: mit\n---\n# card\n", encoding="utf-8")
    with pytest.raises(EnvironmentLacksError, match=r"front matter of CARD\.md(.|\n)*PyYAML(.|\n)*pip install"):
        card_of(package)(facts())
    (package.root / "CARD.md").write_text("# card\n", encoding="utf-8")
    assert card_of(package)(facts()) == "# card\n"


def test_a_card_of_its_own_is_a_file_of_the_project(package: Package, tmp_path: Path) -> None:
    card, other = package.root / "CARD.md", tmp_path / "other"
    other.write_text("secret", encoding="utf-8")
    for make, reason in (
        (lambda: card.symlink_to(other), "is a link out of the project"),
        (lambda: card.symlink_to("nothing"), "cannot be read: No such file"),
        (lambda: os.mkfifo(card), "cannot be read: is no regular file"),
        (lambda: card.write_bytes(b"one\n\xff"), r"is not UTF-8\n  --> .*:2"),
    ):
        make()
        with pytest.raises(InputError, match=f"CARD.md {reason}"):
            card_of(package)
        card.unlink()
    card.mkdir()
    with pytest.raises(InputError, match=r"CARD\.md cannot be read"):
        card_of(package)


def test_a_readme_is_told_of_only_where_it_is_the_project_s(
    serve: Serve, project: Path, publish: Publish, cli: Cli, tmp_path: Path
) -> None:
    """One that led to the file of a token put that onto the card."""
    hub, secret = serve(), tmp_path / "token"
    secret.write_text("hf_secret\n", encoding="utf-8")
    (project / "README.md").symlink_to(secret)
    change(project, cli)
    ran = publish(hub, project)
    assert ran.code == 2
    assert "README.md is a link out of the project" in ran.err
    assert "or --no-card" in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404
    done(publish(hub, project, "--json", "--no-card"))


def test_half_a_character_in_a_docstring_makes_a_card() -> None:
    said = describe({"__init__.py": b'"""About \\ud800 it."""\n'})
    assert said.about == "About ? it."


@pytest.mark.parametrize("text", ["{% for x %}", "{{ version.a.b }}"])
def test_a_card_that_cannot_be_filled_is_found_out_before_anything_is_sent(
    serve: Serve, project: Path, publish: Publish, cli: Cli, text: str
) -> None:
    hub = serve()
    (project / "CARD.md").write_text(f"# card\n{text}\n", encoding="utf-8")
    change(project, cli)
    ran = publish(hub, project)
    assert ran.code == 2
    assert "error: CARD.md " in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


def test_benchmarks_are_a_table_and_a_picture(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    write_record(project)
    change(project, cli)
    done(publish(hub, project, "--json"))
    text = card(hub)
    assert "](media/benchmarks.svg)" in text
    assert "| `answer` | float32 | 4096x4096 | fwd | 1663 [1510-2194] | 109% | kernels-community 2149 | 0.77 |" in text
    assert "of another build, digest `2576f850836023dc`" in text
    assert read(hub, "media/benchmarks.svg").startswith("<svg ")
    shutil.rmtree(project / "bench")
    change(project, cli)
    done(publish(hub, project, "--json"))
    assert "media/benchmarks.svg" not in tree(hub, "main")


def test_a_stranger_among_the_records_is_named_before_anything_is_sent(
    serve: Serve, project: Path, publish: Publish, cli: Cli
) -> None:
    write_record(project, schema=7)
    change(project, cli)
    ran = publish(serve(), project)
    assert ran.code == 2
    assert "record schema 7 is unknown" in ran.err
    assert "bench/records/one.json" in ran.err


def test_records_of_just_these_bytes_go_along(serve: Serve, project: Path, publish: Publish, cli: Cli) -> None:
    hub = serve()
    file = write_parity(project)
    write_parity(project, CUDA, digest="of other bytes")
    ran = done(publish(hub, project, "--json"))
    assert [path for path in tree(hub) if path.startswith("records/")] == [f"records/{CPU}/parity.json"]
    assert read(hub, f"records/{CPU}/parity.json", "v1") == file.read_text()
    assert done(publish(hub, project, "--json"))["commit"] == ran["commit"]
    shutil.rmtree(file.parent)
    assert done(publish(hub, project, "--json"))["deleted"] == [], "another machine has made them"
    change(project, cli)
    assert done(publish(hub, project, "--json"))["deleted"] == [f"records/{CPU}/parity.json"], "of bytes that are gone"


def test_records_beside_artifacts_are_no_violation_and_go_with_them(project: Path, cli: Cli) -> None:
    file = write_parity(project)
    assert cli("check", "builds", "--project", project).code == 0
    assert cli("clean", "--project", project).code == 0
    assert not file.parent.exists()
