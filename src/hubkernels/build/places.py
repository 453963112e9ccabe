"""The folders of one project's build."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hubkernels.host.files import disk_errors

WORK = ".hubkernels"
"""Folder under build/ for unfinished work and memory; its leading dot keeps it out of the client's sight."""


@dataclass(frozen=True)
class Places:
    """root: the project's folder. sanitized: whether artifacts are for tests alone."""

    root: Path
    sanitized: bool = False

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def work(self) -> Path:
        return self.build / WORK

    @property
    def cache(self) -> Path:
        """Stands for the user's cache where that cannot be used."""
        return self.work / "cache"

    @property
    def runs(self) -> Path:
        return self.work / "runs"

    @property
    def hashes(self) -> Path:
        """What is remembered of files between runs."""
        return self.work / "hashes.json"

    def package(self, name: str) -> Path:
        """The folder of a package's artifacts."""
        return (self.work / "sanitized" if self.sanitized else self.build) / name

    def artifact(self, package: str, variant: str) -> Path:
        return self.package(package) / variant

    @contextmanager
    def scratch(self, *, keep: bool = False) -> Iterator[Path]:
        """A folder for what one run has not finished. What killed ones leave is swept out by the next.

        keep: leave it when the run fails.
        """
        with disk_errors(self.runs):
            self.runs.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.runs))
        failed = True
        try:
            yield folder
            failed = False
        finally:
            if not (keep and failed):
                shutil.rmtree(folder, ignore_errors=True)
