"""The Hub's cache on this machine: where the client looks for a pinned kernel, and what is there of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hubkernels.errors import EnvironmentLacksError, Problem
from hubkernels.host.files import disk_errors, hash_file, write_atomically
from hubkernels.hub.waiting import endpoint_errors
from hubkernels.model.digest import is_bytecode, uncovered
from hubkernels.model.lock import Files, Pin


def hub_cache() -> Path:
    """The folder of the Hub's client, as its own variables say."""
    try:
        with endpoint_errors():
            from huggingface_hub import constants  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = "pinned kernels need the Hub's client, huggingface_hub"
        raise EnvironmentLacksError(Problem(what, hint="pip install 'hubkernels[client]'")) from error
    return Path(constants.HF_HUB_CACHE)


@dataclass(frozen=True)
class Cached:
    """One commit of a kernel in a cache, which need not be there."""

    pin: Pin
    cache: Path

    @property
    def repository(self) -> Path:
        return self.cache / "--".join(("kernels", *self.pin.dependency.repo_id.split("/")))

    @property
    def snapshot(self) -> Path:
        """The folder that the client loads from: links to files that commits share."""
        return self.repository / "snapshots" / self.pin.commit

    def hashes(self) -> Files:
        """SHA-256 of each of `paths`."""
        return {path: hash_file(self.snapshot / path) for path in sorted(self.paths())}

    def paths(self) -> Iterator[str]:
        """Every file that is there, but for bytecode; a link to nothing is a file that is missing."""
        for path in sorted(self.snapshot.rglob("*")):
            name = path.relative_to(self.snapshot)
            if path.is_file() and not is_bytecode(name):
                yield name.as_posix()

    def uncovered(self) -> Iterator[str]:
        """What no hash covers and Python would import all the same, published or planted."""
        return uncovered(self.snapshot)

    def read(self, path: str) -> bytes:
        return (self.snapshot / path).read_bytes()

    def discard(self, wrong: Iterable[str]) -> None:
        """Remove the snapshot, and the bytes of these files of it, which commits share: nobody is to load them.

        The snapshot goes first, and the client's listing of it last: a part of one is never taken for the whole.
        """
        blobs = (self.repository / "blobs").resolve()
        with disk_errors(self.snapshot):
            places = [(self.snapshot / path).resolve() for path in wrong]
            if self.snapshot.exists():
                shutil.rmtree(self.snapshot)
            for place in places:
                if place.is_relative_to(blobs):
                    place.unlink(missing_ok=True)
            self.pass_for_whole()

    def pass_for_whole(self) -> None:
        """Forget the client's listing of the commit, by which it tells a part of it from the whole."""
        (self.repository / "trees" / f"{self.pin.commit}.json").unlink(missing_ok=True)

    def name_version(self, version: int) -> None:
        """What `get_kernel(version=N)` looks up without a network."""
        write_atomically(self.repository / "refs" / f"v{version}", self.pin.commit.encode())
