"""Branches of a kernel's repository: each version has its own."""

from __future__ import annotations

import re

_VERSION = re.compile(r"v([0-9]{1,9})")


def version_of(branch: str) -> int | None:
    """The version that a branch is for by its name, as v1; None for another branch."""
    found = _VERSION.fullmatch(branch)
    return int(found[1]) if found else None
