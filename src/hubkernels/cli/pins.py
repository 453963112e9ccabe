"""`kernel-builder lock`, `prefetch` and `audit`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import columns, fail, note, say, say_json, say_warnings
from hubkernels.cli.options import HERE, Json, ProjectFolder
from hubkernels.cli.verify_signature import PolicyFile, chosen_policy
from hubkernels.errors import (
    CHECK_FAILED,
    CheckFailedError,
    EnvironmentLacksError,
    HubRefusedError,
    InputError,
    Problem,
)

if TYPE_CHECKING:
    from hubkernels.hub.audit import Audited
    from hubkernels.hub.lock import RemoteOf
    from hubkernels.model.lock import Lock, Pin

Repositories = Annotated[
    list[str] | None,
    typer.Argument(metavar="REPO[@VERSION|@REVISION]", help="Kernels instead of those that the project declares."),
]
Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="ORG|ORG/NAME", help="Take kernels that the Hub does not vouch for; repeatable."),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="The lock; kernels.lock of the folder by default.")
]
LockFile = Annotated[
    Path | None, typer.Option("--lock", metavar="FILE", help="The lock; kernels.lock of this folder by default.")
]


def lock(  # noqa: PLR0913, PLR0917 - one parameter an option
    repositories: Repositories = None,
    trust: Trust = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail where the lock is not what would be written.")
    ] = False,
    output: Output = None,
    project: ProjectFolder = HERE,
    json: Json = False,
) -> None:
    """Pin kernels, and all that they depend on, to commits and hashes: kernels.lock and kernels.hashes.json."""
    from hubkernels.hub.declared import declared, parse_word  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.lock import lock as resolve  # noqa: PLC0415
    from hubkernels.hub.lock import locked_twice, outdated  # noqa: PLC0415
    from hubkernels.hub.lock_files import read_lock, write_lock  # noqa: PLC0415
    from hubkernels.model.lock import LOCK  # noqa: PLC0415

    file = output or project / LOCK
    wanted = tuple(map(parse_word, repositories)) if repositories else declared(project)
    there = read_lock(file) if check else None
    now = resolve(wanted, remote_of(), trust or ())
    if there is not None and (problems := outdated(there, now)):
        again = shlex.join(_words(repositories, trust, output, project))
        hint = f"`kernel-builder {again}` writes it anew"
        raise CheckFailedError(*(Problem(each.what, str(file), hint) for each in problems))
    if not check:
        write_lock(file, now)
    _tell_pins(now, json=json)
    say_warnings(
        Problem(f"{repo_id} is locked at several commits: load_kernel({repo_id!r}) takes the first", str(file))
        for repo_id in locked_twice(now)
    )


def _words(
    repositories: Sequence[str] | None, trust: Sequence[str] | None, output: Path | None, project: Path
) -> tuple[str, ...]:
    """The words of a call that writes the lock."""
    trusted = (word for each in trust or () for word in ("--trust", each))
    to = ("--output", str(output)) if output else ()
    of = ("--project", str(project)) if project != HERE else ()
    return ("lock", *(repositories or ()), *trusted, *to, *of)


def _tell_pins(found: Lock, *, json: bool) -> None:
    from hubkernels.model.lock import dependency_to_json, words  # noqa: PLC0415 - `--help` does without

    files = found.files or {}
    if json:
        say_json(
            [
                {**dependency_to_json(pin.dependency), "commit": pin.commit, "files": len(files[pin.key])}
                for pin in found.pins
            ]
        )
    else:
        columns([(words(pin.dependency), pin.commit, f"{len(files[pin.key])} files") for pin in found.pins])


def prefetch(
    repositories: Repositories = None,
    lock: LockFile = None,
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Fetch pinned kernels whole and hold them against their hashes: they load without a network then."""
    from hubkernels.hub.prefetch import prefetch as fetch  # noqa: PLC0415 - `--help` does without
    from hubkernels.model.lock import words  # noqa: PLC0415

    wanted = _wanted(repositories, lock, trust or ())
    warn_without_hashes(wanted)
    done = []
    for each in fetch(wanted, remote_of(), _cache()):
        _keep_proof(each.pin)
        done.append(
            {"kernel": words(each.pin.dependency), "commit": each.pin.commit, "folder": str(each.folder)}
            | {"files": each.files, "versions": list(each.versions)}
        )
        if not json:
            names = "".join(f", version {version}" for version in each.versions)
            say(f"{each.pin.key}: {each.files} files{names}")
    if json:
        say_json(done)


def _keep_proof(pin: Pin) -> None:
    """For `hubkernels.runtime`, which asks for one of a pinned kernel; the stock client asks for none.

    The files are those of the lock already: only a proof of something else is an error.
    """
    from hubkernels.runtime.proving import keep_proof  # noqa: PLC0415 - `--help` does without

    try:
        keep_proof(pin.dependency.repo_id, pin.commit, _cache())
    except (HubRefusedError, EnvironmentLacksError) as error:
        say_warnings(
            replace(problem, what=f"{pin.key} is in the cache without its proof: {problem.what}")
            for problem in error.problems
        )


def warn_without_hashes(lock: Lock) -> None:
    if lock.files is None:
        note("warning: no hashes beside the lock: files are held against the digests of their own metadata alone")


def _wanted(repositories: Sequence[str] | None, file: Path | None, trust: Sequence[str]) -> Lock:
    from hubkernels.hub.declared import parse_word  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.lock import lock as resolve  # noqa: PLC0415
    from hubkernels.hub.lock_files import read_lock  # noqa: PLC0415
    from hubkernels.model.lock import LOCK  # noqa: PLC0415

    if repositories and file:
        raise InputError(Problem("--lock names kernels, and so do these words", hint="leave one of them out"))
    if repositories:
        return resolve(map(parse_word, repositories), remote_of(), trust)
    return read_lock(file or Path(LOCK))


def audit(lock: LockFile = None, policy: PolicyFile = None, json: Json = False) -> int:
    """Tell of each pinned kernel what is in the cache: hashes, signatures, sources, licences. Needs no network."""
    from hubkernels.hub.audit import audit as look  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.lock_files import read_lock  # noqa: PLC0415
    from hubkernels.model.lock import LOCK  # noqa: PLC0415

    found = look(read_lock(lock or Path(LOCK)), _cache(), chosen_policy(policy))
    if json:
        say_json([each.to_json() for each in found])
    else:
        for each in found:
            _tell(each)
    problems = [problem for each in found for problem in each.problems]
    return fail(problems, CHECK_FAILED, json=json) if problems else 0


def _tell(each: Audited) -> None:
    by = "the lock has them" if each.by_lock else "their digests have them; no hashes are beside the lock"
    count = len(each.problems)
    state = f"{count} problem{'s' if count > 1 else ''}, told below" if count else f"{each.files} files as {by}"
    say(f"{each.pin.key}: {state}")
    for variant in each.variants:
        say(f"  {variant}")


def _cache() -> Path:
    """The stock client's."""
    from hubkernels.hub.cached import hub_cache  # noqa: PLC0415 - `--help` does without
    from hubkernels.runtime.settings import own_cache  # noqa: PLC0415

    return own_cache(os.environ) or hub_cache()


def remote_of() -> RemoteOf:
    """Repositories of the Hub of this environment, read into the cache of the client."""
    from hubkernels.hub.remote import Remote  # noqa: PLC0415 - `--help` does without

    return lambda repo_id: Remote(repo_id, cache=_cache())
