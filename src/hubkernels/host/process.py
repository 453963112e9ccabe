"""The one module that starts processes."""

from __future__ import annotations

import os
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

    Raises EnvironmentLacksError when it cannot be started.
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
        )
    except OSError as error:
        raise EnvironmentLacksError(Problem(f"cannot start {command[0]}: {error.strerror}")) from error
    with process:
        try:
            return _finished(process, is_late)
        except BaseException:
            process.kill()
            raise


def _finished(process: subprocess.Popen[str], is_late: Callable[[], bool]) -> Finished:
    while (ended := _waited(process)) is None:
        if is_late():
            process.kill()
    return ended


def _waited(process: subprocess.Popen[str]) -> Finished | None:
    """What it left behind; None where it runs on. What it wrote by then is kept for the next look."""
    try:
        output, errors = process.communicate(timeout=_LOOK_S)
    except subprocess.TimeoutExpired:
        return None
    return Finished(process.returncode, output, errors)


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
