"""The git state of a folder, for the note on how an artifact was built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hubkernels.errors import EnvironmentLacksError
from hubkernels.host.process import run


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit, and whether files below the folder differ from it; None outside a repository, or without git.

    What builds make does not count: a repository need not ignore it.
    """
    try:
        head = run(("git", "-C", folder, "rev-parse", "HEAD"))
        status = run(("git", "-C", folder, "status", "--porcelain", "--", ".", ":(exclude)build"))
    except EnvironmentLacksError:
        return None
    if head.status or status.status:
        return None
    return {"commit": head.output.strip(), "dirty": bool(status.output.strip())}
