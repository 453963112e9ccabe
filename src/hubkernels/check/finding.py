"""One line of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True)
class Finding:
    """One fact about the machine. needed: whether a CPU build is impossible while this is missing.

    apt, pip: packages that mend it, for Debian and Ubuntu, and from the package index.
    """

    subject: str
    state: State
    text: str
    hint: str | None = None
    needed: bool = False
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
