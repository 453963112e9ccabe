"""kernels.lock and the hashes beside it, as files."""

from __future__ import annotations

from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import read_errors, read_regular, write_atomically
from hubkernels.model.lock import Lock, hashes_beside, hashes_text, pins_text, read_hashes, read_pins


def read_lock(file: Path) -> Lock:
    """Raises InputError where there is none, and for one that cannot be read."""
    if not file.exists():
        raise InputError(Problem("there is no lock", str(file), "`kernel-builder lock` writes it"))
    beside = file.with_name(hashes_beside(file.name))
    with read_errors(file):
        pins = read_pins(read_regular(file), str(file))
    if not beside.exists():
        return Lock(pins)
    with read_errors(beside):
        return Lock(pins, read_hashes(read_regular(beside), str(beside)))


def write_lock(file: Path, lock: Lock) -> None:
    """The hashes first: a lock of other kernels beside them is told by every reader."""
    write_atomically(file.with_name(hashes_beside(file.name)), hashes_text(lock.files or {}).encode())
    write_atomically(file, pins_text(lock.pins).encode())
