"""Files that ``#pragma once`` passes over, which no compiler lists."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

from hubkernels.build.names import named_in
from hubkernels.build.search import search_folders
from hubkernels.host.files import follow

_ONCE = re.compile(rb"pragma\s+once|#\s*import|_Pragma")


def passed_over(
    texts: Mapping[str, bytes], flags: Sequence[str], root: Path, sha256: Callable[[str], str | None]
) -> Iterator[str]:
    """Files that are named, and passed over for one of ``texts``, by path, that is as they are.

    g++ goes by content and time, so that two files count as one until one of them changes, or a link to it.
    """

    def full(path: str) -> str:
        return os.path.join(root, path)  # noqa: PTH118 - thousands a build

    once = {sha256(path) for path, text in texts.items() if _ONCE.search(text)}
    if not once:
        return
    known: dict[str, tuple[str, ...]] = {}
    listed = {place for path in texts for place in follow(full(path), known)}
    folders = tuple(search_folders(flags))
    for path, text in texts.items():
        around = (os.path.dirname(path), *folders)  # noqa: PTH120 - keeps the spelling
        for name, places in product(filter(None, named_in(text)), (around, folders)):
            candidates = (os.path.join(place, name) for place in places)  # noqa: PTH118
            twin = next((path for path in candidates if os.path.isfile(full(path))), None)  # noqa: PTH113
            if twin and sha256(twin) in once and not listed.issuperset(follow(full(twin), known)):
                yield twin
