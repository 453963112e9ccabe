"""What a process that loads kernels is told of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubkernels.check.client import Counted, HungError, Task, run_in_fresh_process, without_secrets
from tests.conftest import environment

COUNTING = """
import time
def work(pauses_s, count):
    for done, pause_s in enumerate(pauses_s):
        count(done, len(pauses_s), f"case {done}")
        time.sleep(pause_s)
    return "done"
"""


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_OIDC_ID_TOKEN", "HUBKERNELS_HUB_TOKENS"),
        *("HUBKERNELS_SIGN_KEY", "HUBKERNELS_SIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "TWINE_PASSWORD"),
        *("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_RUNTIME_TOKEN"),
        *("BUILDKITE_AGENT_ACCESS_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "gitlab_token", "SSH_AUTH_SOCK", "PGPASSWD"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY"),
    ],
)
def test_kernels_do_not_get_what_writes_or_signs(name: str) -> None:
    """Eleven names were left out, and the token of any other service passed."""
    assert without_secrets({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_kernels_get_what_they_run_with() -> None:
    needed = {
        *("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "ASAN_OPTIONS"),
        *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HUBKERNELS_ISA", "HF_HUB_CACHE", "HF_ENDPOINT", "LOCAL_KERNELS"),
    }
    assert without_secrets(dict.fromkeys(needed, "x")).keys() == needed


def do(folder: Path, pauses_s: list[float], timeout_s: float, heard: list[Counted]) -> object:
    """Cases that take so long, one after another."""
    (folder / "counting.py").write_text(COUNTING, encoding="utf-8")
    path = environment(PYTHONPATH=f"{Path(__file__).parents[2] / 'src'}:{folder}")
    task, request = Task("parity", "counting:work", requires=(), counts=True), {"pauses_s": pauses_s}
    return run_in_fresh_process(task, request, timeout_s=timeout_s, environment=path, hear=heard.append)


def test_a_busy_machine_makes_no_check_fail_and_who_waits_hears_how_far_it_is(tmp_path: Path) -> None:
    """The limit was for all cases together: 30 minutes without a word, then a failure with nothing wrong."""
    heard: list[Counted] = []
    assert do(tmp_path, [1.2] * 8, 8, heard) == "done"
    assert [(each.at, each.total) for each in heard[-2:]] == [("case 6", 8), ("case 7", 8)]


def test_a_case_that_hangs_is_named_with_what_next_and_the_stack_is_for_who_asks(tmp_path: Path) -> None:
    with pytest.raises(HungError) as raised:
        do(tmp_path, [0, 0, 600, 0], 6, [])
    (problem,) = raised.value.problems
    place = f"{tmp_path}/counting.py, line 6"
    assert problem.what == f"parity: no case was done for 6 s: it was at case 2, 2 of 4 done; in {place}"
    assert problem.hint is not None
    assert "run it again" in problem.hint
    assert f'File "{tmp_path}/counting.py", line 6 in work' in raised.value.with_stack().what
