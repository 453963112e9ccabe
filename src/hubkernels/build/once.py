"""``#pragma once`` passes over a file that is as one before it: by content and by what the file system says of both."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hubkernels.host.files import follow

_BY_MACRO = re.compile(rb"(?:#|%:)[ \t]*(?:include(?:_next)?|import)[ \t]+[A-Za-z_]")
_ONCE = re.compile(rb"(?:#|%:)\s*pragma\s+once|_Pragma")
_IMPORT = re.compile(rb"(?:#|%:)\s*import\b")


def depends_on_times(
    codes: Mapping[str, bytes], named: Iterable[str], root: Path, sha256: Callable[[str], str | None]
) -> bool:
    """Whether more than the content of files decides which are read: g++ looks at times too, clang at inodes alone.

    codes: what is read, by path, without comments. named: paths that these may mean.
    """
    imports = any(map(_IMPORT.search, codes.values()))
    once = [path for path, text in codes.items() if imports or _ONCE.search(text)]
    if not once:
        return False
    if any(map(_BY_MACRO.search, codes.values())):  # it may be any
        return True
    known: dict[str, tuple[str, ...]] = {}

    def plain(path: str) -> str | None:
        """Where a path ends that no link is on the way to."""
        places = follow(os.path.join(root, path), known)  # noqa: PTH118 - thousands a build
        return places[0] if len(places) == 1 else None

    read = {plain(path) for path in codes} - {None}
    digests = [sha256(path) for path in once]
    twins = (path for path in named if plain(path) not in read)
    return len(set(digests)) < len(digests) or any(sha256(path) in digests for path in twins)
