"""Run a task in a fresh process that loads kernels as a user of the stock client does.

A kernel can crash or hang the process that loads it, and two builds of one kernel must not meet in one process: so
none is ever loaded into ours. `run_in_fresh_process` is the parent's side; `main` is the program of the child.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import pkgutil
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.process import Finished, run_watched

_GRACE_S = 30.0  # the child ends itself and says where it hung; the parent waits a little longer before it kills
_ERRORS = {kind.exit_code: kind for kind in (CheckFailedError, InputError, EnvironmentLacksError)}


_HINTS = {
    "does not define module export function": "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) is missing in the binding",
    "undefined symbol": "is the file that defines it under src?",
    "failed to map segment": "is its disk mounted noexec? Move the project, or mount the disk with exec",
}
"""What to do about errors of the loaders, Python's and the system's, by their words."""

_AGAIN = (
    "where the machine was busy, run it again; where it stops at the same place, it hangs there: `kernel-builder check "
    "--debug` tells the whole stack"
)

_SECRETS = frozenset({"ACTIONS_ID_TOKEN_REQUEST_URL", "SSH_AUTH_SOCK"})
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "_KEY")
"""What lets somebody write to the Hub, sign or act for the user elsewhere: kernels are other people's code."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process that loads kernels may know. The words are looked for in every name: nobody knows all of them."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _SECRETS and not any(word in name.upper() for word in _SECRET_WORDS)
    }


@dataclass(frozen=True)
class Task:
    """What a child does. name: in messages. function: as ``module:function``; only the child imports it.

    requires: modules that the child must be able to import. counts: whether it does many cases one after another; the
    function then takes a `Count` as ``count``, and calls it before each.
    """

    name: str
    function: str
    requires: tuple[str, ...] = ("torch", "kernels")
    counts: bool = False


@dataclass(frozen=True)
class Counted:
    """How far a child is. at: the case that it does now. when: on the clock that all processes share, the monotonic."""

    done: int
    total: int
    at: str
    when: float


Count = Callable[[int, int, str], None]
"""Tells how many cases are done, of how many, and which one is next."""


class HungError(CheckFailedError):
    """A child was silent for longer than it may be. stack: where it was then, as Python has it."""

    def __init__(self, problem: Problem, stack: str) -> None:
        super().__init__(problem)
        self.stack = stack

    def with_stack(self) -> Problem:
        """For who asked for more than what happened and what next."""
        (problem,) = self.problems
        return Problem(f"{problem.what}\n{self.stack}", problem.where, problem.hint)


def run_in_fresh_process(  # noqa: PLR0913 - what a process is started with
    task: Task,
    request: Mapping[str, Any],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    hear: Callable[[Counted], None] = lambda _: None,
) -> Any:  # noqa: ANN401 - JSON; each task says what it returns
    """Run a task with the arguments in ``request`` and return its answer; both are JSON, paths absolute.

    timeout_s: for which it may be silent: for the whole of a task that does not count, of one that does for each case.
    environment: of the child, `without_secrets`, with an empty home of the Hub's client; that of this process when
    None. The child asks no Hub. hear: is told how far it is.
    Raises CheckFailedError when the child crashes or raises, HungError when it hangs, and whatever HubkernelsError the
    task raised.
    """
    with tempfile.TemporaryDirectory(prefix="hubkernels-") as scratch:
        order, answer, progress = (Path(scratch, f"{name}.json") for name in ("request", "answer", "progress"))
        orders = {"requires": task.requires, "arguments": request, "progress": str(progress) if task.counts else None}
        order.write_text(json.dumps({"timeout_s": timeout_s, **orders}), encoding="utf-8")
        command = (python, "-X", "faulthandler", "-m", "hubkernels.check.client", task.function, order, answer)
        given = os.environ if environment is None else environment
        known = without_secrets(given) | _home(Path(scratch, "hf"))
        watch = _Watch(progress, timeout_s, hear)
        # -m puts the working folder first on the path: a project's own kernels/ must not stand for the client.
        ended = run_watched(command, cwd=Path(scratch), env=known, is_late=watch.is_late)
        if ended.status or not answer.exists():
            raise watch.hung(task, request, ended) or _failure(task.name, request, ended)
        return _unwrap(task, json.loads(answer.read_bytes()))


class _Watch:
    """For how long a child has told nothing."""

    def __init__(self, file: Path, timeout_s: float, hear: Callable[[Counted], None]) -> None:
        self._file, self._timeout_s, self._hear = file, timeout_s, hear
        self._started = time.monotonic()
        self._last: Counted | None = None

    def is_late(self) -> bool:
        if (found := self._read()) and found != self._last:
            self._last = found
            self._hear(found)
        return self._silent_s() > self._timeout_s + _GRACE_S

    def hung(self, task: Task, request: Mapping[str, Any], ended: Finished) -> HungError | None:
        """What to say of a child that ended itself because it hung, or was ended."""
        self._last = self._read()
        if self._silent_s() < self._timeout_s:
            return None
        what = f"the process did not end within {self._timeout_s:g} s"
        if last := self._last:
            at = f"it was at {last.at}, {last.done} of {last.total} done"
            what = f"no case was done for {self._timeout_s:g} s: {at}"
        what = f"{task.name}: {what}{_innermost(ended.errors)}"
        return HungError(Problem(what, request.get("folder"), _AGAIN), ended.errors.rstrip())

    def _read(self) -> Counted | None:
        try:
            return Counted(**json.loads(self._file.read_bytes()))
        except FileNotFoundError:
            return None

    def _silent_s(self) -> float:
        return time.monotonic() - (self._last.when if self._last else self._started)


def _innermost(errors: str) -> str:
    """Where the last thread that Python told of was, which is the first one of the process."""
    found = re.findall(r'^(?:Current t|T)hread .*\n  File "(.+)", line (\d+)', errors, re.MULTILINE)
    return f"; in {found[-1][0]}, line {found[-1][1]}" if found else ""


def _home(folder: Path) -> dict[str, str]:
    """An empty home of the Hub's client: the user's own may have the token of a login, and says where."""
    return {"HF_HOME": str(folder), "HF_TOKEN_PATH": str(folder / "token")}


def _failure(task: str, request: Mapping[str, Any], ended: Finished) -> CheckFailedError:
    died = f"died by {_signal_name(-ended.status)}"
    why = died if ended.status < 0 else f"ended with status {ended.status} and no answer"
    what = f"{task}: the process {why}\n{ended.errors.rstrip()}".rstrip()
    return CheckFailedError(Problem(what, where=request.get("folder")))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _unwrap(task: Task, message: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if "problems" in message:
        raise _ERRORS[message["exit_code"]](*(Problem(**problem) for problem in message["problems"]))
    if "raised" in message:
        raised = message["raised"]
        hint = next((hint for words, hint in _HINTS.items() if words in raised), None)
        raise CheckFailedError(
            Problem(f"{task.name}: {raised}\n{message['traceback'].rstrip()}", message["folder"], hint)
        )
    return message["answer"]


def main(arguments: Sequence[str]) -> None:
    """Do one task: the program of the child, and so the one place here that sets its own environment."""
    function, order, answer = arguments
    request = json.loads(Path(order).read_bytes())
    faulthandler.dump_traceback_later(request["timeout_s"], exit=True)
    os.environ.update(HF_HUB_OFFLINE="1", DISABLE_TELEMETRY="1")
    try:
        _require(request["requires"])
        told = {"count": _counter(Path(file), request["timeout_s"])} if (file := request["progress"]) else {}
        message = {"answer": pkgutil.resolve_name(function)(**request["arguments"], **told)}
    except HubkernelsError as error:
        problems = [vars(problem) for problem in error.problems]
        message = {"exit_code": error.exit_code, "problems": problems}
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the parent tells
        raised = f"{type(error).__name__}: {error}"
        folder = request["arguments"].get("folder")
        trace = "".join(traceback.format_exception(_from_kernel_on(error, folder)))
        message = {"raised": raised, "traceback": trace, "folder": folder}
    Path(answer).write_text(json.dumps(message), encoding="utf-8")


def _counter(file: Path, timeout_s: float) -> Count:
    """Writes to a file, whole at any time, and gives the next case all the time that one may take."""

    def count(done: int, total: int, at: str) -> None:
        whole = file.with_suffix(".new")
        whole.write_text(json.dumps(asdict(Counted(done, total, at, time.monotonic()))), encoding="utf-8")
        whole.replace(file)
        faulthandler.dump_traceback_later(timeout_s, exit=True)

    return count


def _from_kernel_on(error: Exception, folder: str | None) -> Exception:
    """The error without the frames that led into the folder of a kernel, if it is from there: they are not its own."""
    trace = error.__traceback__
    while trace and not trace.tb_frame.f_code.co_filename.startswith(f"{folder}/"):
        trace = trace.tb_next
    return error.with_traceback(trace) if trace else error


def _require(modules: Sequence[str]) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        hint = "pip install 'hubkernels[client]'" + (" and torch" if "torch" in missing else "")
        what = f"{' and '.join(missing)} cannot be imported by {Path(sys.executable).name}"
        raise EnvironmentLacksError(Problem(what, where=sys.executable, hint=hint))


if __name__ == "__main__":
    main(sys.argv[1:])
