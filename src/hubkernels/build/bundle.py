"""From objects to the artifact: a whole folder, moved into place at once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hubkernels.host.files import disk_errors, read_json_object, read_regular, replace_folder, write_atomically
from hubkernels.model.artifact import Artifact, note_of, with_digest
from hubkernels.model.digest import METADATA, digest_folder
from hubkernels.model.plan import BuildPlan


def is_current(plan: BuildPlan, folder: Path) -> bool:
    """Whether the folder holds just what the plan would make: its metadata, files with the digest it names, a note.

    Metadata are held against it byte by byte: JSON spells one thing in many ways, and the client reads some otherwise.
    """
    try:
        files = digest_folder(folder)
        found = read_regular(folder / METADATA)
    except OSError:  # another build is replacing it, or it cannot be read: it is made anew
        return False
    noted = read_json_object(note_of(folder)).get("id") == plan.op_id
    return noted and set(files) == plan.file_names and found == _metadata(plan, files)


def stage(plan: BuildPlan, root: Path, scratch: Path) -> Path:
    """Put the artifact together in ``scratch``, where the outputs of its steps are."""
    staged = scratch / plan.variant
    with disk_errors(staged):
        staged.mkdir()
        for file in plan.files:
            target = staged / file.target
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.text is not None:
                target.write_text(file.text, encoding="utf-8")
            elif file.source is not None:
                shutil.copyfile(root / file.source, target)
        if plan.library is not None:
            shutil.copyfile(scratch / plan.library, staged / plan.library_name)
        (staged / METADATA).write_bytes(_metadata(plan, digest_folder(staged)))
    return staged


def publish(plan: BuildPlan, staged: Path, folder: Path, provenance: Mapping[str, Any]) -> Artifact:
    """Move a staged artifact to its place on the same disk; how it was built goes beside it.

    The folder comes last: moving it takes no room, and a note without its folder counts for nothing.
    """
    write_atomically(note_of(folder), _json({"variant": plan.variant, "id": plan.op_id, **provenance}))
    replace_folder(staged, folder, staged.parent)
    return Artifact(plan.package, plan.variant, plan.op_id, folder, fresh=True)


def note_commit(folder: Path, state: Callable[[], Mapping[str, Any] | None]) -> None:
    """Sources that were not committed when they were built may be by now: note the commit that has just them.

    Where git told nothing then, note what it tells now. state: of the sources, in the form of `git_state`; asked only
    where the note names no commit that has them.
    """
    note = read_json_object(note_of(folder))
    known = note.get("git")
    if isinstance(known, dict) and known.get("dirty") is False:
        return
    now = state()
    if now and not (now["dirty"] and isinstance(known, dict)):
        write_atomically(note_of(folder), _json({**note, "git": now}))


def _metadata(plan: BuildPlan, files: dict[str, str]) -> bytes:
    return _json(with_digest(dict(plan.metadata), files))


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
