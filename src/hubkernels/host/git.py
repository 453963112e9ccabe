"""Git: the state of a folder for the note on how an artifact was built, and what changed since a commit."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hubkernels.errors import EnvironmentLacksError, InputError, Problem, nearest
from hubkernels.host.links import checkout_above
from hubkernels.host.process import Finished, run

_HASH = re.compile("[0-9a-f]{40,64}")
_IGNORED = "!!"
_SUBMODULE = "160000"
_ALL = ("--untracked-files=normal", "--ignore-submodules=none", "--ignored=matching")
"""Whatever the user's own configuration leaves out of a status."""
_AS_ON_DISK = ("-c", "core.fsmonitor=false", "-c", "core.trustctime=true", "-c", "core.checkStat=default")
"""Whatever it has git not look at in a file. The executable bit is left to it: a disk may have none."""
_OF_A_HOOK = frozenset(
    f"GIT_{name}" for name in ("DIR", "WORK_TREE", "INDEX_FILE", "PREFIX", "COMMON_DIR", "OBJECT_DIRECTORY")
)
"""Variables that name the repository whose hook we may be running in."""


def git_state(folder: Path, environment: Mapping[str, str], files: Iterable[str] = ()) -> dict[str, Any] | None:
    """Commit, and whether files below the folder, or these, differ from it; None outside a repository, or without git.

    What builds make does not count: a repository need not ignore it. What git ignores counts where it is one of these
    files: it is in no commit, though a link may lead there from one.
    """
    top = checkout_above(Path(os.path.realpath(folder)))  # git names another where core.worktree does
    if top is None:
        return None
    try:
        commit, entries = _state(top, environment)
    except EnvironmentLacksError:
        return None
    changed = [path for kind, path in entries if kind != _IGNORED]
    ways = [way for file in files for way in (file, os.path.realpath(file))]
    dirty = _touches(changed, os.path.realpath(folder), ways)
    return {"commit": commit, "dirty": dirty or _has([path for kind, path in entries if kind == _IGNORED], ways)}


def why_no_state(folder: Path, environment: Mapping[str, str]) -> Problem | None:
    """Why git does not tell the state of a checkout, in its own words; None where it does, and outside of one.

    Whether there is a checkout is looked at without git, which may tell nothing where it does not run or trusts nobody.
    """
    top = checkout_above(Path(os.path.realpath(folder)))
    if top is None:
        return None
    try:
        _state(top, environment)
    except EnvironmentLacksError as error:
        (problem,) = error.problems
        return replace(problem, where=str(top), hint=problem.hint or "install git")
    return None


def _way_out(said: str, top: Path) -> str:
    if "dubious ownership" in said:
        return f"`git config --global --add safe.directory {shlex.quote(str(top))}`"
    if "ambiguous argument 'HEAD'" in said:
        return "it has no commit yet: commit the sources"
    return f"`git -C {shlex.quote(str(top))} status` tells the same: mend it"


def _state(top: Path, environment: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """Commit of a checkout, and what differs from it on the disk, in submodules too: git's two letters and the path.

    Raises EnvironmentLacksError where git does not tell.
    """
    commit = _told(top, environment, "rev-parse", "HEAD").strip()
    listed = _told(top, environment, "ls-files", "-v", "--stage", "-z").split("\0")
    tracked = [(*facts.split(" ")[:2], name) for facts, _, name in (each.partition("\t") for each in listed if each)]
    overlooks = any(letter == "S" or letter.islower() for letter, _, _ in tracked)
    told: AbstractContextManager[dict[str, str]] = (
        _fresh_index(top, environment, commit) if overlooks else nullcontext({})
    )
    with told as index:
        status = _told(top, environment, "status", "--porcelain", "-z", "--no-renames", *_ALL, **index)
    entries = [(entry[:2], os.path.join(top, entry[3:])) for entry in status.split("\0") if entry]  # noqa: PTH118 - keeps the slash
    for _, mode, name in tracked:
        if mode == _SUBMODULE and os.path.lexists(top / name / ".git"):
            entries += _state(top / name, environment)[1]
    return commit, entries


@contextmanager
def _fresh_index(top: Path, environment: Mapping[str, str], commit: str) -> Iterator[dict[str, str]]:
    """The variable of an index that is made of a commit, in which git is told of no file to overlook it."""
    try:
        scratch = TemporaryDirectory()
    except OSError as error:
        what = f"no temporary folder can be made: {error.strerror or error}"
        raise EnvironmentLacksError(Problem(what, error.filename, "TMPDIR names another place")) from error
    with scratch as made:
        index = {"GIT_INDEX_FILE": f"{made}/index"}
        _told(top, environment, "read-tree", commit, **index)
        yield index


def _told(top: Path, environment: Mapping[str, str], *words: str, **variables: str) -> str:
    """What git prints of a checkout as it is on the disk, wherever else its configuration lets git look."""
    own = {"GIT_WORK_TREE": str(top), "GIT_NO_REPLACE_OBJECTS": "1"}
    done = _git(top, environment, *_AS_ON_DISK, *words, **own, **variables)
    if done.status:
        said = done.errors.strip().partition("\n\n")[0]  # what follows is a way out
        raise EnvironmentLacksError(
            Problem(f"git does not tell what is committed: {said}", str(top), _way_out(said, top))
        )
    return done.output


def _touches(changed: Iterable[str], folder: str, files: Iterable[str]) -> bool:
    """Whether changed paths lie in a folder, or are files or what they are below: a new folder, a submodule."""
    made = f"{folder}/build/"
    paths = [path for path in changed if not path.startswith(made)]
    if any(path.startswith(f"{folder}/") for path in paths) or _has(paths, [f"{folder}/"]):
        return True
    return _has(paths, files)


def _has(paths: Collection[str], files: Iterable[str]) -> bool:
    """Whether one of the files is among paths, or below one."""
    known, above = frozenset(paths), tuple(f"{path.rstrip('/')}/" for path in paths)
    return any(file in known or file.startswith(above) for file in files)


def takes_along(file: Path, environment: Mapping[str, str]) -> bool:
    """Whether a new file at a path would be one of a checkout: it lies in one, and git does not ignore it."""
    place = Path(os.path.realpath(file.absolute().parent), file.name)
    folder = next(above for above in place.parents if above.is_dir())
    try:
        inside = _git(folder, environment, "rev-parse", "--is-inside-work-tree")
        ignored = _git(folder, environment, "check-ignore", "--quiet", "--no-index", "--", str(place))
    except EnvironmentLacksError:
        return False
    return inside.output.strip() == "true" and ignored.status == 1


@dataclass(frozen=True)
class Repository:
    """A checkout. top: its folder, without links."""

    top: Path
    environment: Mapping[str, str]

    def commit(self, ref: str) -> str:
        """The full hash of a commit. Raises InputError for a ref that is none, with a likeness or the reason."""
        found = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        if found.status == 0 and _HASH.fullmatch(found.output.strip()):  # of `^HEAD`, what HEAD does not reach
            return found.output.strip()
        if self.run("rev-parse", "--is-shallow-repository").output.strip() == "true":
            hint = "this clone is shallow and may lack it: `git fetch --unshallow`, or fetch-depth: 0 where CI clones"
        else:
            known = self.run("for-each-ref", "--format=%(refname:short)").output.split()
            hint = nearest(ref, known) or "a branch, a tag or a commit: `git log --oneline`"
        raise InputError(Problem(f"{ref} is no commit of {self.top}", hint=hint))

    def changes(self, commit: str) -> dict[str, str]:
        """Every file that differs from the commit, committed or not, and new ones that git does not ignore.

        Path -> git's letter: M changed, A new, D gone, T of another type.
        """
        options = ("--name-status", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=none")
        words = self.output("diff", *options, commit, "--").split("\0")
        found = dict(zip(words[1::2], words[::2], strict=False))
        new = self.output("ls-files", "--others", "--exclude-standard", "-z").split("\0")
        return found | {path: "A" for path in new if path}

    def text_at(self, commit: str, path: Path) -> str | None:
        """The text of a file at a commit; None where it had no such file."""
        name = path.relative_to(self.top).as_posix()
        found = self.run("cat-file", "blob", f"{commit}:{name}")
        return None if found.status else found.output

    def output(self, *words: str) -> str:
        done = self.run(*words)
        if done.status:
            raise EnvironmentLacksError(Problem(f"git {words[0]} failed: {done.errors.strip()}", where=str(self.top)))
        return done.output

    def run(self, *words: str) -> Finished:
        return _git(self.top, self.environment, *words)


def find_repository(folder: Path, environment: Mapping[str, str]) -> Repository:
    """The checkout that a folder is in. Raises InputError where it is in none, EnvironmentLacksError without git."""
    found = _git(folder, environment, "rev-parse", "--show-toplevel")
    if found.status:
        what = f"git finds no checkout here: {found.errors.strip()}"
        hint = "what changed since a commit is known in a git checkout alone: leave --since out"
        raise InputError(Problem(what, str(folder), hint))
    return Repository(Path(os.path.realpath(found.output.rstrip("\n"))), environment)


def check_out(source: str, commit: str, folder: Path, environment: Mapping[str, str]) -> None:
    """One commit of another repository, in a new folder. source: its address, or its folder as a full path.

    Nobody is asked for a password, and no submodule is fetched. Raises EnvironmentLacksError where it is not to be had.
    """
    folder.mkdir(parents=True)
    silent = {**environment, "GIT_TERMINAL_PROMPT": "0"}
    made = _git(folder, silent, "init", "--quiet")
    if made.status == 0:
        made = _git(folder, silent, "fetch", "--quiet", "--no-tags", "--depth", "1", "--", source, commit)
    if made.status:  # a server need not give a commit that no branch is at
        made = _git(folder, silent, "fetch", "--quiet", "--no-tags", "--", source, "+refs/*:refs/fetched/*")
    if made.status == 0:
        made = _git(folder, silent, "checkout", "--quiet", "--detach", commit)
    if made.status:
        hint = "name a checkout or an address that has it: --source DIR|URL"
        what = f"git does not get the commit {commit}: {made.errors.strip()}"
        raise EnvironmentLacksError(Problem(what, source, hint))


def _git(folder: Path, environment: Mapping[str, str], *words: str, **variables: str) -> Finished:
    own = {name: value for name, value in environment.items() if name not in _OF_A_HOOK}
    return run(("git", "--no-optional-locks", "-C", folder, *words), env={**own, **variables, "LC_ALL": "C"})
