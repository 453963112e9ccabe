"""The files that a text of C++ names, in every branch of its conditions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from hubkernels.build.text import spliced

_NAMES = re.compile(
    rb"(?:(?:#|%:)\s*(?:include(?:_next)?|import|embed)\b|__has_(?:include(?:_next)?|embed)\s*\()"
    rb"\s*(?:\"([^\"\n]*)\"|<([^>\n]*)>|)"
)


def named_in(text: bytes) -> Iterator[str]:
    """What is included or asked for; an empty name where it is not spelled out."""
    for quoted, angled in _NAMES.findall(spliced(text)):
        yield os.fsdecode(quoted or angled)
