"""Repositories that come from elsewhere, whole: placed where there is none, else joined with the one that is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from hubkernels.errors import CheckFailedError, EnvironmentLacksError, HubRefusedError, Problem
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.content import Content
from hubkernels.hub.local.durable import make_folders, move, sync_all
from hubkernels.hub.local.hub import Hub, Stored, TakenError
from hubkernels.hub.local.names import RepoId, check_new
from hubkernels.hub.local.repository import Repository
from hubkernels.hub.local.whole import insist_on_whole

_LARGE = "lfs/objects"
_STORES = ("objects", _LARGE)
_HEADS, _TAGS = "refs/heads/", "refs/tags/"


@contextmanager
def opened(folder: Path, way_out: str = "stop it, and start it again afterwards") -> Iterator[Hub]:
    """A Hub's folder, for one process; a new one is made, and is gone again where an error leaves nothing in it.

    way_out: where a server has it. Raises EnvironmentLacksError then, InputError where something else is there.
    """
    hub = Hub(folder.absolute())
    try:
        hub.open()
    except TakenError as error:
        raise EnvironmentLacksError(Problem(error.problems[0].what, hint=way_out)) from error
    except BaseException:
        hub.close()
        raise
    try:
        yield hub
    except BaseException as error:
        hub.leave_nothing()
        if isinstance(error, Refusal):
            raise HubRefusedError(Problem(error.message, str(folder))) from error
        raise
    finally:
        hub.close()


class Coming(NamedTuple):
    """A repository that there is nothing against. changed: the refs that move in the one that is there."""

    repo: RepoId
    new: Path
    private: bool
    there: Stored | None
    changed: dict[str, str]


def take_in(hub: Hub, repo: RepoId, new: Path, *, private: bool) -> Stored:
    """Look at a repository in the scratch folder, and take it in."""
    return place(hub, look_at(hub, repo, new, private=private))


def look_at(hub: Hub, repo: RepoId, new: Path, *, private: bool) -> Coming:
    """Whatever there is against taking in a repository that stands in the scratch folder.

    It was looked at, by `insist_on_whole`. Branches of one that is there move forward alone: one that is ahead stays,
    and its own privacy too. New tags come; pull requests do not, for each Hub numbers its own. Raises CheckFailedError
    for a pack that is damaged, a branch with commits of its own and a tag that names another one, and where the one
    that is there is damaged, Refusal for a name that none may have. Nothing is changed so far.
    """
    check_new(repo)
    there = hub.find(repo)
    if there is not None:
        insist_on_whole(there.git, there.repo, str(there.git.folder), "delete it there, or bring it back from a copy")
    staged = Repository(new, hub.scratch)
    with closing(staged.objects):
        _write_out(staged, repo)
        changed = {**_forward(there, staged), **_new_tags(there, staged)} if there else {}
    if there:
        _refuse_clashes(there, changed)
    sync_all(new.rglob("*"))
    return Coming(repo, new, private, there, changed)


def place(hub: Hub, coming: Coming) -> Stored:
    """Take in what was looked at."""
    there, new = coming.there, coming.new
    if there is None:
        return hub.adopt(coming.repo, new, private=coming.private)
    there.git.content.leave_out(Content(new / _LARGE, hub.scratch).left_out())
    for store in _STORES:
        _move_missing(new / store, there.git.folder / store, there.git.folder)
    there.git.content.leave_out(())
    for ref, oid in coming.changed.items():
        there.git.refs.set(ref, oid)
    return there


def _write_out(staged: Repository, repo: RepoId) -> None:
    """Each object stands in a file of its own afterwards, by what it hashes to."""
    if wrong := staged.objects.write_out():
        hint = "nothing of it was taken: fetch or copy it again"
        raise CheckFailedError(*(Problem(what, str(repo), hint) for what in wrong))


def _forward(there: Stored, staged: Repository) -> dict[str, str]:
    """The branches that move, and where to."""
    now, new = there.git.refs.below(_HEADS), staged.refs.below(_HEADS)
    ahead = {name for name in new if name in now and _holds(there.git, now[name], new[name])}
    moved = {name: commit for name, commit in new.items() if name not in ahead}
    apart = [name for name, commit in moved.items() if name in now and not _holds(staged, commit, now[name])]
    if apart:
        where = str(there.git.folder)
        hint = "what was published here only would be lost: delete the repository first, or use another folder"
        raise CheckFailedError(
            *(Problem(f"{name} of {there.repo} has commits that the other has not", where, hint) for name in apart)
        )
    return {f"{_HEADS}{name}": commit for name, commit in moved.items()}


def _new_tags(there: Stored, staged: Repository) -> dict[str, str]:
    now, new = there.git.refs.below(_TAGS), staged.refs.below(_TAGS)
    if apart := [name for name in new if now.get(name, new[name]) != new[name]]:
        what, hint = f"the tag {{}} of {there.repo} names another commit here", "delete the one that is wrong"
        raise CheckFailedError(*(Problem(what.format(name), str(there.git.folder), hint) for name in apart))
    return {f"{_TAGS}{name}": oid for name, oid in new.items() if name not in now}


def _refuse_clashes(there: Stored, refs: Iterable[str]) -> None:
    if apart := [ref for ref in refs if there.git.refs.clashes(ref)]:
        what, hint = f"{{}} clashes with a ref of {there.repo}: one is a folder of the other", "delete one of them"
        raise CheckFailedError(*(Problem(what.format(ref), str(there.git.folder), hint) for ref in apart))


def _holds(git: Repository, head: str, commit: str) -> bool:
    return any(info.oid == commit for info in git.log(head))


def _move_missing(source: Path, target: Path, root: Path) -> None:
    """Files that are named by their content, each on the disk. Those that are there are new again for `git gc`."""
    folders = set()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        place = target / path.relative_to(source)
        if place.exists():
            os.utime(place)
        else:
            folders |= {*make_folders(place.parent, root), place.parent}
            move(path, place)
    sync_all(folders)
