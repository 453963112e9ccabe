"""Runs the jobs of a workflow on this machine: the file as it is, one job after the other, each in a clone of its own.

`run` steps are run as GitHub does, by ``bash -e``. Of the actions there are equivalents that do what the real ones
document, in the versions that the workflows name: checkout fetches one commit, without history; upload-artifact leaves
hidden files out, keeps the paths below the first wildcard and refuses a name twice; download-artifact gives all files
0644; a cache is kept by its key, once. A job without `id-token: write` has no token to sign with, and a secret is known
to the steps that name it alone.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

_TOKEN = re.compile(r"\s*(?:'((?:[^']|'')*)'|(&&|\|\||==|!=|[!(),])|([A-Za-z_][\w.-]*)|(\d+))")
_FORBIDDEN = set('":<>|*?\r\n')
"""In the paths of an artifact, and with slashes in its name."""

Context = Mapping[str, Any]


class StepError(Exception):
    """A step that failed, with what it said."""


def expand(text: str, context: Context) -> str:
    """A text with its expressions evaluated."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: _shown(evaluate(found[1], context)), text)


def evaluate(expression: str, context: Context) -> Any:  # noqa: ANN401 - any JSON
    """Literals, names, `!`, `==`, `!=`, `&&`, `||`, and the functions that the workflows call."""
    words = [(each[1], each[2], each[3] or each[4]) for each in _TOKEN.finditer(expression.strip())]
    found, rest = _either(words, context)
    assert not rest, expression
    return found


_Words = list[tuple[str | None, str | None, str | None]]


def _either(words: _Words, context: Context) -> tuple[Any, _Words]:
    left, words = _both(words, context)
    while words and words[0][1] == "||":
        right, words = _both(words[1:], context)
        left = left or right
    return left, words


def _both(words: _Words, context: Context) -> tuple[Any, _Words]:
    left, words = _compared(words, context)
    while words and words[0][1] == "&&":
        right, words = _compared(words[1:], context)
        left = left and right
    return left, words


def _compared(words: _Words, context: Context) -> tuple[Any, _Words]:
    left, words = _one(words, context)
    if words and words[0][1] in {"==", "!="}:
        right, rest = _one(words[1:], context)
        return (left == right) is (words[0][1] == "=="), rest
    return left, words


def _one(words: _Words, context: Context) -> tuple[Any, _Words]:
    (literal, sign, name), rest = words[0], words[1:]
    if literal is not None:
        return literal.replace("''", "'"), rest
    if sign == "!":
        found, rest = _one(rest, context)
        return not found, rest
    if sign == "(":
        found, rest = _either(rest, context)
        assert rest[0][1] == ")"
        return found, rest[1:]
    assert name is not None, sign
    if rest and rest[0][1] == "(":
        return _called(name, rest[1:], context)
    return _looked_up(name, context), rest


def _called(name: str, words: _Words, context: Context) -> tuple[Any, _Words]:
    given = []
    while words[0][1] != ")":
        found, words = _either(words, context)
        given.append(found)
        words = words[1:] if words[0][1] == "," else words
    functions: dict[str, Callable[..., Any]] = {
        "format": lambda form, *values: form.format(*map(_shown, values)),
        "always": lambda: True,
        "success": lambda: not context["failed"],
        "failure": lambda: context["failed"],
    }
    return functions[name](*given), words[1:]


def _looked_up(name: str, context: Context) -> Any:  # noqa: ANN401 - any JSON
    found: Any = context
    for part in name.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return found


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


@dataclass(frozen=True)
class Runner:
    """repository: what is checked out. folder: where jobs, artifacts and caches are. ref: what was pushed.

    variables: of every job's environment. signing: further ones of jobs with `id-token: write`. real: whether each job
    has an environment of its own, and pip fills it; else `pip` only notes what it is asked, and programs are those of
    the environment that the tests run in. ids: the name of each artifact, by its id.
    """

    repository: Path
    folder: Path
    ref: str
    variables: Mapping[str, str] = field(default_factory=dict)
    signing: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    vars: Mapping[str, str] = field(default_factory=dict)
    real: bool = False
    log: list[str] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)

    def run(self, name: str) -> dict[str, dict[str, Any]]:
        """All jobs of a workflow: result and outputs of each. A job whose needs failed is skipped, as there."""
        workflow = yaml.safe_load((self.repository / ".github/workflows" / name).read_text(encoding="utf-8"))
        done: dict[str, dict[str, Any]] = {}
        for job_name, job in workflow["jobs"].items():
            needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
            if any(done[need]["result"] != "success" for need in needs):
                done[job_name] = {"result": "skipped", "outputs": {}}
            elif "uses" in job:
                done[job_name] = self._called(job["uses"])
            else:
                done[job_name] = self._job(job_name, workflow, job, {need: done[need] for need in needs})
        return done

    def _called(self, uses: str) -> dict[str, Any]:
        """A workflow of this repository, called by another."""
        name = uses.removeprefix("./.github/workflows/")
        jobs = self.run(name)
        told = yaml.safe_load((self.repository / uses).read_text(encoding="utf-8"))
        outputs = told[True]["workflow_call"]["outputs"]  # YAML's word for true is on
        results = {job["result"] for job in jobs.values()}
        return {
            "result": "success" if results == {"success"} else "failure",
            "outputs": {key: expand(value["value"], {"jobs": jobs}) for key, value in outputs.items()},
        }

    def _job(self, name: str, workflow: Context, job: Context, needs: Context) -> dict[str, Any]:
        found: dict[str, Any] = {}
        matrix = job.get("strategy", {}).get("matrix", {})
        results = []
        for values in product(*matrix.values()):
            context = {"vars": self.vars, "secrets": self.secrets, "needs": needs, "github": self._github()}
            context["matrix"] = {
                key: expand(value, context) if isinstance(value, str) else value
                for key, value in zip(matrix, values, strict=True)
            }
            granted = job.get("permissions", workflow.get("permissions", {}))
            started = Job(self, name, self.folder / "jobs" / f"{len(self.log)}-{name}", dict(context), granted)
            self.log.append(name)
            found = started.run(job)
            results.append(found["result"])
        return {**found, "result": "success" if set(results) == {"success"} else "failure"}

    def _github(self) -> dict[str, str]:
        done = subprocess.run(
            ["git", "-C", str(self.repository), "rev-parse", f"{self.ref}^{{commit}}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return {"sha": done.stdout.strip(), "ref": self.ref}


@dataclass
class Job:
    """folder: one that is not there yet. granted: its permissions."""

    runner: Runner
    name: str
    folder: Path
    context: dict[str, Any]
    granted: Mapping[str, str]
    env: dict[str, str] = field(default_factory=dict)
    last: list[Callable[[], None]] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.folder / "work"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def run(self, job: Context) -> dict[str, Any]:
        self.workspace.mkdir(parents=True)
        self.home.mkdir()
        self.env = self._variables()
        steps: dict[str, Any] = {}
        self.context |= {"steps": steps, "failed": False, "env": {}}
        for number, step in enumerate(job["steps"]):
            if not evaluate(str(step.get("if", "success()")).removeprefix("${{").removesuffix("}}"), self.context):
                continue
            if "if" in step and "always" not in step["if"] and self.context["failed"]:
                continue
            try:
                outputs = self._step(step, number)
            except StepError as error:
                self.context["failed"] = True
                self.runner.log.append(f"{step.get('run') or step['uses']}: {error}")
                continue
            steps[step.get("id", str(number))] = {"outputs": outputs}
        if not self.context["failed"]:
            for act in self.last:
                act()
        told = {key: expand(value, self.context) for key, value in job.get("outputs", {}).items()}
        return {"result": "failure" if self.context["failed"] else "success", "outputs": told}

    def _variables(self) -> dict[str, str]:
        """A clean environment: what this machine needs to be reached, and nothing of who runs the tests."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in {"PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"} or name.startswith("PIP_")
        }
        if not self.runner.real and "PYTHONPATH" in os.environ:
            kept["PYTHONPATH"] = os.environ["PYTHONPATH"]
        github = self.context["github"]
        told = {
            "CI": "true",
            "HOME": str(self.home),
            "GITHUB_ACTIONS": "true",
            "GITHUB_SHA": github["sha"],
            "GITHUB_REF": github["ref"],
            "GITHUB_JOB": self.name,
            "GITHUB_WORKSPACE": str(self.workspace),
        }
        signing = self.runner.signing if self.granted.get("id-token") == "write" else {}
        return {**kept, **told, **self.runner.variables, **signing}

    def _step(self, step: Context, number: int) -> dict[str, str]:
        given = {key: expand(_shown(value), self.context) for key, value in step.get("with", {}).items()}
        if "run" in step:
            env = {key: expand(_shown(value), self.context) for key, value in step.get("env", {}).items()}
            return self._commands(expand(step["run"], self.context), env, number, step.get("working-directory", "."))
        action = step["uses"].partition("@")[0].removeprefix("actions/").replace("-", "_")
        act: Callable[[Mapping[str, str]], dict[str, str] | None] = getattr(self, f"_{action}")
        return act(given) or {}

    def _commands(self, text: str, env: Mapping[str, str], number: int, folder: str) -> dict[str, str]:
        script = self.folder / f"step-{number}.sh"
        script.write_text(text, encoding="utf-8")
        files = {name: self.folder / f"{name.lower()}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
        for file in files.values():
            file.touch()
        told = {name: str(file) for name, file in files.items()}
        done = subprocess.run(
            ["bash", "-e", str(script)],
            cwd=self.workspace / folder,
            env={**self.env, **env, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        (self.folder / f"step-{number}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode:
            raise StepError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
        self.env |= _pairs(files["GITHUB_ENV"])
        return _pairs(files["GITHUB_OUTPUT"])

    def _checkout(self, given: Mapping[str, str]) -> None:
        """One commit, at the ref that was pushed, and no more of the history."""
        assert set(given) <= {"persist-credentials"}
        ref, address = self.context["github"]["ref"], f"file://{self.runner.repository.resolve()}"
        for words in (
            ("init", "-q", "."),
            ("remote", "add", "origin", address),
            ("fetch", "-q", "--no-tags", "--depth=1", "origin", f"+{ref}:{ref.replace('heads', 'remotes/origin')}"),
            ("checkout", "-q", "--detach", self.context["github"]["sha"]),
        ):
            done = subprocess.run(
                ["git", *words], cwd=self.workspace, env=self.env, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise StepError(done.stderr)

    def _setup_python(self, given: Mapping[str, str]) -> None:
        """An environment of its own; of this Python, for the one that is asked for need not be here."""
        assert set(given) <= {"python-version"}
        venv = self.folder / "python"
        if self.runner.real:
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        else:
            (venv / "bin").mkdir(parents=True)
            for name, command in {
                "kernel-builder": f"exec {sys.executable} -m hubkernels.cli",
                "python": f"exec {sys.executable}",
                "pip": f"printf '%s ' >>{self.folder}/pip.log",
            }.items():
                (venv / "bin" / name).write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
                (venv / "bin" / name).chmod(0o755)
        self.env["PATH"] = f"{venv}/bin:{self.env['PATH']}"

    def _cache(self, given: Mapping[str, str]) -> None:
        """What was kept under the key, else under the newest that begins as told; kept when the job was good."""
        store = self.runner.folder / "caches"
        store.mkdir(exist_ok=True)
        place, key = Path(given["path"].replace("~", str(self.home), 1)), given["key"]
        begins = [line for line in given.get("restore-keys", "").splitlines() if line]
        newest = sorted(store.iterdir(), key=lambda each: each.stat().st_mtime_ns, reverse=True)
        fits = [each for each in newest if any(each.name.startswith(begin) for begin in begins)]
        found = store / key if (store / key).exists() else next(iter(fits), None)
        if found is not None:
            shutil.copytree(found, place)
        if not (store / key).exists():
            self.last.append(lambda: _kept(place, store / key))

    def _upload_artifact(self, given: Mapping[str, str]) -> dict[str, str]:
        assert set(given) <= {"name", "path", "if-no-files-found"}
        name, pattern = given["name"], given["path"].strip()
        assert not set(name) & (_FORBIDDEN | set("/\\")), name
        found = dict(_uploaded(self.workspace, pattern))
        if not found and given.get("if-no-files-found", "warn") == "error":
            raise StepError(f"no files were found with the path {pattern}")
        if not found:
            return {}
        store = self.runner.folder / "artifacts"
        store.mkdir(exist_ok=True)
        if (store / name).exists():
            raise StepError(f"an artifact with the name {name} already exists")
        with zipfile.ZipFile(store / name, "x", zipfile.ZIP_DEFLATED) as archive:
            for inside, file in found.items():
                if set(inside) & _FORBIDDEN:
                    raise StepError(f"the path {inside} is not valid")
                archive.writestr(inside, file.read_bytes())
        number = str(1000 + len(self.runner.ids))
        self.runner.ids[number] = name
        return {"artifact-id": number}

    def _download_artifact(self, given: Mapping[str, str]) -> None:
        """Right into the path, over what is there; by an id that is not merged, into a folder with its name."""
        assert set(given) <= {"name", "path", "artifact-ids", "merge-multiple"}
        name = given["name"] if "name" in given else self.runner.ids.get(given["artifact-ids"], "")
        file = self.runner.folder / "artifacts" / name
        if not file.is_file():
            raise StepError(f"no artifact is called {name or given['artifact-ids']}")
        top = Path(given["path"], "" if "name" in given or given.get("merge-multiple") == "true" else name)
        with zipfile.ZipFile(file) as archive:
            for inside in archive.namelist():
                place = self.workspace / top / inside
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(archive.read(inside))
                place.chmod(0o644)


def _kept(place: Path, where: Path) -> None:
    if place.exists():
        shutil.copytree(place, where)


def _uploaded(workspace: Path, pattern: str) -> Iterator[tuple[str, Path]]:
    """Path in the artifact and file of all that is uploaded: from the first wildcard on, or below the folder."""
    parts = Path(pattern).parts
    fixed = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    root = workspace.joinpath(*parts[:fixed])
    starts = glob.glob(str(workspace / pattern)) if fixed < len(parts) else [str(root)]  # noqa: PTH207 - leaves hidden out
    for start in sorted(map(Path, starts)):
        if start.is_file():
            yield (start.name if start == root else start.relative_to(root).as_posix()), start
        for file in sorted(start.rglob("*")) if start.is_dir() else ():
            inside = file.relative_to(root)
            if file.is_file() and not any(part.startswith(".") for part in inside.parts):
                yield inside.as_posix(), file


def _pairs(file: Path) -> dict[str, str]:
    """Of GITHUB_OUTPUT and GITHUB_ENV: ``name=value``, or ``name<<WORD`` and lines up to the word."""
    found: dict[str, str] = {}
    lines = iter(file.read_text(encoding="utf-8").splitlines())
    for line in lines:
        name, several, word = line.partition("<<")
        if several and "=" not in name:
            found[name] = "\n".join(iter(lambda: next(lines), word))
        elif line:
            name, _, found[name] = line.partition("=")
    return found
