"""Where the user's cache of hubkernels is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str]) -> Path:
    """``HUBKERNELS_CACHE``, else hubkernels in ``XDG_CACHE_HOME``, else in ~/.cache. It may not exist yet."""
    if chosen := environment.get("HUBKERNELS_CACHE"):
        return Path(chosen).absolute()
    caches = environment.get("XDG_CACHE_HOME", "")
    # The specification of base directories tells to ignore a relative one.
    folder = Path(caches) if caches.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".cache"
    return folder.absolute() / "hubkernels"
