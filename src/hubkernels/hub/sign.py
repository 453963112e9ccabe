"""Signatures of what is published: which go along with a commit, which stay, which are stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from hubkernels.hub.changes import Changes, RemoteFile
from hubkernels.hub.offer import Content, Offered
from hubkernels.model.digest import METADATA, SIGNATURE

Read = Callable[[str], bytes]
"""A file of the commit that is looked at, by its path."""


class Signer(Protocol):
    """Who signs: a key, or the CI job that we run in."""

    def sign(self, content: bytes) -> bytes:
        """A bundle over the content: another one each time."""

    def made(self, content: bytes, bundle: bytes) -> bool:
        """Whether a bundle is a good signature of this signer's over the content."""


def signature_path(offered: Offered) -> str:
    return f"{offered.place}/{SIGNATURE}"


def stays_signed(
    offered: Offered, content: bytes, there: Mapping[str, RemoteFile], signer: Signer | None, read: Read
) -> bool:
    """Whether metadata that stay need no new signature: none is wanted, or the signer's own is there."""
    if signer is None:
        return True
    path = signature_path(offered)
    return path in there and signer.made(content, read(path))


def with_signatures(
    offered: Iterable[Offered], found: Changes, there: Mapping[str, RemoteFile], signer: Signer | None, read: Read
) -> Changes:
    """The changes, and those of the signatures, none of which they have yet.

    A signature differs each time that it is made: one that is good stays. One of metadata that change goes.
    """
    for each in offered:
        path, metadata = signature_path(each), f"{each.place}/{METADATA}"
        if metadata in found.kept and stays_signed(each, read(metadata) if signer else b"", there, signer, read):
            continue
        if signer is None:
            gone = (path,) if path in there else ()
            found = replace(found, deleted=tuple(sorted((*found.deleted, *gone))))
        elif path in there:
            found = replace(found, changed=tuple(sorted((*found.changed, path))))
        else:
            found = replace(found, added=tuple(sorted((*found.added, path))))
    return found


def signed(offered: Iterable[Offered], changes: Changes, signer: Signer | None) -> dict[str, Content]:
    """The signatures that the changes have, made now, by their paths."""
    if signer is None:
        return {}
    wanted = {*changes.added, *changes.changed}
    return {path: Content(signer.sign(each.stamped)) for each in offered if (path := signature_path(each)) in wanted}
