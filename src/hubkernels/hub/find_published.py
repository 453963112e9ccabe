"""Variants that were published: in a folder, or of a commit of a repository."""

from __future__ import annotations

from pathlib import Path

from hubkernels.build.artifacts import built
from hubkernels.errors import InputError, Problem
from hubkernels.hub.hashes import refuse_bytecode
from hubkernels.hub.offer import BUILD
from hubkernels.hub.remote import Remote
from hubkernels.model.client import COMMIT, REPO_ID, REPO_RULE
from hubkernels.model.digest import METADATA


def find_published(kernel: str) -> dict[str, Path]:
    """Variants by their tags. kernel: a folder, or ``OWNER/NAME@COMMIT``. Raises InputError where there are none."""
    if Path(kernel).is_dir():
        return _in_folder(Path(kernel))
    repo_id, commit = parse_pin(kernel)
    return fetch(Remote(repo_id), commit)


def parse_pin(text: str) -> tuple[str, str]:
    """``OWNER/NAME@COMMIT``. Raises InputError for another form: what can move is not verified."""
    repo_id, _, commit = text.partition("@")
    if not REPO_ID.fullmatch(repo_id):
        raise InputError(Problem(f"{text} is no folder and no repository of the Hub", hint=REPO_RULE))
    if not COMMIT.fullmatch(commit):
        what = f"{text} names no commit, and what a branch has can move"
        raise InputError(
            Problem(what, hint=f"{repo_id}@ and 40 hex digits: `publish` and `kernels versions` tell them")
        )
    return repo_id, commit


def fetch(remote: Remote, commit: str) -> dict[str, Path]:
    """Every variant of a commit, with all of its files. Raises CheckFailedError for bytecode."""
    where = f"{remote.repo_id}@{commit}"
    refuse_bytecode((path for path in remote.files(commit) if path.startswith(f"{BUILD}/")), where)
    return _in_folder(remote.snapshot(commit, [f"{BUILD}/*"]), where)


def _in_folder(folder: Path, name: str | None = None) -> dict[str, Path]:
    if (folder / METADATA).is_file():
        return {folder.resolve().name: folder}
    found = built(folder / BUILD) or built(folder)
    if not found:
        hint = f"a variant with its {METADATA}, or the folder of a repository"
        raise InputError(Problem("there is no variant of a kernel", name or str(folder), hint))
    return found
