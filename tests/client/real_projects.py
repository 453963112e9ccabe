"""Real projects in upstream's format: copied from a checkout, built, and run by their own tests in the stock client."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli

from hubkernels.config import load_project
from hubkernels.model.backend import CPU
from hubkernels.model.digest import digest_folder

_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class RealProject:
    """A project of other people.

    tests: arguments of pytest that run its own tests, or those that a CPU gets through in a minute.
    edits: what its tests fix to a GPU by name: (file, text, its replacement). Nothing that is built is ever edited.
    imports: modules that the package itself imports and torch does not bring.
    tests_import: the same, of its tests.
    violations: what `check builds` rightly finds.
    """

    name: str
    tests: tuple[str, ...] = ("tests",)
    edits: tuple[tuple[str, str, str], ...] = ()
    imports: tuple[str, ...] = ()
    tests_import: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What pytest counted."""

    passed: int
    failed: int
    skipped: int
    output: str


def names_with_cpu_sections(folder: Path) -> set[str]:
    """The projects below a folder that have a kernel section for CPU."""
    return {
        name
        for name, table in _tables(folder).items()
        if any(section["backend"] == CPU.name for section in table.get("kernel", {}).values())
    }


def names_of_python_alone(folder: Path) -> set[str]:
    """The projects below a folder without compiled sources."""
    return {name for name, table in _tables(folder).items() if "torch-noarch" in table}


def _tables(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Every build.toml below a folder, read without our own loader."""
    return {path.parent.name: tomli.loads(path.read_text("utf-8")) for path in folder.glob("*/build.toml")}


def copy_project(source: Path, target: Path) -> Path:
    """A copy to build in; what others built beside the sources stays behind."""
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns("build", "__pycache__")))


def is_unchanged(project: Path, source: Path) -> bool:
    """Whether a build left every file of a project as it was."""
    beside = digest_folder(project)
    return {path: digest for path, digest in beside.items() if not path.startswith("build/")} == {
        path: digest for path, digest in digest_folder(source).items() if not path.startswith("build/")
    }


def missing(modules: Iterable[str]) -> list[str]:
    return [name for name in modules if importlib.util.find_spec(name) is None]


def artifact_of(project: Path) -> Path:
    (found,) = (project / "build" / project.name).glob("torch*-cpu*/")
    return found


def run_own_tests(project: Path, arguments: Iterable[str], *, others: Mapping[str, Path], site: Path) -> Outcome:
    """Run pytest on a built project. others: built projects by repo id, for the client.

    site: an empty folder. Some tests ask the client for the kernel, some import it by its Python name: both get the
    artifact.
    """
    (package,) = load_project(project).packages
    (site / package.python_name).symlink_to(artifact_of(project))
    local = {**others, **({package.repo_id: project / "build" / package.name} if package.repo_id else {})}
    changes = {
        "LOCAL_KERNELS": ":".join(f"{repo}={folder}" for repo, folder in local.items()),
        "HF_HUB_OFFLINE": "1",
        "DISABLE_TELEMETRY": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))),
    }
    own = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(project))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *own, *arguments],
        cwd=project,
        env={**os.environ, **changes},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    counts = {what.rstrip("s"): int(count) for count, what in _COUNT.findall(done.stdout.rpartition("\n\n")[2])}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    return Outcome(counts.get("passed", 0), failed, counts.get("skipped", 0), f"{done.stdout}\n{done.stderr}")
