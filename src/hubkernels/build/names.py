"""The files that a text of C++ names, in every branch of its conditions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_NAMES = re.compile(
    rb"(?:(?:#|%:)\s*(?:include(?:_next)?|import|embed)\b|__has_(?:include(?:_next)?|embed)\s*\()"
    rb"\s*(?:\"([^\"\n]*)\"|<([^>\n]*)>|)"
)


def named_in(text: bytes) -> Iterator[str]:
    """What is included or asked for; an empty name where it is not spelled out."""
    for quoted, angled in _NAMES.findall(text.replace(b"\\\r\n", b"").replace(b"\\\n", b"")):
        yield os.fsdecode(quoted or angled)
