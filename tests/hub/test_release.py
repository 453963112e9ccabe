"""`kernel-builder release`, in fresh processes, to a Hub of our own: stopped, killed, and called again."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOARCH_INIT_PY, NOARCH_OP_PY, Cli, Ran, SmallProject, write_noarch
from tests.hub.conftest import CI, CPU, CUDA, HUB, LATE, OWNER, REPO, Serve, Served, Verb, commit_all, run
from tests.hub.test_publish import head, meanwhile, tree, write_over

pytest.importorskip("torch", reason="what is released is loaded")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

BUILD_TOML = """\
[workspace]
schema = 1
general = { edition = 5, license = "Apache-2.0", backends = ["cpu"] }
torch-noarch = { pyext = ["bin"] }

[package.my-table]
parity = ["tests/cases/answer.py"]
general = { version = 1, hub.repo-id = "org/my-table" }
"""

CASE = """\
import os
import signal

import torch
from hubkernels.check.opcase import OpCase, Tolerance


def reference(x):
    if os.environ.get("KILL"):
        os.kill(os.getppid(), signal.SIGKILL)
    if os.environ.get("SPOIL"):
        with open(os.environ["SPOIL"], "a") as file:
            file.write("# spoilt\\n")
    return x + OFFSET


OFFSET = 41
CASE = OpCase(
    op="answer",
    shapes={"one": (1,), "ragged": (3, 17)},
    bench_shapes=("ragged",),
    dtypes=("float32",),
    make=lambda shape, dtype, generator: {"x": torch.randn(shape, generator=generator).to(dtype)},
    reference=reference,
    gradients=(),
    tolerance=lambda shape, dtype, name: Tolerance(relative=1e-6, absolute=1e-6),
    bytes_moved=lambda shape, dtype, backward: 8,
    flops=lambda shape, backward: 1,
)
"""

GATES = ("build", "config", "abi", "builds", "load", "reproducible", "parity")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A workspace with a package of Python files that has a case; nothing is built."""
    folder = tmp_path / "project"
    for name, text in {
        "build.toml": BUILD_TOML,
        ".gitignore": "build/\n",
        "tests/cases/answer.py": CASE,
        "torch-ext/my_table/my_table/__init__.py": f'"""A table."""\n{NOARCH_INIT_PY}',
        "torch-ext/my_table/my_table/op.py": NOARCH_OP_PY,
        "torch-ext/my_table/my_table/data/table.bin": "table",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert run("git", "init", "-q", folder).returncode == 0
    commit_all(folder)
    return folder


Release = Callable[..., Ran]


@pytest.fixture
def release(tmp_path: Path, project: Path) -> Release:
    def call(hub: Served, *words: str, **changes: str) -> Ran:
        variables = {"HF_ENDPOINT": hub.url, "HF_TOKEN": CI, "HF_HOME": str(tmp_path / "hf"), **changes}
        ended = run(sys.executable, "-m", "hubkernels.cli", "release", "--project", project, *words, **variables)
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return call


def states(ran: Ran) -> dict[str, str]:
    """The state of each step."""
    found: dict[str, Any] = json.loads(ran.out)
    return {step["step"]: step["state"] for step in found["steps"]}


def edit(project: Path, name: str, old: str, new: str) -> None:
    file = project / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    commit_all(project)


def test_a_release_passes_every_gate_and_is_on_the_hub(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    ran = release(hub, "--json")
    assert ran.code == 0, ran.err
    assert list(states(ran)) == [*GATES, "publish", "read back", "card", "lock"]
    summary = json.loads(ran.out)
    assert (summary["status"], summary["failed"]) == ("released", None)
    (published,) = summary["published"]
    assert (published["commit"], published["card_commit"]) == (head(hub), head(hub, "main"))
    assert published["read_back"][0]["passed"] == 2
    assert f"records/{CPU}/parity.json" in tree(hub)
    text = hub.ask("GET", f"/kernels/{REPO}/resolve/main/README.md", token=OWNER).body.decode()
    assert "\nA table.\n" in text
    assert f"| `{CPU}` | `{published['read_back'][0]['digest'][:16]}` | 2/2 | 0.0" in text
    assert json.loads((project / "build/kernels.lock").read_text()) == [
        {"dependency": {"repo-id": REPO, "revision": head(hub)}, "lock": {"commit": head(hub)}}
    ]
    lock = project / "build/kernels.lock"
    assert summary["next"] == [f"kernel-builder {verb} --lock {lock}" for verb in ("prefetch", "audit")]


def test_a_release_goes_where_the_command_line_says(serve: Serve, project: Path, release: Release, verb: Verb) -> None:
    """It used to know build.toml alone. What it tells to do next works in any folder."""
    hub = serve()
    edit(project, "build.toml", ', hub.repo-id = "org/my-table"', "")
    refused = release(hub)
    assert (refused.code, "--repo-id OWNER/my-table" in refused.err) == (2, True), refused.err
    ran = release(hub, "--repo-id", "org/elsewhere")
    assert ran.code == 0, ran.err
    assert head(hub, "v1", "org/elsewhere")
    commands = [line.split()[2:] for line in ran.out.splitlines() if line.startswith("  next: kernel-builder ")]
    assert [words[0] for words in commands] == ["prefetch", "audit"]
    for words in commands:
        assert verb(hub, *words).code == 0


def test_a_second_release_does_nothing_again(serve: Serve, release: Release) -> None:
    hub = serve()
    assert release(hub).code == 0
    before = head(hub), head(hub, "main")
    again = release(hub, "--json")
    assert again.code == 0, again.err
    assert {name for name, state in states(again).items() if state == "done"} == {
        *("abi", "builds", "load", "reproducible", "parity", "read back")
    }
    assert json.loads(again.out)["published"][0]["status"] == "no_changes"
    assert (head(hub), head(hub, "main")) == before


def test_a_gate_that_fails_ends_it_and_the_next_run_begins_there(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    edit(project, "tests/cases/answer.py", "OFFSET = 41", "OFFSET = 42")
    ran = release(hub)
    assert ran.code == 1
    assert "error: the release stopped at parity of my-table\n" in ran.err
    assert f"`kernel-builder check parity my-table --project {project}` does just that" in ran.err
    assert "Traceback" not in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404
    failed = json.loads(release(hub, "--json").out)["failed"]
    assert (failed["step"], failed["packages"]) == ("parity", ["my-table"])
    edit(project, "tests/cases/answer.py", "OFFSET = 42", "OFFSET = 41")
    again = states(release(hub, "--json"))
    assert (again["reproducible"], again["parity"], again["publish"]) == ("done", "ok", "ok")


def test_a_killed_run_is_gone_on_with(serve: Serve, release: Release) -> None:
    hub = serve()
    assert release(hub, KILL="1").code == -signal.SIGKILL
    again = states(release(hub, "--json"))
    assert (again["load"], again["reproducible"], again["parity"]) == ("done", "done", "ok")
    assert head(hub)


def test_changed_artifacts_pass_every_gate_again(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    assert release(hub).code == 0
    edit(project, "torch-ext/my_table/my_table/op.py", "x + 41", "x + 41 + 0")
    assert "done" not in states(release(hub, "--json")).values()


def test_what_changes_while_it_is_released_is_not_published(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    ran = release(hub, SPOIL=str(project / f"build/my-table/{CPU}/op.py"))
    assert ran.code == 1
    assert "my-table was changed while it was released: abi has not seen it as it is now" in ran.err
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404
    assert not (project / f"build/my-table/{CPU}.records").exists()  # of neither the one nor the other


def test_what_changes_after_the_last_gate_is_not_published(serve: Serve, project: Path, release: Release) -> None:
    file = project / f"build/my-table/{CPU}/op.py"
    hub = serve(wrap=meanwhile("/api/repos/create", lambda: write_over(file)))
    ran = release(hub, "--json")
    assert ran.code == 1
    failed = json.loads(ran.out)["failed"]
    assert (failed["step"], failed["packages"]) == ("publish", ["my-table"])
    assert failed["problems"][0]["what"] == f"{file} was changed while it was published: this commit was not made"
    assert head(hub) == head(hub, "main")


def test_a_plan_tells_why_and_does_nothing(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    ran = release(hub, "--plan")
    assert ran.code == 0, ran.err
    assert f"run  build         my-table  {CPU}: not built yet\n" in ran.out
    assert "run  parity        my-table  of artifacts that are yet to be built\n" in ran.out
    assert not (project / "build/my-table").exists()
    edit(project, "tests/cases/answer.py", "OFFSET = 41", "OFFSET = 42")
    assert release(hub).code == 1
    plan = states(release(hub, "--plan", "--json"))
    assert {name: state for name, state in plan.items() if name in {"build", "reproducible", "parity"}} == {
        "build": "done",
        "reproducible": "done",
        "parity": "run",
    }


def test_a_dry_run_publishes_nothing(serve: Serve, release: Release) -> None:
    hub = serve()
    ran = release(hub, "--dry-run", "--json", HF_TOKEN="")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["status"] == "would_release"
    (warning,) = json.loads(ran.out)["warnings"]
    assert warning["what"] == "publishing would fail: there is no token to write with"
    assert json.loads(ran.out)["published"][0]["status"] == "would_upload"
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


def test_what_is_not_committed_is_told_before_the_gates(serve: Serve, project: Path, release: Release) -> None:
    (project / "torch-ext/my_table/my_table/more.py").write_text("x = 1\n", encoding="utf-8")
    ran = release(serve(), "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["failed"]["step"] == "publish"
    assert list(states(ran)) == ["build"]
    assert json.loads(ran.err.splitlines()[-1])["exit-code"] == 1


def test_a_hub_that_refuses_ends_it_with_its_code(serve: Serve, release: Release) -> None:
    """Before the gates: a token that is no more is not found out an hour later."""
    ran = release(serve(), "--json", HF_TOKEN=LATE)
    assert ran.code == 4
    assert json.loads(ran.out)["failed"]["step"] == "publish"
    assert list(states(ran)) == ["build"]


def test_what_repeats_the_publishing_has_every_option_of_the_run(
    serve: Serve, project: Path, release: Release, tmp_path: Path, cli: Cli
) -> None:
    """It used to keep --repo-id alone: a private kernel was published to all, unsigned, by who followed it."""
    pytest.importorskip("sigstore", reason="an extra: keys and bundles are its dependencies'")
    key, out = tmp_path / "a key", tmp_path / "out $HOME.json"
    assert cli("keygen", key).code == 0
    options = ["--allow-dirty", "--repo-id", "org/else", "--private", "--sign-key", str(key), "--no-card"]
    ran = release(serve(), *options, "--output-json", str(out), "--json", "--trust", "org", HF_TOKEN=LATE)
    assert ran.code == 4, ran.err
    words = shlex.split(json.loads(ran.out)["failed"]["repeat"])
    ends = ["--output-json", str(out), "--json", "--project", str(project)]
    assert words == ["kernel-builder", "publish", "my-table", "--dry-run", *options, *ends]


def test_an_empty_repository_is_none(serve: Serve, release: Release) -> None:
    """The one of build.toml was taken."""
    hub = serve()
    ran = release(hub, "--repo-id", "", "--json")
    assert ran.code == 2, ran.err
    assert json.loads(ran.out)["failed"]["problems"][0]["what"] == "an empty name is not a repository of the Hub"
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


OTHER_PACKAGE = """
[package.other-table]
general = { version = 1, hub.repo-id = "another-org/other-table" }
"""


def test_of_two_packages_none_is_sent_where_one_is_refused(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    shutil.copytree(project / "torch-ext/my_table/my_table", project / "torch-ext/other_table/other_table")
    edit(project, "build.toml", BUILD_TOML, BUILD_TOML + OTHER_PACKAGE)
    ran = release(hub, "--json")
    assert ran.code == 4
    (problem,) = json.loads(ran.out)["failed"]["problems"]
    assert problem["what"] == "the token of ci has no role on another-org"
    assert list(states(ran)) == ["build"]
    assert hub.ask("GET", f"/api/kernels/{REPO}", token=OWNER).status == 404


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Two projects in one folder, one of them for devices that nothing here compiles for."""
    folder = tmp_path / "uneven"
    write_noarch(folder / "aa", "aa-table", ["cpu"], top=HUB.replace("my-table", "aa-table"))
    (folder / "bb").mkdir()
    SmallProject(folder / "bb", "bb-kernel").write()
    file = folder / "bb/build.toml"
    file.write_text(file.read_text().replace('"cpu"', '"xpu"') + HUB.replace("my-table", "bb-kernel"))
    (folder / ".gitignore").write_text("build/\n")
    assert run("git", "init", "-q", folder).returncode == 0
    commit_all(folder)
    return folder


LEFT_OUT = "bb-kernel: no variant can be built here; `kernel-builder list-variants` tells why\n"


def test_a_package_that_cannot_be_built_here_is_left_out_of_plans_and_publishing_too(
    serve: Serve, uneven: Path, verb: Verb
) -> None:
    """`release` passed it over, and its plan, `publish`, and what `release` told to call ended with 2."""
    hub = serve()
    ran = verb(hub, "release", "-C", uneven, "--plan", "--json")
    assert ran.code == 0, ran.err
    assert {step["package"] for step in json.loads(ran.out)["steps"]} == {"aa-table"}
    assert ran.err == LEFT_OUT
    assert verb(hub, "release", "bb-kernel", "-C", uneven, "--plan").code == verb(hub, "build", uneven / "bb").code != 0
    ran = verb(hub, "publish", "-C", uneven)
    assert (ran.code, "nothing is built in" in ran.err) == (2, True)
    ran = verb(hub, "release", "-C", uneven, "--json", token=LATE)
    assert (ran.code, list(states(ran))) == (4, ["build"])
    (_, *repeat) = shlex.split(json.loads(ran.out)["failed"]["repeat"])
    assert repeat[:3] == ["publish", "aa-table", "--dry-run"]
    assert verb(hub, *repeat).code == 0
    ran = verb(hub, "publish", "-C", uneven, "--no-read-back", "--json")
    assert ran.code == 0, ran.err
    assert [each["repo_id"] for each in json.loads(ran.out)] == ["org/aa-table"]
    assert LEFT_OUT in ran.err
    assert verb(hub, "publish", "bb-kernel", "-C", uneven).code == 2
    ran = verb(hub, "release", "-C", uneven, "--json")
    assert ran.code == 0, ran.err
    lock = json.loads(ran.out)["steps"][-1]
    assert (lock["step"], lock["package"]) == ("lock", "aa-table")


def test_what_repeats_a_build_leaves_out_what_the_release_did(serve: Serve, uneven: Path, verb: Verb) -> None:
    (uneven / "aa/torch-ext/aa_table/gone.py").symlink_to("nowhere")
    ran = verb(serve(), "release", "-C", uneven, "--json")
    failed = json.loads(ran.out)["failed"]
    assert (ran.code, failed["step"]) == (2, "build")
    assert failed["repeat"] == f"kernel-builder build --project {uneven}"


def test_what_is_wrong_with_each_package_is_told(serve: Serve, project: Path, verb: Verb) -> None:
    edit(project, "build.toml", BUILD_TOML, BUILD_TOML + OTHER_PACKAGE)
    ran = verb(serve(), "publish", "--project", project)
    assert ran.code == 2
    for name in ("my-table", "other-table"):
        assert f"nothing is built in {project}/build/{name}" in ran.err


def test_a_gate_that_was_skipped_has_not_passed(serve: Serve, project: Path, release: Release) -> None:
    hub = serve()
    edit(project, "build.toml", 'parity = ["tests/cases/answer.py"]\n', "")
    for _ in range(2):
        ran = release(hub, "--json")
        assert ran.code == 0, ran.err
        assert states(ran)["parity"] == "skipped"


def test_a_parity_check_leaves_its_record_beside_the_artifact(project: Path, cli: Cli) -> None:
    assert cli("build", "--project", project).code == 0
    assert cli("check", "parity", "--project", project).code == 0
    record = json.loads((project / f"build/my-table/{CPU}.records/parity.json").read_text())
    assert (record["variant"], [row["ok"] for row in record["rows"]]) == (CPU, [True, True])


def test_benchmarks_go_along_where_they_are_asked_for(serve: Serve, release: Release) -> None:
    hub = serve()
    ran = release(hub, "--bench", "--json")
    assert ran.code == 0, ran.err
    assert states(ran)["bench"] == "ok"
    assert f"records/{CPU}/bench.json" in tree(hub)
    assert states(release(hub, "--bench", "--json"))["bench"] == "done"


def test_bench_run_times_what_this_machine_can_load_and_tells_the_rest(project: Path, cli: Cli) -> None:
    """What was built for a GPU ended in a traceback of the client's on machines without one."""
    edit(project, "build.toml", 'backends = ["cpu"]', 'backends = ["cpu", "cuda"]')
    ran = cli("bench", "run", "--project", project, "--seconds", "0.01", "--json")
    assert ran.code == 0, ran.err
    assert {record["variant"] for record in json.loads(ran.out)} == {CPU}
    assert f"not timed: my-table {CUDA}: needs a torch for cuda" in ran.err
    edit(project, "build.toml", 'backends = ["cpu", "cuda"]', 'backends = ["cuda"]')
    ran = cli("bench", "run", "--project", project, "--seconds", "0.01")
    assert ran.code == 3
    assert "no artifact of my-table can be loaded here" in ran.err


def test_a_release_is_signed_and_locked_for_who_trusts_nobody(
    serve: Serve, project: Path, release: Release, tmp_path: Path, cli: Cli
) -> None:
    pytest.importorskip("sigstore", reason="an extra: keys and bundles are its dependencies'")
    hub = serve(trust="another-org")
    assert cli("keygen", tmp_path / "key").code == 0
    ran = release(hub, "--json", "--sign-key", str(tmp_path / "key"))
    assert ran.code == 0, ran.err
    assert f"build/{CPU}/metadata.json.sigstore" in tree(hub)
    assert (project / "build/kernels.hashes.json").is_file()
