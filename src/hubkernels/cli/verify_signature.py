"""`kernel-builder verify-signature`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubkernels.cli.console import columns, say_json
from hubkernels.cli.options import Json
from hubkernels.errors import CheckFailedError

if TYPE_CHECKING:
    from hubkernels.hub.sign_policy import Policy
    from hubkernels.hub.sign_state import SignatureState

POLICY = "HUBKERNELS_SIGN_POLICY"

Kernel = Annotated[
    str, typer.Argument(metavar="FOLDER|OWNER/NAME@COMMIT", help="Variants that are here, or those of a commit.")
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help=f"Who may sign; else {POLICY}, else as `kernels` has it."),
]


def verify_signature(kernel: Kernel, policy: PolicyFile = None, json: Json = False) -> None:
    """Check that each variant was signed by who may, and that no file was changed since; asks no other server."""
    from hubkernels.hub.find_published import find_published  # noqa: PLC0415 - `--help` does without
    from hubkernels.hub.sign_state import signature_state  # noqa: PLC0415

    wanted = chosen_policy(policy)
    states = {tag: signature_state(folder, wanted) for tag, folder in find_published(kernel).items()}
    if json:
        say_json([_as_json(tag, state) for tag, state in states.items()])
    else:
        columns([(tag, state.status, state.kernel or "", state.signer or "") for tag, state in states.items()])
    wrong = [state.problem(tag) for tag, state in states.items() if not state.good]
    if wrong:
        raise CheckFailedError(*wrong)


def chosen_policy(file: Path | None) -> Policy:
    """Of the command line, else of the environment, else that of the stock client."""
    from hubkernels.hub.sign_policy import read_policy  # noqa: PLC0415 - `--help` does without

    named = os.environ.get(POLICY)
    return read_policy(file or (Path(named) if named else None))


def _as_json(tag: str, state: SignatureState) -> dict[str, str | None]:
    told = {"status": state.status, "signer": state.signer, "kernel": state.kernel, "reason": state.reason}
    return {"variant": tag, **told}
