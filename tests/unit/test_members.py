"""Members of a workspace: patterns, folders of projects, and broken ones beside good ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hubkernels.config import load_project, read_project
from hubkernels.config.members import is_project
from hubkernels.errors import (
    CHECK_FAILED,
    CheckFailedError,
    EnvironmentLacksError,
    InputError,
    Problem,
    combined,
)
from tests.conftest import Cli, write_noarch

COMMUNITY = os.environ.get("HUBKERNELS_COMMUNITY", "")


def workspace(root: Path, members: list[str], exclude: list[str] | None = None) -> Path:
    text = f"[workspace]\nschema = 1\nmembers = {json.dumps(members)}\n"
    (root / "build.toml").write_text(text + (f"exclude = {json.dumps(exclude)}\n" if exclude else ""))
    return root


def folders(root: Path) -> list[str]:
    return [package.root.relative_to(root).as_posix() for package in load_project(root).packages]


def problems(root: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_project(root)
    return [str(problem).replace(f"{root}/", "") for problem in caught.value.problems]


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """Three projects two levels down, one three levels, one that is hidden, and a folder that is none."""
    for name in ("zz", "aa", "mm"):
        write_noarch(tmp_path / "kernels" / name, f"{name}-kernel")
    write_noarch(tmp_path / "kernels/deep/er", "deeper")
    write_noarch(tmp_path / "kernels/.hidden", "hidden")
    (tmp_path / "kernels/docs").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("members", "exclude", "found"),
    [
        (["kernels/*"], [], ["kernels/aa", "kernels/mm", "kernels/zz"]),
        (["kernels/?m", "kernels/*"], [], ["kernels/mm", "kernels/aa", "kernels/zz"]),
        (["kernels/zz", "kernels/*"], [], ["kernels/zz", "kernels/aa", "kernels/mm"]),
        (["kernels/[az]*/"], [], ["kernels/aa", "kernels/zz"]),
        (["**"], [], ["kernels/aa", "kernels/deep/er", "kernels/mm", "kernels/zz"]),
        (["kernels/*"], ["kernels/mm"], ["kernels/aa", "kernels/zz"]),
        (["**"], ["kernels/deep/*", "kernels/a*"], ["kernels/mm", "kernels/zz"]),
        (["./kernels/aa", "kernels/aa"], [], ["kernels/aa"]),
    ],
)
def test_patterns_name_folders_with_a_build_toml_sorted_and_once(
    kernels: Path, members: list[str], exclude: list[str], found: list[str]
) -> None:
    assert folders(workspace(kernels, members, exclude)) == found


def test_an_entry_without_a_match_is_an_error_at_its_place(kernels: Path) -> None:
    workspace(kernels, ["kernels/*", "kernles/*"], ["kernels/zzz"])
    assert problems(kernels) == [
        "no folder with a build.toml matches kernles/*\n"
        "  --> build.toml:3: workspace.members[1]\n"
        "  hint: drop the pattern",
        "no member matches kernels/zzz\n  --> build.toml:4: workspace.exclude[0]\n  hint: did you mean kernels/zz?",
    ]


def test_two_members_of_one_name_are_refused_in_either_kind_of_workspace(tmp_path: Path) -> None:
    write_noarch(tmp_path / "a", "same")
    write_noarch(tmp_path / "b", "same")
    assert problems(tmp_path) == ["two packages are called same\n  --> b/build.toml:2: general.name"]
    workspace(tmp_path, ["*"])
    assert problems(tmp_path) == ["two packages are called same\n  --> build.toml:3: workspace.members[0]"]


def test_a_folder_of_projects_is_a_workspace_of_them(kernels: Path, cli: Cli) -> None:
    folder = kernels / "kernels"
    assert is_project(folder)
    assert not is_project(folder / "docs")
    assert folders(folder) == ["aa", "mm", "zz"]
    listed = json.loads(cli("list-variants", "-C", folder, "--json").out)
    assert list(listed) == ["aa-kernel", "mm-kernel", "zz-kernel"]
    assert all(decided["accepted"] == ["torch-cpu", "torch-cuda"] for decided in listed.values())
    ran = cli("build", "-C", folder)
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in (folder / "build").glob("[a-z]*") if path.is_dir()) == [
        "aa-kernel",
        "mm-kernel",
        "zz-kernel",
    ]
    assert not list(folder.glob("*/build"))
    ran = cli("build", "mm_kernel", "-C", folder)
    assert ran.out.count("up to date") == 2


def test_a_folder_without_projects_is_none(tmp_path: Path, cli: Cli) -> None:
    ran = cli("build", "-C", tmp_path)
    assert ran.code == 2
    assert "error: no build.toml in" in ran.err


@pytest.fixture
def broken(kernels: Path) -> Path:
    """A workspace where one member is no TOML, one has two problems, and three are good."""
    folder = kernels / "kernels"
    (folder / "bad").mkdir()
    (folder / "bad/build.toml").write_text("[")
    write_noarch(folder / "worse", "worse-kernel", more="one = 1\ntwo = 2")
    return folder


BROKEN = [
    "not valid TOML: Invalid initial character for a key part --> bad/build.toml:1:2",
    "unknown key one --> worse/build.toml:10: torch-noarch.one",
    "unknown key two --> worse/build.toml:11: torch-noarch.two",
]


def told(text: str, root: Path) -> list[str]:
    """The errors on standard error, each on one line without its hint."""
    blocks = text.split("error: ")[1:]
    return [" ".join(block.splitlines()[:2]).replace("  -->", "-->").replace(f"{root}/", "") for block in blocks]


def test_one_bad_member_hides_no_problem_of_another(broken: Path, cli: Cli) -> None:
    assert [problem.replace("\n  -->", " -->").splitlines()[0] for problem in problems(broken)] == BROKEN
    for verb in ("plan", "explain", "check builds"):
        ran = cli(*verb.split(), "-C", broken)
        assert (ran.code, told(ran.err, broken), ran.out) == (2, BROKEN, "")


def test_build_and_list_variants_do_the_good_ones_first(broken: Path, cli: Cli) -> None:
    ran = cli("list-variants", "-C", broken)
    assert (ran.code, told(ran.err, broken)) == (2, BROKEN)
    assert [line for line in ran.out.splitlines() if line.endswith(":")] == ["aa-kernel:", "mm-kernel:", "zz-kernel:"]
    ran = cli("build", "-C", broken, "--json")
    told_last = json.loads(ran.err.splitlines()[-1])
    found = [f"{problem['what']} --> {problem['where']}" for problem in told_last["problems"]]
    assert (ran.code, [text.replace(f"{broken}/", "") for text in found]) == (2, BROKEN)
    assert {item["package"] for item in json.loads(ran.out)} == {"aa-kernel", "mm-kernel", "zz-kernel"}


def test_a_named_package_is_not_stopped_by_a_broken_sibling(broken: Path, cli: Cli) -> None:
    ran = cli("build", "aa-kernel", "-C", broken)
    assert (ran.code, ran.err) == (0, "")
    for name in ("worse-kernel", "worse_kernel", "worse"):
        ran = cli("build", "aa-kernel", name, "-C", broken)
        assert (ran.code, told(ran.err, broken)) == (2, BROKEN[1:])
        assert ran.out == ""
    ran = cli("build", "bad", "aa_kernle", "-C", broken)
    assert ran.code == 2
    assert told(ran.err, broken)[0] == BROKEN[0]
    assert "no package aa_kernle" in ran.err
    assert "did you mean aa-kernel?" in ran.err


def test_clean_works_beside_a_broken_member_and_stays_in_build(broken: Path, cli: Cli) -> None:
    cli("build", "-C", broken)
    (broken / "build/worse-kernel").mkdir()
    (broken / "up").mkdir()
    (broken / "up/build.toml").write_text('[general]\nname = ".."\n')
    assert cli("clean", "-C", broken).code == 0
    assert [path.name for path in (broken / "build").iterdir()] == [".hubkernels"]
    assert (broken / "up/build.toml").is_file()


def test_builds_go_on_after_a_failure_and_tell_all_of_them(kernels: Path, cli: Cli) -> None:
    folder = kernels / "kernels"
    for name in ("aa", "mm"):
        (folder / name / f"torch-ext/{name}_kernel/__init__.py").unlink()
    ran = cli("build", "-C", folder)
    assert ran.code == 2
    assert [line.split()[1] for line in ran.out.splitlines()] == ["zz-kernel", "zz-kernel"]
    assert "aa-kernel failed, which is told at the end" in ran.err.splitlines()[0]
    assert "told at the end" not in cli("build", "-C", folder, "aa-kernel").err  # which is at once
    assert [error.split(" has no Python package")[0] for error in told(ran.err, folder)] == ["aa-kernel", "mm-kernel"]


def test_fail_fast_stops_at_the_first_failure(kernels: Path, broken: Path, cli: Cli) -> None:
    (broken / "mm/torch-ext/mm_kernel/__init__.py").unlink()
    ran = cli("build", "-C", broken, "--fail-fast")
    assert (ran.code, ran.out) == (2, "")
    assert told(ran.err, broken) == BROKEN[:1]
    workspace(kernels, ["kernels/aa", "kernels/mm", "kernels/zz"])
    ran = cli("build", "-C", kernels, "--fail-fast")
    assert ran.code == 2
    assert {line.split()[1] for line in ran.out.splitlines()} == {"aa-kernel"}


def test_a_variant_that_only_some_packages_have_is_built_of_those(kernels: Path, cli: Cli) -> None:
    folder = kernels / "kernels"
    write_noarch(folder / "tpu", "for-tpu", ["tpu"])
    ran = cli("build", "-C", folder, "--variant", "torch-tpu")
    assert ran.code == 0, ran.err
    assert [line.split()[1:3] for line in ran.out.splitlines()] == [["for-tpu", "torch-tpu"]]
    assert "aa-kernel: no torch-tpu can be built here" in ran.err
    assert cli("build", "aa-kernel", "-C", folder, "--variant", "torch-tpu").code == 2
    ran = cli("build", "-C", folder, "--variant", "torch-cpx")
    assert ran.code == 2
    assert "did you mean torch-cpu?" in ran.err


def test_errors_of_several_packages_have_the_worst_code_and_each_problem_once() -> None:
    same, other = Problem("disk full", "x"), Problem("bad", "y")
    error = combined([InputError(other), EnvironmentLacksError(same), EnvironmentLacksError(same)])
    assert isinstance(error, EnvironmentLacksError)
    assert error.problems == (other, same)
    assert combined([CheckFailedError(same)]).exit_code == CHECK_FAILED


@pytest.mark.skipif(not COMMUNITY, reason="HUBKERNELS_COMMUNITY names no checkout of huggingface/kernels-community")
def test_a_checkout_of_52_upstream_projects_is_read_whole(cli: Cli) -> None:
    project = read_project(Path(COMMUNITY))
    assert (len(project.packages), project.unreadable) == (52, ())
    ran = cli("list-variants", "-C", COMMUNITY, "--json")
    assert ran.code == 0, ran.err
    assert len(json.loads(ran.out)) == 52


@pytest.mark.parametrize("name", [".", "./", "kernels/.."])
def test_a_workspace_is_no_member_of_itself(kernels: Path, name: str) -> None:
    (only,) = problems(workspace(kernels, [name]))
    assert "a workspace is no member of itself\n  --> build.toml:3: workspace.members[0]" in only


@pytest.mark.parametrize("listed", [True, False])
def test_a_workspace_is_no_member_which_is_all_that_is_said(tmp_path: Path, cli: Cli, *, listed: bool) -> None:
    write_noarch(tmp_path / "one", "one")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/build.toml").write_text("[workspace]\nschema = 1\n[package.two]\ngeneral = {}\n")
    if listed:
        (tmp_path / "build.toml").write_text('[workspace]\nschema = 1\nmembers = ["*"]\n')
    ran = cli("check", "config", "-C", tmp_path)
    assert ran.code == 2
    assert ran.err.count("error: ") == 1
    assert "more is a workspace and cannot be a member\n" in ran.err
    assert f"hint: name it as the project: `kernel-builder build {tmp_path / 'more'}`" in ran.err
    assert cli("build", "one", "-C", tmp_path).code == 0


@pytest.mark.parametrize("entry", ["a/\\u0000", "a\\u0000*", "a\\u001b"])
def test_an_entry_with_a_control_character_is_told_and_looked_for_nowhere(tmp_path: Path, cli: Cli, entry: str) -> None:
    """A null byte is no part of a path: to open one raises what is no OSError."""
    text = f'[workspace]\nschema = 1\nmembers = ["{entry}"]\nexclude = ["{entry}"]\n'
    (tmp_path / "build.toml").write_text(text)
    for verb in ("check config", "build", "clean"):
        ran = cli(*verb.split(), "-C", tmp_path)
        assert ran.code == 2
        assert ran.err.count("has a control character") == 2
        assert "build.toml:3: workspace.members[0]" in ran.err
