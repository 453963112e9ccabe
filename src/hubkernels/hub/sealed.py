"""A file that counts only with the bytes that it had: another build or an editor may be at work while one publishes."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import CheckFailedError, Problem
from hubkernels.host.files import disk_errors, hash_file, open_regular, read_regular

_PIECE = 1 << 20


@dataclass(frozen=True)
class Sealed:
    """sha256: of the bytes that were looked at, in hex. Each way to them raises CheckFailedError for others."""

    path: Path
    sha256: str

    def read(self) -> bytes:
        try:
            found = read_regular(self.path)
        except OSError as error:
            raise self._broken() from error
        if hashlib.sha256(found).hexdigest() != self.sha256:
            raise self._broken()
        return found

    def copy(self, target: Path) -> Sealed:
        """To a file where nobody else writes. Held against the hash is the copy: no other bytes can follow it."""
        try:
            source = open_regular(self.path)
        except OSError as error:
            raise self._broken() from error
        with source, disk_errors(target), target.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
        if hash_file(target) != self.sha256:
            raise self._broken()
        return Sealed(target, self.sha256)

    def _broken(self) -> CheckFailedError:
        what = f"{self.path} was changed while it was published: this commit was not made"
        hint = "let nothing else build or write there meanwhile, and publish again"
        return CheckFailedError(Problem(what, hint=hint))
