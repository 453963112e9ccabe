"""Sources beside those of a kernel section that no ``src`` names: likely forgotten, since nothing compiles them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubkernels.build.mentions import mentioned_files
from hubkernels.config.document import RawTable
from hubkernels.model.backend import METAL
from hubkernels.model.project import KernelSection, Package


def unnamed_sources(package: Package, document: RawTable) -> Mapping[KernelSection, tuple[str, ...]]:
    """Such files, by the section that they probably belong to.

    document: the whole file, where another package may name it. What another source includes is left out, and all
    where the texts do not tell what they include.
    """
    beside = tuple(_beside(package.root, _folders(package)))
    included = mentioned_files(package) if beside else None
    if included is None:
        return {}
    known = {os.path.realpath(package.root / path) for path in (*included, *_named(document))}
    forgotten = [(s, path) for s, path in beside if os.path.realpath(package.root / path) not in known]
    return {each: tuple(path for s, path in forgotten if s is each) for each in dict.fromkeys(s for s, _ in forgotten)}


def _folders(package: Package) -> dict[str, Counter[KernelSection]]:
    """Where sources are, and how many each section has there. Those for Metal include by a macro, and are left out."""
    found: dict[str, Counter[KernelSection]] = {}
    for section in package.sections:
        for path in section.sources if section.backend is not METAL else ():
            found.setdefault(os.path.dirname(path), Counter())[section] += 1  # noqa: PTH120 - keeps the spelling
    return found


def _beside(root: Path, folders: Mapping[str, Counter[KernelSection]]) -> Iterator[tuple[KernelSection, str]]:
    """The files in these folders that a section there would compile, each with the one that has most files there."""
    for folder, sections in folders.items():
        for path in sorted((root / folder).glob("*")):
            owner = next((s for s, _ in sections.most_common() if path.suffix in s.backend.compiles), None)
            if owner and path.is_file():
                yield owner, os.path.join(folder, path.name)  # noqa: PTH118 - keeps the spelling


def _named(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever the file holds
    """What the lists ``src`` below a table name."""
    for key, below in value.items() if isinstance(value, dict) else ():
        if key == "src" and isinstance(below, list):
            yield from (path for path in below if isinstance(path, str) and path.isprintable())
        yield from _named(below)
