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
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubkernelsError, InputError, Problem
from hubkernels.host.process import Finished, run

_GRACE_S = 30.0  # the child ends itself and says where it hung; the parent waits a little longer before it kills
_ERRORS = {kind.exit_code: kind for kind in (CheckFailedError, InputError, EnvironmentLacksError)}


_HINTS = {
    "does not define module export function": "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) is missing in the binding",
    "undefined symbol": "is the file that defines it under src?",
    "failed to map segment": "is its disk mounted noexec? Move the project, or mount the disk with exec",
}
"""What to do about errors of the loaders, Python's and the system's, by their words."""

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

    requires: modules that the child must be able to import.
    """

    name: str
    function: str
    requires: tuple[str, ...] = ("torch", "kernels")


def run_in_fresh_process(
    task: Task,
    request: Mapping[str, Any],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Any:  # noqa: ANN401 - JSON; each task says what it returns
    """Run a task with the arguments in ``request`` and return its answer; both are JSON, paths absolute.

    environment: of the child, `without_secrets`, with an empty home of the Hub's client; that of this process when
    None. The child asks no Hub.
    Raises CheckFailedError when the child crashes, raises or hangs, and whatever HubkernelsError the task raised.
    """
    with tempfile.TemporaryDirectory(prefix="hubkernels-") as scratch:
        order, answer = Path(scratch) / "request.json", Path(scratch) / "answer.json"
        order.write_text(
            json.dumps({"timeout_s": timeout_s, "requires": task.requires, "arguments": request}),
            encoding="utf-8",
        )
        command = (python, "-X", "faulthandler", "-m", "hubkernels.check.client", task.function, order, answer)
        given = os.environ if environment is None else environment
        known = without_secrets(given) | _home(Path(scratch, "hf"))
        started = time.monotonic()
        # -m puts the working folder first on the path: a project's own kernels/ must not stand for the client.
        ended = run(command, cwd=Path(scratch), env=known, timeout_s=timeout_s + _GRACE_S)
        if ended.status or not answer.exists():
            hung = time.monotonic() - started >= timeout_s
            raise _failure(task.name, request, ended, f"did not end within {timeout_s:g} s" if hung else None)
        return _unwrap(task, json.loads(answer.read_bytes()))


def _home(folder: Path) -> dict[str, str]:
    """An empty home of the Hub's client: the user's own may have the token of a login, and says where."""
    return {"HF_HOME": str(folder), "HF_TOKEN_PATH": str(folder / "token")}


def _failure(task: str, request: Mapping[str, Any], ended: Finished, hung: str | None) -> CheckFailedError:
    if hung:
        why = hung
    elif ended.status < 0:
        why = f"died by {_signal_name(-ended.status)}"
    else:
        why = f"ended with status {ended.status} and no answer"
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
        message = {"answer": pkgutil.resolve_name(function)(**request["arguments"])}
    except HubkernelsError as error:
        problems = [vars(problem) for problem in error.problems]
        message = {"exit_code": error.exit_code, "problems": problems}
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises, the parent tells
        raised = f"{type(error).__name__}: {error}"
        folder = request["arguments"].get("folder")
        trace = "".join(traceback.format_exception(_from_kernel_on(error, folder)))
        message = {"raised": raised, "traceback": trace, "folder": folder}
    Path(answer).write_text(json.dumps(message), encoding="utf-8")


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
