"""In the fresh process: the task `read back`, a published variant through the stock client. It has no token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubkernels.check.client import Count
from hubkernels.errors import CheckFailedError, Problem


def load_back(  # noqa: PLR0913 - the request of the task
    repo_id: str, commit: str, *, backend: str, tag: str, cases: Sequence[str], count: Count
) -> dict[str, Any]:
    """Load a variant at a commit from a cache that has no other, and run the cases."""
    import kernels  # noqa: PLC0415 - the parent imports the modules of tasks without the client

    kernel = kernels.get_kernel(repo_id, revision=commit, backend=backend, trust_remote_code=True)
    folder = Path(kernel.__file__ or "").parent
    if folder.name != tag:
        raise CheckFailedError(Problem(f"{repo_id} at {commit}: the client loads {folder}, not {tag}"))
    if not cases:
        return {"rows": []}
    from hubkernels.check.compare import compare  # noqa: PLC0415 - needs torch, as the client does

    return {"rows": compare(str(folder), cases, count)["rows"]}
