"""The token of the Hub: the one place that reads it. What is told of one that is none never has it in it."""

from __future__ import annotations

import os
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import open_regular

_MOST = 1 << 16
"""Bytes of a file with a token."""

_HINT = "`hf auth login` writes a good one; else HF_TOKEN, or HF_TOKEN_PATH, the file that has it"


def hub_token() -> str | None:
    """What the Hub's client sends; None where nobody has logged in.

    Raises InputError for a file that is none or has no token in it, and for a token that no request can have: the
    client waits for a pipe for ever, and its errors have the token in them.
    """
    from huggingface_hub import constants, get_token  # noqa: PLC0415 - an extra

    if not (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN")):
        _look_at(Path(constants.HF_TOKEN_PATH))
    return insist_on_token(get_token(), "HF_TOKEN")


def insist_on_token(token: str | None, where: str) -> str | None:
    if token and not (token.isascii() and token.isprintable()):
        what = "the token of the Hub is none: it has other than printable ASCII"
        raise InputError(Problem(what, where, _HINT))
    return token


def _look_at(file: Path) -> None:
    try:
        with open_regular(file) as opened:
            text = opened.read(_MOST + 1)
    except FileNotFoundError:
        return
    except OSError as error:
        what = f"the file of the Hub's token cannot be read: {error.strerror or error}"
        raise InputError(Problem(what, str(file), _HINT)) from error
    if len(text) > _MOST:
        raise InputError(Problem(f"the file of the Hub's token has more than {_MOST} bytes", str(file), _HINT))
    insist_on_token(text.decode("latin-1").strip().replace("\r", "").replace("\n", ""), str(file))
