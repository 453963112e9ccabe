"""The folders of one project's build."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import disk_errors

WORK = ".hubkernels"
"""Folder under build/ for unfinished work and memory; its leading dot keeps it out of the client's sight."""

LOCK = "lock"
"""The lock file in the work folder. It is never removed."""

OLD = re.compile(r".+\.\d+\.old")
"""What was moved out of sight, by the process of that number, to be deleted."""

_MADE = re.compile(
    rf"{LOCK}|runs|cache|sanitized|python|hashes\.json|release\.json|.+\.ninja|\.ninja_\w+"
    rf"|\.(?:hashes\.json|release\.json|.+\.ninja)\.\w+|{OLD.pattern}"
)


def is_made(name: str) -> bool:
    """Whether builds call something in the work folder by this name; what else is there is the user's."""
    return bool(_MADE.fullmatch(name))


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

    @property
    def release(self) -> Path:
        """What is remembered of a release that has begun."""
        return self.work / "release.json"

    def package(self, name: str) -> Path:
        """The folder of a package's artifacts."""
        return (self.work / "sanitized" if self.sanitized else self.build) / name

    def artifact(self, package: str, variant: str) -> Path:
        return self.package(package) / variant

    def links(self, package: str | None = None) -> Iterator[Path]:
        """Links where builds write, but for `runs`, which is unlinked. package: the one to build, if any."""
        yield from (path for path in (self.build, self.work) if path.is_symlink())
        with contextlib.suppress(OSError), os.scandir(self.work) as found:
            yield from sorted(
                Path(entry)
                for entry in found
                if entry.is_symlink() and is_made(entry.name) and entry.name != self.runs.name
            )
        if package is not None and self.package(package).is_symlink():
            yield self.package(package)

    def refuse_links(self, package: str) -> None:
        """Raises InputError for a link where a build would write: what is behind it may be another project's."""
        for path in self.links(package):
            what = f"{path} is a link to {os.path.realpath(path)}, and no link is followed: nothing was built"
            hint = "remove the link" if path == self.build else "remove the link, as `kernel-builder clean` does"
            raise InputError(Problem(what, hint=hint))

    @contextlib.contextmanager
    def scratch(self, *, keep: bool = False) -> Iterator[Path]:
        """A folder for what one run has not finished. What killed ones leave is swept out by the next.

        keep: leave it when the run fails.
        """
        with disk_errors(self.runs):
            if self.runs.is_symlink():
                self.runs.unlink()
            self.runs.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=self.runs))
        failed = True
        try:
            yield folder
            failed = False
        finally:
            if not (keep and failed):
                shutil.rmtree(folder, ignore_errors=True)
