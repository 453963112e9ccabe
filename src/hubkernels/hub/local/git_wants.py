"""What a client of git may want: heads, and any commit that a head has among those before it.

A kernel that is pinned is rarely the newest. As with git's own `uploadpack.allowReachableSHA1InWant`, nobody sees by it
what no ref leads to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from dulwich.config import ConfigFile
from dulwich.errors import GitProtocolError
from dulwich.objects import ObjectID
from dulwich.protocol import CAPABILITY_FILTER, ReceivableProtocol, pkt_line
from dulwich.refs import Ref
from dulwich.repo import Repo
from dulwich.server import UploadPackHandler

from hubkernels.hub.local.refs import KINDS
from hubkernels.hub.local.repository import Repository, read_config

_ORDER = (b"want", b"filter", b"shallow", b"deepen")
_BY_SIZE = b"filter blob:"
_WANT = re.compile(rb"want ([0-9a-f]{40})\b")
_SHALLOW = re.compile(rb"shallow ([0-9a-f]{40})\s?")


class Handler(UploadPackHandler):
    def capabilities(self) -> list[bytes]:
        """No `filter`: who clones with one comes again for single files, by ids that need not be anybody's to see.

        git then clones the whole, and says so.
        """
        offered = (each for each in super().capabilities() if each != CAPABILITY_FILTER)
        return [*offered, b"allow-reachable-sha1-in-want"]

    def set_client_capabilities(self, caps: Iterable[bytes]) -> None:
        """git names `filter` among its own where it was asked to, whatever was offered."""
        super().set_client_capabilities([each for each in caps if not each.startswith(CAPABILITY_FILTER)])

    @classmethod
    def required_capabilities(cls) -> tuple[bytes, ...]:
        """Not thin packs, as dulwich has it: who has nothing cannot use one."""
        return tuple(each for each in super().required_capabilities() if each != b"thin-pack")


class WithWants(Repo):
    """A repository that gives commits beside its heads. dulwich lets a client want what a ref names: so one does."""

    wanted: frozenset[str] = frozenset()
    boundary: frozenset[str] = frozenset()

    def get_config(self) -> ConfigFile:
        """What it includes may be any file of the machine."""
        try:
            return read_config(Path(self.commondir()))
        except FileNotFoundError:
            return ConfigFile()

    def get_refs(self) -> dict[Ref, ObjectID]:
        more = {Ref(f"refs/wanted/{oid}".encode()): ObjectID(oid.encode()) for oid in self.wanted}
        return {**super().get_refs(), **more}

    def find_missing_objects(self, determine_wants: Any, graph_walker: Any, *words: Any, **more: Any) -> Any:  # noqa: ANN401 - dulwich's
        """What a client has of history ends at its boundary, whatever it names: dulwich then sends all up to there."""
        graph_walker.shallow.update(ObjectID(oid.encode()) for oid in self.boundary)
        return super().find_missing_objects(determine_wants, graph_walker, *words, **more)


class Question(NamedTuple):
    """A request. wanted: the ids that it wants. boundary: the commits without parents of a client that has a part."""

    lines: bytes
    wanted: frozenset[str] = frozenset()
    boundary: frozenset[str] = frozenset()


def ordered(asked: bytes) -> Question:
    """A request with its lines in the order that dulwich reads, which is not git's.

    git puts `filter` behind `deepen`, and tells the boundary of what it has whether it asks for another or not: dulwich
    reads it only before a `deepen`. One by size is kept, though none is offered: our own loader asks for a commit
    without its files so. Raises GitProtocolError for another, and for what is no request.
    """
    if not asked:
        return Question(asked)
    read = BytesIO(asked)
    lines = list(_lines(ReceivableProtocol(read.read, lambda _: None), len(asked)))
    rest = asked[sum(len(pkt_line(text)) for text in lines) :]
    if any(text.startswith(CAPABILITY_FILTER) and not text.startswith(_BY_SIZE) for text in lines):
        raise GitProtocolError("this Hub filters by size alone: clone the whole, or with --depth")
    wanted = frozenset(match[1].decode() for text in lines if (match := _WANT.match(text)))
    boundary: dict[bytes, str] = {}
    if not any(text.startswith(b"deepen ") for text in lines):
        boundary = {text: match[1].decode() for text in lines if (match := _SHALLOW.fullmatch(text))}
    kept = sorted((text for text in lines if text not in boundary), key=_place)
    return Question(b"".join(map(pkt_line, kept)) + rest, wanted, frozenset(boundary.values()))


def _lines(protocol: ReceivableProtocol, size: int) -> Iterator[bytes]:
    """Up to the first flush, or the end."""
    while size > 0:
        try:
            text = protocol.read_pkt_line()
        except EOFError as error:
            raise GitProtocolError("the request is cut off") from error
        if text is None:
            return
        size -= len(pkt_line(text))
        yield text


def _place(text: bytes) -> int:
    word = text.split(b" ", 1)[0].strip()
    return _ORDER.index(word) if word in _ORDER else len(_ORDER)


def reachable(git: Repository, wanted: Iterable[str]) -> frozenset[str]:
    """Those of the wanted that are commits of a branch, a tag or a pull request."""
    left, found = set(wanted), set()
    named = (git.peel(oid) for kind in KINDS for oid in git.refs.below(kind).values())
    heads = {oid for oid in named if oid}
    seen, following = set(heads), list(heads)
    while left and following:
        oid = following.pop()
        if oid in left:
            left.remove(oid)
            found.add(oid)
        parents = set(git.info(oid).parents) - seen
        seen |= parents
        following += parents
    return frozenset(found)
