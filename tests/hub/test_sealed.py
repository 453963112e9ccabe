"""A file that is published is the one that was looked at, or the one that is told of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hubkernels.errors import CheckFailedError
from hubkernels.hub.sealed import Sealed


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path), lambda _: None])
def test_what_stands_in_its_place_is_named_and_not_the_copy(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The copy in a temporary folder was, of which nobody knows."""
    path, sha256 = tmp_path / "op.py", hashlib.sha256(b"1").hexdigest()
    path.write_bytes(b"1")
    assert Sealed(path, sha256).copy(tmp_path / "copy").read() == b"1"
    path.unlink()
    make(path)
    for way in (Sealed.read, lambda sealed: sealed.copy(tmp_path / "copy")):
        with pytest.raises(CheckFailedError, match=f"^{path} was changed while it was published"):
            way(Sealed(path, sha256))
