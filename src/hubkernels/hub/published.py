"""Variants that were published: in a folder, or of a commit of a repository."""

from __future__ import annotations

from pathlib import Path

from hubkernels.build.artifacts import built
from hubkernels.errors import CheckFailedError, InputError, Problem
from hubkernels.hub.offer import BUILD
from hubkernels.hub.remote import Remote
from hubkernels.model.artifact import METADATA
from hubkernels.model.client import COMMIT, REPO_ID, REPO_RULE
from hubkernels.model.digest import is_bytecode


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
    """Every variant of a commit, with all of its files.

    Raises CheckFailedError for bytecode: no digest covers it, and Python may run it instead of a source that one does.
    The client does not download it, but a whole snapshot has it.
    """
    paths = [path for path in remote.files(commit) if path.startswith(f"{BUILD}/")]
    bytecode = [path for path in paths if is_bytecode(Path(path))]
    if bytecode:
        what = f"there is bytecode, for which nobody can vouch: {', '.join(bytecode)}"
        hint = "do not load it from a whole snapshot; `publish` sends none"
        raise CheckFailedError(Problem(what, f"{remote.repo_id}@{commit}", hint))
    return _in_folder(remote.snapshot(commit, [f"{BUILD}/*"]), f"{remote.repo_id}@{commit}")


def _in_folder(folder: Path, name: str | None = None) -> dict[str, Path]:
    if (folder / METADATA).is_file():
        return {folder.resolve().name: folder}
    found = built(folder / BUILD) or built(folder)
    if not found:
        hint = f"a variant with its {METADATA}, or the folder of a repository"
        raise InputError(Problem("there is no variant of a kernel", name or str(folder), hint))
    return found
