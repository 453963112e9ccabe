"""`--since`: which packages a change affects, against real git."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hubkernels.build import since
from hubkernels.build.pipeline import Builder
from hubkernels.build.settings import Settings
from hubkernels.build.since import affected
from hubkernels.config import read_project
from hubkernels.host.git import Repository, find_repository
from tests.conftest import Cli, SmallProject, environment, write_noarch

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

WORKSPACE = """\
[workspace]
schema = 1
general = { license = "MIT", backends = ["cpu"] }
torch = { stable-abi = "2.10" }
members = ["kernels/*"]

[workspace.backend.cpu]
depends = ["torch"]
include = ["include"]

[package.one]
general = { version = 1 }
torch = { src = ["torch-ext/one/binding.cpp"] }
kernel.cpu = { backend = "cpu", src = ["cpu/one.cpp"] }

[package.two]
general = { version = 1 }
torch = { src = ["torch-ext/two/binding.cpp"] }
kernel.cpu = { backend = "cpu", src = ["cpu/two.cpp"], include = ["mine"] }
"""


@pytest.fixture(autouse=True)
def only_git(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a compiler: what sources read is not known."""
    folder = tmp_path_factory.mktemp("only-git")
    (folder / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(folder))


def git(root: Path, *words: str) -> str:
    own = {key: value for key, value in environment().items() if not key.startswith("GIT_")}
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=root, env=own, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path) -> Path:
    if not (root / ".git").exists():
        git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "x", "--allow-empty")
    return root


def reasons(root: Path, ref: str = "HEAD") -> dict[str, str]:
    project = read_project(root)
    return affected(Builder(project, os.environ, Settings(jobs=1)), project.packages, ref)


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Two projects of Python and one to compile, in one commit."""
    for name in ("aa", "bb"):
        write_noarch(tmp_path / name, f"{name}-kernel")
    (tmp_path / "cc").mkdir()
    SmallProject(tmp_path / "cc", "cc-kernel").write()
    return commit(tmp_path)


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


def test_nothing_is_affected_by_nothing(projects: Path) -> None:
    assert reasons(projects) == {}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda root: edit(root / "aa/torch-ext/aa_kernel/op.py"),
            {"aa-kernel": "aa/torch-ext/aa_kernel/op.py changed"},
        ),
        (lambda root: edit(root / "bb/build.toml"), {"bb-kernel": "bb/build.toml changed"}),
        (lambda root: (root / "aa/new file.py").touch(), {"aa-kernel": "aa/new file.py is new"}),
        (lambda root: (root / "cc/cpu/kernel.cpp").unlink(), {"cc-kernel": "cc/cpu/kernel.cpp is gone"}),
        (
            lambda root: (root / "aa/torch-ext/aa_kernel/op.py").rename(root / "bb/op.py"),
            {"aa-kernel": "aa/torch-ext/aa_kernel/op.py is gone", "bb-kernel": "bb/op.py is new"},
        ),
        (
            lambda root: (root / "bb/torch-ext/bb_kernel/op.py").chmod(0o755),
            {"bb-kernel": "bb/torch-ext/bb_kernel/op.py changed"},
        ),
        (
            lambda root: (root / "README.md").touch(),
            {"cc-kernel": "README.md is new, which it may read: what it reads is not known before a build"},
        ),
    ],
)
def test_a_change_affects_the_package_whose_folder_it_is_in(
    projects: Path, change: Callable[[Path], object], expected: dict[str, str]
) -> None:
    change(projects)
    assert reasons(projects) == expected
    git(projects, "add", "-A")
    assert reasons(projects) == expected
    commit(projects)
    assert reasons(projects) == {}
    assert reasons(projects, "HEAD~1") == expected
    assert reasons(projects, "main~1") == expected


def test_what_builds_make_is_no_change(projects: Path, cli: Cli) -> None:
    assert cli("build", "aa-kernel", "-C", projects).code == 0
    assert cli("build", "-C", projects / "bb").code == 0
    assert git(projects, "status", "--porcelain") != ""
    assert reasons(projects) == {}


def test_a_project_below_the_top_of_the_checkout_and_a_link_to_it(tmp_path: Path) -> None:
    write_noarch(tmp_path / "deep/er/aa", "aa-kernel")
    commit(tmp_path)
    (tmp_path / "link").symlink_to("deep")
    edit(tmp_path / "deep/er/aa/build.toml")
    assert reasons(tmp_path / "link/er") == {"aa-kernel": "aa/build.toml changed"}
    assert reasons(tmp_path / "link/er/aa") == {"aa-kernel": "build.toml changed"}


def test_a_link_in_the_python_package_is_followed(projects: Path) -> None:
    (projects / "shared").mkdir()
    (projects / "shared/table.bin").write_text("1")
    (projects / "aa/torch-ext/aa_kernel/table.bin").symlink_to("../../../shared/table.bin")
    commit(projects)
    edit(projects / "shared/table.bin")
    assert reasons(projects)["aa-kernel"] == ("shared/table.bin changed, which torch-ext/aa_kernel/table.bin leads to")
    assert "bb-kernel" not in reasons(projects)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "build.toml").write_text(WORKSPACE)
    for name in ("one", "two"):
        for path in (f"torch-ext/{name}/{name}/__init__.py", f"torch-ext/{name}/binding.cpp", f"cpu/{name}.cpp"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(f"// {name}\n" if path.endswith("cpp") else "")
    write_noarch(tmp_path / "kernels/three", "three")
    return commit(tmp_path)


def rewrite(root: Path, old: str, new: str) -> None:
    text = (root / "build.toml").read_text()
    assert old in text
    (root / "build.toml").write_text(text.replace(old, new))


TABLES = "its tables in build.toml changed"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[package.one]\n", "[package.one]  # a word\n\n", {}),
        ("[package.one]\ngeneral = { version = 1 }", "[package.one]\ngeneral = { version = 2 }", {"one"}),
        ('license = "MIT"', 'license = "Apache-2.0"', {"one", "two"}),
        ('include = ["include"]', 'include = ["other"]', {"one"}),  # two has a folder of its own
        ('include = ["mine"]', 'include = ["yours"]', {"two"}),
        ('"kernels/*"', '"kernels/three"', {}),
    ],
)
def test_an_edit_of_a_workspaces_file_affects_the_packages_whose_tables_it_changes(
    workspace: Path, old: str, new: str, expected: set[str]
) -> None:
    rewrite(workspace, old, new)
    assert reasons(workspace) == dict.fromkeys(sorted(expected), TABLES)


def test_a_package_and_a_member_that_were_not_in_the_file_are_new(workspace: Path) -> None:
    (workspace / "build.toml").write_text(WORKSPACE.partition("[package.two]")[0].replace('"kernels/*"', ""))
    commit(workspace)
    (workspace / "build.toml").write_text(WORKSPACE)
    short = git(workspace, "rev-parse", "--short=12", "HEAD")
    assert reasons(workspace) == {
        "two": f"it was not in build.toml at {short}",
        "three": f"it was no member of build.toml at {short}",
    }


@pytest.mark.parametrize("before", [None, "[", "[general]\n"])
def test_where_the_file_was_no_workspace_all_of_it_is_new(workspace: Path, before: str | None) -> None:
    (workspace / "build.toml").unlink()
    if before is not None:
        (workspace / "build.toml").write_text(before)
    commit(workspace)
    (workspace / "build.toml").write_text(WORKSPACE)
    assert set(reasons(workspace)) == {"one", "two", "three"}


def test_packages_of_one_file_are_told_apart_by_what_they_name(workspace: Path) -> None:
    edit(workspace / "torch-ext/one/one/__init__.py")
    found = reasons(workspace)
    assert found["one"] == "torch-ext/one/one/__init__.py changed"
    assert "three" not in found
    assert "not known before a build" in found["two"]  # never built: it may include anything


def test_a_member_is_not_affected_by_its_siblings_nor_they_by_it(workspace: Path) -> None:
    edit(workspace / "kernels/three/build.toml")
    assert set(reasons(workspace)) == {"three"}


def test_a_ref_that_is_none_is_refused_with_a_likeness(projects: Path, cli: Cli) -> None:
    nearly = (("mian", "did you mean main?"), ("^HEAD", "git log"), ("HEAD..HEAD", "git log"))
    for ref, hint in (*nearly, ("v9", "git log"), ("-q", "git log"), ("", "git log")):
        ran = cli("build", "-C", projects, f"--since={ref}")
        assert ran.code == 2, ran.err
        assert f"{ref} is no commit of {projects}" in ran.err
        assert hint in ran.err
    blob = git(projects, "rev-parse", "HEAD:aa/build.toml")
    assert cli("build", "-C", projects, "--since", blob).code == 2


def test_a_shallow_clone_says_that_it_is_one(projects: Path, tmp_path: Path, cli: Cli) -> None:
    first = git(projects, "rev-parse", "HEAD")
    edit(projects / "aa/build.toml")
    commit(projects)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{projects}", str(clone))
    ran = cli("build", "-C", clone, "--since", first)
    assert ran.code == 2
    assert f"{first} is no commit of {clone}" in ran.err
    assert "this clone is shallow" in ran.err
    assert reasons(clone, "HEAD") == {}


def test_a_folder_without_git_is_refused(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    write_noarch(tmp_path, "alone")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    ran = cli("build", "-C", tmp_path, "--since", "HEAD")
    assert ran.code == 2
    assert "git finds no checkout here" in ran.err
    monkeypatch.setenv("PATH", "")
    assert cli("build", "-C", tmp_path, "--since", "HEAD").code == 3


def test_the_hook_of_another_repository_does_not_mislead(
    projects: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = commit(tmp_path_factory.mktemp("other"))
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    edit(projects / "aa/build.toml")
    assert set(reasons(projects)) == {"aa-kernel"}


def test_only_what_is_affected_is_built_and_the_rest_is_named(projects: Path, cli: Cli) -> None:
    edit(projects / "aa/torch-ext/aa_kernel/op.py")
    ran = cli("build", "-C", projects, "--since", "HEAD", "--json")
    assert ran.code == 0, ran.err
    assert {item["package"] for item in json.loads(ran.out)} == {"aa-kernel"}
    assert ran.err.splitlines() == [
        "aa-kernel: aa/torch-ext/aa_kernel/op.py changed",
        "left out, since nothing that they read changed since HEAD: bb-kernel, cc-kernel",
    ]
    ran = cli("build", "bb-kernel", "-C", projects, "--since", "HEAD")
    assert (ran.code, ran.out) == (0, "")
    assert list(json.loads(cli("list-variants", "-C", projects, "--since", "HEAD", "--json").out)) == ["aa-kernel"]
    plans = json.loads(cli("plan", "-C", projects, "--since", "HEAD").out)
    assert {plan["package"] for plan in plans} == {"aa-kernel"}
    assert cli("check", "builds", "-C", projects, "--since", "HEAD").code == 0
    commit(projects)
    ran = cli("build", "-C", projects, "--since", "HEAD")
    assert (ran.code, ran.out) == (0, "")


def test_what_is_affected_and_not_built_here_is_no_failure(projects: Path, cli: Cli) -> None:
    rewrite(projects / "cc", '"cpu"', '"xpu"')
    ran = cli("build", "-C", projects, "--since", "HEAD")
    assert (ran.code, ran.out) == (0, "")
    assert "cc-kernel: no variant can be built here" in ran.err
    assert cli("build", "cc-kernel", "-C", projects, "--since", "HEAD").code != 0


def test_git_is_asked_once_also_where_a_member_cannot_be_read(
    projects: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (projects / "bad").mkdir()
    (projects / "bad/build.toml").write_text("[")
    commit(projects)
    edit(projects / "aa/build.toml")
    asked: list[Path] = []

    def find(folder: Path, environment: Mapping[str, str]) -> Repository:
        asked.append(folder)
        return find_repository(folder, environment)

    monkeypatch.setattr(since, "find_repository", find)
    for verb in ("list-variants", "plan", "build"):
        asked.clear()
        assert cli(verb, "-C", projects, "--since", "HEAD").code == 0
        assert len(asked) == 1


def test_a_broken_member_counts_if_it_was_changed(projects: Path, cli: Cli) -> None:
    (projects / "bad").mkdir()
    (projects / "bad/build.toml").write_text("[")
    assert cli("build", "-C", projects, "--since", "HEAD").code == 2
    commit(projects)
    edit(projects / "aa/build.toml")
    for verb in ("build", "list-variants", "plan"):
        ran = cli(verb, "-C", projects, "--since", "HEAD")
        assert ran.code == 0, ran.err
        assert "aa-kernel" in ran.out


def test_flags_that_hide_what_is_read_count_for_all_and_sources_for_metal_for_nothing(projects: Path) -> None:
    file = projects / "cc/build.toml"
    text = file.read_text().replace('["cpu"]', '["cpu", "metal"]')
    text += '[kernel.metal]\nbackend = "metal"\nsrc = ["metal/kernel.mm"]\ndepends = ["torch"]\n'
    text += '[kernel.more]\nbackend = "cpu"\nsrc = ["cpu/more.cpp"]\ndepends = ["torch"]\n'
    (projects / "cc/cpu/more.cpp").touch()
    (projects / "cc/metal").mkdir()
    (projects / "cc/metal/kernel.mm").write_text("#include EMBEDDED_METALLIB_HEADER\n")
    for flags, counts in (
        ("-O3", False),
        ("$<1:-I../bb>", True),
        ("-include../bb/x.h", True),
        ("-isystem../ee", False),
    ):
        file.write_text(f'{text}cxx-flags = ["{flags}"]\n')
        assert read_project(projects).unreadable == ()
        commit(projects)
        edit(projects / "bb/torch-ext/bb_kernel/op.py")
        assert ("cc-kernel" in reasons(projects)) == counts, flags


def test_each_link_of_a_chain_counts(projects: Path) -> None:
    (projects / "shared").mkdir()
    for name in ("v1.py", "v2.py"):
        (projects / "shared" / name).write_text("")
    (projects / "shared/cur.py").symlink_to("v1.py")
    (projects / "aa/torch-ext/aa_kernel/cur.py").symlink_to("../../../shared/cur.py")
    commit(projects)
    (projects / "shared/cur.py").unlink()
    (projects / "shared/cur.py").symlink_to("v2.py")
    assert reasons(projects)["aa-kernel"] == "shared/cur.py changed, which torch-ext/aa_kernel/cur.py leads to"


@pytest.mark.parametrize(
    "asks",
    [
        '#include "../../bb/include/extra.h"',
        '/* */ # include \\\n "../../bb/include/extra.h"',
        '#if __has_include( "../../bb/include/extra.h")\n#endif',
        '#include "../../bb/include/api.h"',
        '#define EXTRA "../../bb/include/extra.h"\n#include EXTRA',
    ],
)
def test_a_file_of_another_project_that_a_source_names_counts(projects: Path, asks: str) -> None:
    (projects / "bb/include").mkdir()
    (projects / "bb/include/api.h").write_text('#include "extra.h"\n')
    (projects / "bb/include/extra.h").touch()
    source = projects / "cc/cpu/kernel.cpp"
    source.write_text(f"{asks}\n{source.read_text()}")
    commit(projects)
    edit(projects / "bb/include/extra.h")
    what = "bb/include/extra.h changed"
    why = f"{what}, which it may read: what it reads is not known before a build"
    assert reasons(projects) == {"bb-kernel": what, "cc-kernel": why}
    git(projects, "checkout", "-q", ".")
    edit(projects / "bb/torch-ext/bb_kernel/op.py")
    assert ("cc-kernel" in reasons(projects)) == asks.endswith(" EXTRA")


@pytest.mark.parametrize("tracked", [True, False])
def test_a_repository_inside_counts_as_every_file_in_it(projects: Path, tracked: bool) -> None:  # noqa: FBT001
    third = projects / "bb/third"
    (third / "inner").mkdir(parents=True)
    (third / "e.h").touch()
    write_noarch(third / "inner", "inner-kernel")
    commit(third)
    source = projects / "cc/cpu/kernel.cpp"
    source.write_text(f'#include "../../bb/third/e.h"\n{source.read_text()}')
    git(projects, "add", "cc", *(["bb"] if tracked else []))
    git(projects, "commit", "-q", "-m", "x")
    edit(third / "e.h")
    assert set(reasons(projects)) == {"bb-kernel", "cc-kernel"}
    assert set(reasons(third / "inner")) == set()
