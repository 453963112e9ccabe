"""`check` with any number of names: which checks run, in which order, what each leaves, and the exit code."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hubkernels.build import report
from hubkernels.check.checks import Check
from hubkernels.check.runnable import Runnable
from hubkernels.check.verdict import Outcome, Subject
from hubkernels.cli import check as verb
from hubkernels.errors import CheckFailedError, EnvironmentLacksError, Problem
from tests.conftest import Cli, SmallProject, write_noarch

WORKSPACE = """\
[workspace]
schema = 1
general = { edition = 5, license = "MIT", backends = ["cpu"], version = 1 }
[package.one]
general = { version = 1 }
torch = { src = [] }
[package.two]
general = { version = 1 }
torch = { src = [] }
"""


def good(subject: Subject) -> Outcome:
    return Outcome(good=(f"variant of {subject.package.name}",), results=({"variants": list(subject.variants)},))


def wrong(subject: Subject) -> Outcome:
    return Outcome(problems=(Problem(f"{subject.package.name} is bad", "a file:1"), Problem("and ugly")))


def warns(subject: Subject) -> Outcome:
    return Outcome(good=(subject.package.name,), warnings=(Problem("the file is old", "build.toml:1"),))


def raises(subject: Subject) -> Outcome:
    raise CheckFailedError(f"{subject.package.name} crashes")


def lacks(subject: Subject) -> Outcome:
    raise EnvironmentLacksError(Problem(f"no client for {subject.package.name}", hint="install it"))


def only_one(subject: Subject) -> Outcome:
    if subject.package.name == "one":
        return good(subject)
    return Outcome(inapplicable=(Problem(f"{subject.package.name} names no case file"),))


def nothing(subject: Subject) -> Outcome:
    return Outcome(inapplicable=(Problem(f"{subject.package.name} names no case file"),))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages, and a table of checks that need no artifacts."""
    checks = {
        "good": good,
        "wrong": wrong,
        "raises": raises,
        "lacks": lacks,
        "some": only_one,
        "none": nothing,
        "warns": warns,
    }
    monkeypatch.setattr(verb, "CHECKS", table(checks))
    (tmp_path / "build.toml").write_text(WORKSPACE, encoding="utf-8")
    return tmp_path


def table(checks: Mapping[str, Callable[[Subject], Outcome]]) -> dict[str, Check]:
    return {name: Check(name, f"it is {name}", "looking at {}", run) for name, run in checks.items()}


def rows(text: str) -> list[list[str]]:
    return [line.split("  ") for line in text.splitlines()]


def test_named_checks_run_in_the_order_of_the_table_and_all_are_reported(project: Path, cli: Cli) -> None:
    ran = cli("check", "wrong", "one", "good", "--project", project)
    assert ran.code == 1
    assert rows(ran.out) == [
        ["ok", "good", "one", "variant of one"],
        ["failed", "wrong", "one", "2 problems, told below"],
    ]
    assert ran.err == "error: one is bad\n  --> a file:1\nerror: and ugly\n"


def test_without_a_name_all_run(project: Path, cli: Cli) -> None:
    ran = cli("check", project, "one")
    assert [(row[0], row[1]) for row in rows(ran.out)] == [
        ("ok", "good"),
        ("failed", "wrong"),
        ("failed", "raises"),
        ("not run", "lacks"),
        ("ok", "some"),
        ("skipped", "none"),
        ("ok", "warns"),
    ]


@pytest.mark.parametrize(
    ("checks", "code"),
    [(["good"], 0), (["good", "raises"], 1), (["wrong", "lacks", "good"], 3), (["good", "some"], 0), (["none"], 2)],
)
def test_the_exit_code_is_that_of_the_worst(project: Path, cli: Cli, checks: list[str], code: int) -> None:
    assert cli("check", *checks, "--project", project).code == code


def test_one_package_that_fails_does_not_hide_the_other(project: Path, cli: Cli) -> None:
    ran = cli("check", "lacks", project)
    assert rows(ran.out) == [
        ["not run", "lacks", "one", "no client for one"],
        ["not run", "lacks", "two", "no client for two"],
    ]
    assert ran.err == "".join(f"error: no client for {name}\n  hint: install it\n" for name in ("one", "two"))


def test_a_check_that_does_not_apply_is_said_to_be_skipped(project: Path, cli: Cli) -> None:
    ran = cli("check", "some", project)
    assert (ran.code, rows(ran.out)[1]) == (0, ["skipped", "some", "two", "two names no case file"])


def needs_torch(subject: Subject) -> Outcome:
    passed = {"torch-cpu": "torch is not installed"}
    return Outcome(inapplicable=(Runnable(subject.package.name, (), passed).problem(),))


def test_the_last_line_says_what_was_not_looked_at(project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch exit code 0 looked as if kernels had been loaded and compared."""
    checks = {"good": good, "some": only_one, "load": needs_torch, "none": nothing}
    monkeypatch.setattr(verb, "CHECKS", table(checks))
    ran = cli("check", project)
    assert (ran.code, ran.err) == (0, "2 of 4 checks were skipped: load (needs torch), none\n")


def test_a_check_and_a_package_that_are_both_named_must_meet(project: Path, cli: Cli) -> None:
    ran = cli("check", "some", "two", "--project", project)
    assert (ran.code, ran.err) == (2, "error: two names no case file\n")
    assert rows(ran.out) == [["not run", "some", "two", "two names no case file"]]


def test_a_package_that_is_called_as_a_check_is_named_by_option(project: Path, cli: Cli) -> None:
    text = (project / "build.toml").read_text(encoding="utf-8").replace("package.two", "package.good")
    (project / "build.toml").write_text(text, encoding="utf-8")
    ran = cli("check", "good", "--package", "good", "--project", project)
    assert rows(ran.out) == [["ok", "good", "good", "variant of good"]]


def test_json_has_one_object_for_each_check_of_each_package(project: Path, cli: Cli) -> None:
    ran = cli("check", "wrong", "good", "one", "--variant", "x", "--json", "--project", project)
    assert (ran.code, ran.err) == (1, "")
    assert json.loads(ran.out) == [
        {
            "check": "good",
            "package": "one",
            "state": "ok",
            "results": [{"variants": ["x"]}],
            "passed-over": [],
            "problems": [],
            "warnings": [],
        },
        {
            "check": "wrong",
            "package": "one",
            "state": "failed",
            "results": [],
            "passed-over": [],
            "problems": [{"what": "one is bad", "where": "a file:1"}, {"what": "and ugly"}],
            "warnings": [],
        },
    ]


def test_a_warning_is_told_once_and_fails_nothing(project: Path, cli: Cli) -> None:
    ran = cli("check", "warns", project)
    assert (ran.code, ran.err) == (0, "warning: the file is old\n  --> build.toml:1\n")
    found = json.loads(cli("check", "warns", project, "--json").out)
    assert [item["warnings"] for item in found] == [[{"what": "the file is old", "where": "build.toml:1"}]] * 2


def test_a_word_that_is_nothing_is_held_against_packages_and_checks(project: Path, cli: Cli) -> None:
    ran = cli("check", "godo", "--project", project)
    assert (ran.code, ran.err) == (2, "error: godo is neither a check nor a package\n  hint: did you mean good?\n")
    assert "error: no package tow in" in cli("check", "tow", "--project", project).err


def test_nothing_built_is_no_pass_and_is_told_once(small: SmallProject, cli: Cli) -> None:
    ran = cli("check", "builds", "load", "--project", small.root)
    assert ran.code == 2
    assert [row[:2] for row in rows(ran.out)] == [["not run", "builds"], ["not run", "load"]]
    assert ran.err.count("nothing is built in") == 1


@pytest.mark.parametrize("words", [("check", "builds"), ("check-builds",)])
def test_upstreams_verb_is_the_check(small: SmallProject, cli: Cli, words: tuple[str, ...]) -> None:
    ran = cli(*words, small.root)
    assert (ran.code, rows(ran.out)[0][:3]) == (2, ["not run", "builds", "my-kernel"])


def test_a_variant_that_is_named_is_all_that_is_looked_at(small: SmallProject, cli: Cli) -> None:
    for tag in ("torch-stable-abi210-cpu-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"):
        (small.root / "build/my-kernel" / tag).mkdir(parents=True)
        (small.root / "build/my-kernel" / tag / "metadata.json").write_text("{}", encoding="utf-8")
    ran = cli("check", "builds", small.root, "--variant", "torch213-cxx11-cpu-x86_64-linux", "--json")
    (found,) = json.loads(ran.out)
    assert {result["variant"] for result in found["results"]} == {"torch213-cxx11-cpu-x86_64-linux"}
    assert "is not built; built:" in cli("check", "builds", small.root, "--variant", "other").err


def test_where_no_change_affects_anything_there_is_nothing_to_check(project: Path, cli: Cli) -> None:
    for words in (("init", "-q"), ("add", "-A"), ("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "1")):
        subprocess.run(["git", "-C", str(project), *words], check=True)
    ran = cli("check", "-C", project, "--since", "HEAD", "--json")
    assert (ran.code, ran.out) == (0, "[]\n")
    assert "left out, since nothing that they read changed since HEAD: one, two" in ran.err
    assert cli("check", "good", "-C", project, "--since", "HEAD").code == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), ""),
        (("-m", "manylinux_2_28", "--python-abi", "3.9", "--torch-stable-abi", "2.10"), ""),
        (("--manylinux", "manylinux_2_34", "-p", "3.12", "--torch-stable-abi", "2.11"), ""),
        (("--manylinux", "manylinux_2_17"), "held to manylinux_2_28 and no older system, not to manylinux_2_17"),
        (("--manylinux", "musllinux_1_2"), "held to manylinux_2_28 and no older system, not to musllinux_1_2"),
        (("--python-abi", "3.8"), "held to Python 3.9 and no older one, not to 3.8"),
        (("--python-abi", "three"), "three is no version"),
        (("--torch-stable-abi", "2.9"), "my-kernel is held to 2.10"),
        (("--macos", "15.0"), "no library for macOS is built or read here"),
    ],
)
def test_what_upstreams_check_abi_may_ask_for_is_held_or_refused(
    small: SmallProject, cli: Cli, options: tuple[str, ...], why: str
) -> None:
    ran = cli("check-abi", *options, small.root)
    assert ran.code == 2
    assert (why or "nothing is built in") in ran.err
    assert ("nothing is built in" in ran.err) == (not why)


def test_upstreams_verbs_have_the_options_of_the_check(small: SmallProject, cli: Cli) -> None:
    for alias in ("check-config", "check-abi", "check-builds"):
        ran = cli(
            alias, small.root, "--package", "my-kernel", "--jobs", "1", "--memory", "1GB", "--since", "HEAD", "--debug"
        )
        assert (ran.code, "git finds no checkout here" in ran.err) == (2, True), ran.err


def test_packages_without_the_variant_are_passed_over_by_every_verb(tmp_path: Path, cli: Cli) -> None:
    write_noarch(tmp_path / "one", "one", ("cpu",))
    write_noarch(tmp_path / "two", "two", ("cuda",))
    tag = ("--variant", "torch-cpu", "-C", tmp_path)
    assert cli("build", "-C", tmp_path).code == 0
    for words in (
        ("build",),
        ("plan",),
        ("explain",),
        ("check", "builds"),
        ("check-builds",),
        ("testshell", "--print-env"),
    ):
        ran = cli(*words[:1], *tag, *words[1:])
        assert ran.code == 0, (words, ran.err)
        if words[0] != "explain":
            assert "two: no torch-cpu " in ran.err
    assert [plan["package"] for plan in json.loads(cli("plan", *tag, "--json").out)] == ["one"]
    for words in (("plan",), ("check", "builds"), ("build",)):
        assert cli(*words, "two", *tag).code == 2
        assert cli(*words, "-C", tmp_path, "--variant", "torch-npu").code == 2


def test_who_waits_for_a_check_is_told_which_one_it_is(
    project: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(subject: Subject) -> Outcome:
        time.sleep(0.3)
        return good(subject)

    monkeypatch.setattr(report, "LONG_S", 0.1)
    monkeypatch.setattr(verb, "CHECKS", table({"slow": slow, "quick": good}))
    ran = cli("check", "slow", "quick", "--project", project, "--package", "one", "--json")
    assert ran.err == "slow: looking at one\n"
    assert [found["check"] for found in json.loads(ran.out)] == ["slow", "quick"]
