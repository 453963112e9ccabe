"""The proof of a commit for a cache that others only read."""

from __future__ import annotations

from pathlib import Path

from hubkernels.runtime.cache import Cache
from hubkernels.runtime.fetch import Hub
from hubkernels.runtime.proof import Proven
from hubkernels.runtime.settings import read_settings
from hubkernels.runtime.web import Web


def keep_proof(repo_id: str, commit: str, cache: Path) -> None:
    """Into a cache, unless it is there. One request, and none of a large file.

    Raises HubRefusedError where the Hub does not give it, CheckFailedError where what it gives is none.
    """
    kernel, settings = Cache.of(cache, repo_id), read_settings()
    if not isinstance(kernel.revision(commit), Proven):
        kernel.keep(Hub(Web(settings.endpoint, settings.token), repo_id).proved(commit))
