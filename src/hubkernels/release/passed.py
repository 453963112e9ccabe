"""Which gates of a release let which artifacts through: what a second run need not do again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hubkernels import __version__
from hubkernels.build.artifacts import built
from hubkernels.host.files import hash_file, read_memory, write_memory
from hubkernels.hub.offer import Offered
from hubkernels.hub.records import digest_in, digest_of
from hubkernels.model.digest import METADATA
from hubkernels.model.project import Package

_FORM = 1


Artifacts = Mapping[str, tuple[str, str]]
"""By tag, the hashes of the metadata of an artifact, and of all its other files."""


def artifacts_in(folder: Path) -> Artifacts:
    """Those of ``build/<package>``. Every file is read: what a digest says of them may be what has changed."""
    return {tag: (hash_file(path / METADATA), digest_in(path)) for tag, path in built(folder).items()}


def artifacts_of(offered: Iterable[Offered]) -> Artifacts:
    """Those that are offered to a Hub, which sends no other bytes than their digests say."""
    return {each.tag: (hashlib.sha256(each.own).hexdigest(), digest_of(each)) for each in offered}


def key_of(artifacts: Artifacts, facts: Mapping[str, object]) -> str:
    """One text for all artifacts of a package, byte by byte, and what else a gate looks at."""
    value = {"version": __version__, "artifacts": artifacts, "facts": facts}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def cases_hash(package: Package) -> str:
    """Of the case files of a package, and of the Python files beside them, which they may import."""
    folders = sorted({(package.root / file).parent for file in package.parity})
    files = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    lines = (f"{path.relative_to(package.root)} {hash_file(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Passed:
    """Remembers at once, so that what a killed run has done counts. file: where."""

    def __init__(self, file: Path) -> None:
        self._file = file
        found: dict[str, Any] = read_memory(file, _FORM)
        self._now: dict[str, str] = {}
        self._keys = {name: key for name, key in found.items() if isinstance(key, str)}

    def why_again(self, gate: str, package: str, key: str) -> str | None:
        """Why a gate has to be passed; None where just this has passed it."""
        known = self._keys.get(f"{package}: {gate}")
        if key in {known, self._now.get(f"{package}: {gate}")}:
            return None
        return "artifacts, or what they are tested with, changed since" if known else "not done yet"

    def note(self, gate: str, package: str, key: str) -> None:
        self._keys[f"{package}: {gate}"] = key
        write_memory(self._file, _FORM, dict(self._keys))

    def note_now(self, gate: str, package: str, key: str) -> None:
        """For this run alone: there was nothing that the gate could look at here."""
        self._now[f"{package}: {gate}"] = key
