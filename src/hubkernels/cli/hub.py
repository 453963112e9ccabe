"""`kernel-builder hub`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hubkernels.cli.console import note, say, say_json
from hubkernels.cli.options import Json
from hubkernels.cli.pins import LockFile, remote_of, warn_without_hashes
from hubkernels.errors import EnvironmentLacksError, InputError, Problem

if TYPE_CHECKING:
    from hubkernels.hub.archive import Carried
    from hubkernels.hub.local.accounts import Account
    from hubkernels.hub.local.asked import Limits

app = typer.Typer(help="A Hub of one's own.", no_args_is_help=True, rich_markup_mode=None)

TOKENS = "HUBKERNELS_HUB_TOKENS"


@app.command("serve")
def serve(  # noqa: PLR0913, PLR0917 - one parameter an option
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the repositories; made when missing.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 is any that is free.")] = 8765,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0 is all.")] = "127.0.0.1",
    content_port: Annotated[
        int | None,
        typer.Option("--content-port", min=0, max=65535, help="Port of large files; by default the next one."),
    ] = None,
    lfs: Annotated[
        Literal["never", "always"],
        typer.Option("--lfs", help="Whether large files are stored apart; clients then need HF_HUB_DISABLE_XET=1."),
    ] = "never",
    trust: Annotated[
        list[str] | None,
        typer.Option("--trust", metavar="ORG", help="Let clients load kernels of ORG unasked; may be given again."),
    ] = None,
    largest: Annotated[
        str | None, typer.Option("--largest", metavar="SIZE", help="Most that one file may have, as 500MB.")
    ] = None,
    keep_free: Annotated[
        str | None,
        typer.Option("--keep-free", metavar="SIZE", help="Take nothing that would leave less of the disk free."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", metavar="FILE", help=f"A grant a line, TOKEN=ORG:ROLE; instead of {TOKENS}."),
    ] = None,
) -> None:
    """Serve the repositories in a folder to the Hub's clients, until it is interrupted."""
    with _installed():
        from hubkernels.hub.local import serve as server  # noqa: PLC0415 - `--help` does without
        from hubkernels.hub.local.accounts import Accounts  # noqa: PLC0415

    accounts = Accounts(_accounts(tokens), frozenset(trust or ()))
    limits = _limits(largest, keep_free)
    address = server.Address(host, port, content_port if content_port is not None else port and port + 1)
    stopped = _on_interrupt()
    with server.serve(folder, accounts, lfs=lfs, address=address, limits=limits) as hub:
        say(f"serving {folder} at {hub.url}, large files at {hub.content_url}")
        say(f"  export HF_ENDPOINT={hub.url}")
        if lfs == "always":
            say("  export HF_HUB_DISABLE_XET=1")
        if not accounts.accounts:
            note(f"warning: everybody may read and nobody may write: no token is in {TOKENS} or --tokens")
        stopped.wait()
        if sys.stderr.isatty():  # somebody may have pressed a key; a script that ends it has not
            note("finishing what was asked; interrupt again to stop at once")


def _limits(largest: str | None, keep_free: str | None) -> Limits:
    """What the server takes; what is not said is as ever."""
    from hubkernels.hub.local.asked import Limits  # noqa: PLC0415 - `--help` does without

    limits, most = Limits(), _size("--largest", largest)
    if most == 0:
        raise InputError(Problem(f"{largest} lets no file in", "--largest", "leave it out, or write it as 500MB"))
    if most is not None:
        limits = replace(limits, file=min(limits.file, most), large=min(limits.large, most))
    return replace(limits, keep_free=_size("--keep-free", keep_free) or 0)


def _size(option: str, text: str | None) -> int | None:
    from hubkernels.model.size import FORMS, parse_size  # noqa: PLC0415 - `--help` does without

    size = parse_size(text) if text is not None else None
    if text is not None and size is None:
        raise InputError(Problem(f"{text} is no size", option, FORMS))
    return size


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    """The extras are imported inside."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        hint = "pip install 'hubkernels[hub]'"
        raise EnvironmentLacksError(Problem(f"a Hub needs {missing}, which is not installed", hint=hint)) from error


@app.command("pull")
def pull(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `hub serve` serves; made when missing.")],
    lock: LockFile = None,
    json: Json = False,
) -> None:
    """Bring the repositories of a lock from the Hub into a folder, with the same commits."""
    with _installed():
        from hubkernels.hub.pull import pull as bring  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.lock_files import read_lock  # noqa: PLC0415
    from hubkernels.model.lock import LOCK  # noqa: PLC0415

    done = []
    wanted = read_lock(lock or Path(LOCK))
    warn_without_hashes(wanted)
    for each in bring(wanted, remote_of(), folder):
        done.append({"repo_id": each.repo_id, "commits": list(each.commits), "branches": each.branches})
        if not json:
            say(f"{each.repo_id}: {', '.join(each.commits)}")
    if json:
        say_json(done)


Archive = Annotated[Path, typer.Argument(metavar="FILE", help="The archive.")]
HubFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `hub serve` serves.")]


@app.command("pack")
def pack(file: Archive, folder: HubFolder, json: Json = False) -> None:
    """Write all repositories of a folder to one file, with a hash of each of its files."""
    with _installed():
        from hubkernels.hub.archive import pack as write  # noqa: PLC0415 - `--help` does without

    _tell_carried(write(folder, file), json=json)


@app.command("unpack")
def unpack(file: Archive, folder: HubFolder, json: Json = False) -> None:
    """Take the repositories of such a file into a folder; a damaged one is refused whole."""
    with _installed():
        from hubkernels.hub.archive import unpack as read  # noqa: PLC0415 - `--help` does without

    _tell_carried(read(file, folder), json=json)


def _tell_carried(carried: Carried, *, json: bool) -> None:
    if json:
        say_json({"repositories": list(carried.repositories), "files": carried.files, "sha256": carried.sha256})
        return
    for repository in carried.repositories:
        say(f"  {repository}")
    say(f"{carried.files} files, SHA-256 of the archive {carried.sha256}")


def _accounts(tokens: Path | None) -> tuple[Account, ...]:
    from hubkernels.hub.local.accounts import parse_tokens, read_tokens  # noqa: PLC0415

    return read_tokens(tokens) if tokens else parse_tokens(os.environ.get(TOKENS, ""), f"environment: {TOKENS}")


def _on_interrupt() -> threading.Event:
    """Set by the first signal that ends a server; the second one ends the process as ever."""
    stopped = threading.Event()

    def stop(number: int, _frame: object) -> None:
        stopped.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped
