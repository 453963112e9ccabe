"""Numbers of bytes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", re.ASCII | re.IGNORECASE)
_END = 2.0**63
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

FORMS = "write it as 8GB, 1.5GiB or 500MB"


def parse_size(text: str) -> int | None:
    """Bytes of ``8GB``, ``1.5 GiB`` or ``500000``; None for other words, and for more than any disk has."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    number, unit, binary = found[1], found[2] or "", found[3]
    size = float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()]
    return int(size) if size < _END else None


def size_text(size: int) -> str:
    """Spell a number of bytes for people: ``1.2 MB``."""
    if size < 1000:  # noqa: PLR2004 - the step between units
        return f"{size} B"
    unit, name = next((10**power, name) for power, name in ((9, "GB"), (6, "MB"), (3, "kB")) if size >= 10**power)
    return f"{size / unit:.1f} {name}"
