"""`kernel-builder keygen`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from hubkernels.cli.console import say
from hubkernels.errors import InputError, Problem

_ELSEWHERE = "~/.config/hubkernels/release.key"

KeyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Where the private key goes; the public one to FILE.pub.")
]
Kind = Annotated[Literal["ecdsa-p256", "ed25519"], typer.Option("--type", help="Kind of the key.")]


def keygen(file: KeyFile, kind: Kind = "ecdsa-p256") -> None:
    """Make a key that signs what is published, for `publish --sign-key`; HUBKERNELS_SIGN_PASSWORD locks its file."""
    from hubkernels.host.git import takes_along  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.sign_key import PASSWORD, make_key, read_public  # noqa: PLC0415

    if takes_along(file, os.environ):
        hint = f"outside of it, as {_ELSEWHERE}; or name it in .gitignore first, as *.key"
        what = f"{file} is in a checkout, and git does not ignore it: one commit gives it away"
        raise InputError(Problem(what, hint=hint))
    public = make_key(file, kind, os.environ.get(PASSWORD))
    say(f"private key  {file}: keep it to yourself")
    say(f"public key   {public}: give it to who verifies, in a policy")
    if takes_along(public, os.environ):
        say(f"             commit {public.name}, or keep it elsewhere, before the next build: it is not committed yet")
    say(f"named        {read_public(public.read_bytes()).hint}")
