"""The git state of a folder, for the note on how an artifact was built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.process import run

_OF_A_HOOK = frozenset(
    f"GIT_{name}" for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY")
)
"""Variables that name the repository whose hook we may be running in."""


def git_state(folder: Path, environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Commit, and whether files below the folder differ from it; None outside a repository, or without git.

    What builds make does not count: a repository need not ignore it.
    """
    own = {name: value for name, value in environment.items() if name not in _OF_A_HOOK}
    try:
        head = run(("git", "-C", folder, "rev-parse", "HEAD"), env=own)
        status = run(("git", "-C", folder, "status", "--porcelain", "--", ".", ":(exclude)build"), env=own)
    except EnvironmentLacksError:
        return None
    if head.status or status.status:
        return None
    return {"commit": head.output.strip(), "dirty": bool(status.output.strip())}
