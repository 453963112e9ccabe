"""Run a command and write down how much memory the largest of its processes took: ``measured.py FILE COMMAND...``.

It stands before every command of a build, so it imports little. It ends as the command did, by a signal too.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress


def main(file: str, command: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command hears of it itself
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        return 127
    _, status, usage = os.wait4(pid, 0)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    with suppress(OSError), open(file, "w", encoding="ascii") as out:  # noqa: PTH123 - pathlib costs as much as the rest
        out.write(str(usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)))
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))
