"""Commits and tags as values, and as the objects that git keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from dulwich.objects import Commit, ObjectID, ShaFile, Tag

from hubkernels.hub.local.answers import Refusal


class CommitInfo(NamedTuple):
    """A commit as it is told of."""

    oid: str
    tree: str
    parents: tuple[str, ...]
    author: str
    moment: datetime
    title: str
    text: str


class Operation(NamedTuple):
    """One line of a commit. oid: the file's new content; None to delete it."""

    path: str
    oid: str | None
    folder: bool = False


@dataclass(frozen=True)
class Change:
    """What a client wants to commit. parent: the head that it saw, or the first characters of it."""

    summary: str
    description: str
    author: str
    parent: str | None
    operations: Sequence[Operation]


def read_commit(oid: str, found: ShaFile) -> CommitInfo:
    """Raises KeyError for what is no commit."""
    if not isinstance(found, Commit):
        raise KeyError(oid)
    title, _, text = found.message.decode("utf-8", "replace").strip("\n").partition("\n")
    return CommitInfo(
        oid,
        found.tree.decode(),
        tuple(parent.decode() for parent in found.parents),
        found.author.decode("utf-8", "replace").partition(" <")[0],
        datetime.fromtimestamp(found.commit_time, timezone.utc),
        title,
        text.strip("\n"),
    )


def _signature(author: str) -> bytes:
    return f"{author} <{author}@users.noreply.hub.local>".encode()


def _text(text: str) -> bytes:
    """A message as git keeps it. Raises Refusal for what is no text."""
    try:
        return text.strip("\n").encode() + b"\n"
    except UnicodeEncodeError as error:
        raise Refusal(400, "the message has half a character") from error


def new_commit(tree: str, parent: str | None, change: Change) -> ShaFile:
    commit = Commit()
    commit.tree = ObjectID(tree.encode())
    commit.parents = [ObjectID(parent.encode())] if parent else []
    commit.author = commit.committer = _signature(change.author)
    commit.author_time = commit.commit_time = int(datetime.now(timezone.utc).timestamp())
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = _text("\n\n".join(filter(None, (change.summary, change.description))))
    return commit


def new_tag(name: str, commit: str, message: str, author: str) -> ShaFile:
    tag = Tag()
    tag.name = name.encode()
    tag.object = (Commit, ObjectID(commit.encode()))
    tag.tagger = _signature(author)
    tag.tag_time = int(datetime.now(timezone.utc).timestamp())
    tag.tag_timezone = 0
    tag.message = _text(message)
    return tag
