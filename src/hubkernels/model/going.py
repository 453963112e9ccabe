"""Words that tell how far something is."""

from __future__ import annotations


class Going(str):
    """One of many lines about the same work: who prints chooses which, and none is missed."""

    __slots__ = ()
