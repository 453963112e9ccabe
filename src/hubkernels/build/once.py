"""``#pragma once`` passes over a file that is as one before it: by content and, with g++, by time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hubkernels.build.asks import code
from hubkernels.build.names import named_in
from hubkernels.build.search import search_folders
from hubkernels.host.files import follow

_BY_MACRO = re.compile(rb"(?:#|%:)[ \t]*(?:include(?:_next)?|import)[ \t]+[A-Za-z_]")
_ONCE = re.compile(rb"pragma\s+once|#\s*import|_Pragma")


def depends_on_times(
    texts: Mapping[str, bytes], flags: Sequence[str], root: Path, sha256: Callable[[str], str | None]
) -> bool:
    """Whether times of files may decide which of them are read, beside ``texts``, by path, that are."""
    codes = {path: code(text) for path, text in texts.items()}
    once = {path: sha256(path) for path, text in codes.items() if _ONCE.search(text)}
    if not once:
        return False
    known: dict[str, tuple[str, ...]] = {}

    def ways(path: str) -> tuple[str, ...]:
        return follow(os.path.join(root, path), known)  # noqa: PTH118 - thousands a build

    listed = {ways(path)[-1]: digest for path, digest in once.items()}
    if len(set(listed.values())) < len(listed):
        return True
    read = {place for path in texts for place in ways(path)}
    for path, text in codes.items():
        if _BY_MACRO.search(text):  # it may be any
            return True
        for name in filter(None, named_in(text)):
            twins = (twin for twin in _found(path, name, flags, root) if not read.issuperset(ways(twin)))
            if any(sha256(twin) in listed.values() for twin in twins):
                return True
    return False


def _found(path: str, name: str, flags: Sequence[str], root: Path) -> Iterator[str]:
    """What a name in a file may mean: the first found beside it and in the folders of the search, or in these alone."""
    folders = tuple(search_folders(flags))
    for places in ((os.path.dirname(path), *folders), folders):  # noqa: PTH120 - keeps the spelling
        candidates = (os.path.join(place, name) for place in places)  # noqa: PTH118
        found = next((each for each in candidates if os.path.isfile(os.path.join(root, each))), None)  # noqa: PTH113, PTH118
        if found:
            yield found
