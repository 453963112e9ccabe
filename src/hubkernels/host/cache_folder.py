"""Where things are kept that every project of a user may use again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "HUBKERNELS_CACHE"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder that ``HUBKERNELS_CACHE`` names, else ``hubkernels`` in the user's cache folder. It may not exist."""
    if chosen := environment.get(VARIABLE):
        return Path(chosen).absolute()
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the XDG specification has relative ones ignored
        base = Path(environment.get("HOME", "/")).absolute() / ".cache"
    return base / "hubkernels"
