"""The one module that starts processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hubkernels.errors import EnvironmentLacksError, Problem

_LOOK_S = 0.5


@dataclass(frozen=True)
class Finished:
    """What a process left behind."""

    status: int
    output: str
    errors: str


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> Finished:
    """Run a command to its end. Raises EnvironmentLacksError when it cannot be started or does not end in time."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot start {command[0]}: {error.strerror}")) from error
    except subprocess.TimeoutExpired as error:
        raise EnvironmentLacksError(Problem(f"{command[0]} did not end within {timeout_s:g} s")) from error
    return Finished(done.returncode, done.stdout, done.stderr)


def run_watched(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], is_late: Callable[[], bool]
) -> Finished:
    """Run a command to its end, or until it is late: then it is killed. is_late: asked every half second.

    What it started and left behind ends with it. Raises EnvironmentLacksError when it cannot be started.
    """
    words = [str(word) for word in command]
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot start {command[0]}: {error.strerror}")) from error
    with process:
        try:
            return _finished(process, is_late)
        except BaseException:
            _kill_all(process)
            raise


def _finished(process: subprocess.Popen[str], is_late: Callable[[], bool]) -> Finished:
    """A process that was left behind may hold the pipes of one that has ended; one of another session is let go."""
    while isinstance(ended := _waited(process), subprocess.TimeoutExpired):
        if process.poll() is not None or is_late():
            _kill_all(process)
            last = _waited(process)
            if isinstance(last, Finished):
                return last
            return Finished(process.wait(), *map(_text, (last.output, last.stderr)))
    return ended


def _kill_all(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _waited(process: subprocess.Popen[str]) -> Finished | subprocess.TimeoutExpired:
    """What it left behind; where it runs on, what it wrote by then, which is kept for the next look."""
    try:
        output, errors = process.communicate(timeout=_LOOK_S)
    except subprocess.TimeoutExpired as running:
        return running
    return Finished(process.returncode, output, errors)


def _text(written: bytes | str | None) -> str:
    return written.decode(errors="replace") if isinstance(written, bytes) else written or ""


def become(command: Sequence[str | Path], *, env: Mapping[str, str]) -> NoReturn:
    """Go on as another program: its exit code, its signals and its terminal are then those of this process.

    Raises EnvironmentLacksError when it cannot be started.
    """
    words = [str(word) for word in command]
    try:
        os.execvpe(words[0], words, dict(env))  # noqa: S606 - it is the shell that starts programs here
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot start {words[0]}: {error.strerror}")) from error


class Stream:
    """A running command whose output is read line by line; ``status`` holds once the lines have ended."""

    def __init__(self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str]) -> None:
        self.command = [str(word) for word in command]
        self.cwd = cwd
        self.env = env
        self.status: int | None = None

    def lines(self) -> Iterator[str]:
        """Output and errors together, without line ends. The process is ended when the reader gives up."""
        with subprocess.Popen(
            self.command,
            cwd=self.cwd,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    yield line.rstrip("\n")
            except BaseException:
                process.terminate()
                raise
        self.status = process.returncode
