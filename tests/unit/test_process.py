"""Commands that are watched end, whatever they leave behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from hubkernels.host.process import run_watched

LEAVES_ONE_BEHIND = """
import os, subprocess, sys
words = [sys.executable, "-c", "import time; time.sleep(60)"]
print(subprocess.Popen(words, start_new_session={}).pid, flush=True)
os._exit(7)
"""


@pytest.mark.parametrize("away", [False, True], ids=["in its group", "in a session of its own"])
def test_what_a_command_left_behind_holds_nobody_up(tmp_path: Path, *, away: bool) -> None:
    """It holds the pipes, which used to be read to their end."""
    started = time.monotonic()
    command = (sys.executable, "-c", LEAVES_ONE_BEHIND.format(away))
    done = run_watched(command, cwd=tmp_path, env=os.environ, is_late=lambda: False)
    assert time.monotonic() - started < 30
    assert done.status == 7
    left = int(done.output)
    if away:
        os.kill(left, signal.SIGKILL)
    else:
        with pytest.raises(ProcessLookupError):
            wait_until_gone(left)


def wait_until_gone(process: int) -> None:
    for _ in range(100):
        os.kill(process, 0)
        time.sleep(0.1)


def test_what_is_late_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    command = ("sh", "-c", "echo begun; sleep 60; echo ended")
    done = run_watched(command, cwd=tmp_path, env=os.environ, is_late=lambda: True)
    assert (done.status, done.output) == (-signal.SIGKILL, "begun\n")
