"""`kernel-builder hub`."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hubkernels.cli.console import note, say
from hubkernels.errors import EnvironmentLacksError, Problem

if TYPE_CHECKING:
    from hubkernels.hub.local.accounts import Account

app = typer.Typer(help="A Hub of one's own.", no_args_is_help=True, rich_markup_mode=None)

TOKENS = "HUBKERNELS_HUB_TOKENS"


@app.callback()
def _only_verb() -> None:
    """Keep `serve` a verb of its own: typer drops the name of a lone one."""


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
    tokens: Annotated[
        Path | None,
        typer.Option("--tokens", metavar="FILE", help=f"A grant a line, TOKEN=ORG:ROLE; instead of {TOKENS}."),
    ] = None,
) -> None:
    """Serve the repositories in a folder to the Hub's clients, until it is interrupted."""
    try:
        from hubkernels.hub.local import serve as server  # noqa: PLC0415 - `--help` does without
        from hubkernels.hub.local.accounts import Accounts  # noqa: PLC0415
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        hint = "pip install 'hubkernels[hub]'"
        raise EnvironmentLacksError(Problem(f"a Hub needs {missing}, which is not installed", hint=hint)) from error

    accounts = Accounts(_accounts(tokens), frozenset(trust or ()))
    address = server.Address(host, port, content_port if content_port is not None else port and port + 1)
    stopped = _on_interrupt()
    with server.serve(folder, accounts, lfs=lfs, address=address) as hub:
        say(f"serving {folder} at {hub.url}, large files at {hub.content_url}")
        say(f"  export HF_ENDPOINT={hub.url}")
        if lfs == "always":
            say("  export HF_HUB_DISABLE_XET=1")
        if not accounts.accounts:
            note(f"warning: everybody may read and nobody may write: no token is in {TOKENS} or --tokens")
        stopped.wait()
        note("finishing what was asked; interrupt again to stop at once")


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
