"""In the fresh process: the task `read back`, a published variant through the stock client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hubkernels.check.metadata import backend_type
from hubkernels.errors import CheckFailedError, Problem
from hubkernels.model.artifact import METADATA
from hubkernels.model.digest import digest_folder, hash_digest


def load_back(repo_id: str, commit: str, tag: str, digest: str, cases: Sequence[str]) -> dict[str, Any]:
    """Load a variant at a commit, hold its files against the digest that was published, and run the cases."""
    folder = _fetch(repo_id, commit, tag)
    found = hash_digest(digest_folder(folder))
    if found != digest:
        hint = "publish again; where it persists, something between changes files"
        raise CheckFailedError(Problem(f"{repo_id} at {commit} gives other bytes for {tag} than were sent", hint=hint))
    if not cases:
        return {"rows": []}
    from hubkernels.check.compare import compare  # noqa: PLC0415 - needs torch, as the client does

    return {"rows": compare(str(folder), cases)["rows"]}


def _fetch(repo_id: str, commit: str, tag: str) -> Path:
    """The folder of a variant, as the client loads it, or beside the one that it prefers here."""
    import kernels  # noqa: PLC0415 - the parent imports the modules of tasks without the client
    from huggingface_hub import hf_hub_download, snapshot_download  # noqa: PLC0415

    metadata = hf_hub_download(repo_id, f"build/{tag}/{METADATA}", repo_type="kernel", revision=commit)
    backend = backend_type(json.loads(Path(metadata).read_bytes()))
    kernel = kernels.get_kernel(repo_id, revision=commit, backend=backend, trust_remote_code=True)
    folder = Path(kernel.__file__ or "").parent
    if folder.name == tag:
        return folder
    root = snapshot_download(repo_id, repo_type="kernel", revision=commit, allow_patterns=f"build/{tag}/*")
    return Path(root) / "build" / tag
