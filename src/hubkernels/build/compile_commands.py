"""compile_commands.json: how each source is compiled, for clangd and other tools that read the format.

It stands in build/, where clangd looks for it from any file of the project.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.files import read_regular, write_atomically
from hubkernels.model.plan import BuildPlan

FILE = "compile_commands.json"
_OBJECT = re.compile(r"[0-9a-f]{32}\.o")

Entry = Mapping[str, Any]


def entries(plan: BuildPlan, root: Path) -> list[Entry]:
    """One entry a source. root: the package's folder, which commands run in."""
    return [
        {
            "directory": str(root.absolute()),
            "file": step.subject,
            "arguments": [*step.command[: step.target], step.output, *step.command[step.target + 1 :]],
            "output": step.output,
        }
        for step in plan.steps
        if step.verb == "compile" and step.subject in step.command
    ]


def merge(old: object, new: Iterable[Entry]) -> list[Entry]:
    """The new entries, and the old ones of other sources that are still there; whatever else stood there is dropped.

    Of several for one source, which more than one backend has, the first.
    """
    made: dict[tuple[str, str], Entry] = {}
    for entry in new:
        made.setdefault((entry["directory"], entry["file"]), entry)
    kept = [entry for entry in (old if isinstance(old, list) else []) if _is_alive(entry, made)]
    return sorted((*kept, *made.values()), key=lambda entry: (entry["directory"], entry["file"]))


def _is_alive(entry: object, replaced: Container[tuple[str, str]]) -> bool:
    if not isinstance(entry, dict):
        return False
    directory, file = entry.get("directory"), entry.get("file")
    if not isinstance(directory, str) or not isinstance(file, str):
        return False
    return (directory, file) not in replaced and Path(directory, file).is_file()


def is_ours(path: Path) -> bool:
    """Whether every entry of a file is a build's, which names its object by a hash; CMake has a file of this name."""
    try:
        found = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return False
    return (
        isinstance(found, list)
        and found != []
        and all(isinstance(e, dict) and _is_object(e.get("output")) for e in found)
    )


def _is_object(name: object) -> bool:
    return isinstance(name, str) and bool(_OBJECT.fullmatch(name))


def write_compile_commands(build: Path, new: Iterable[Entry]) -> None:
    """Bring build/compile_commands.json up to date. A build does not fail where it cannot be written."""
    path = build / FILE
    try:
        text = read_regular(path)
    except OSError:
        text = b""
    try:
        old = json.loads(text)
    except ValueError:
        old = None
    content = (json.dumps(merge(old, new), indent=1, ensure_ascii=False) + "\n").encode()
    if content != text:
        with contextlib.suppress(EnvironmentLacksError):
            write_atomically(path, content)
