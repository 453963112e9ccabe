"""The token of the Hub: the one place that reads it. What is told of one that is none never has it in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import open_regular

_NAMES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")

_MOST = 1 << 16
"""Bytes of a file with a token."""

_HINT = (
    "`hf auth login` writes a good one; else HF_TOKEN, or HF_TOKEN_PATH, the file that has it; to read what is public "
    "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 sends none"
)


def read_token(environment: Mapping[str, str], file: Path) -> str | None:
    """Of the environment, else of the file, as the Hub's client takes it; None where there is none.

    Raises InputError for a file that is none or has no token in it, and for a token that no request can have: the
    client waits for a pipe for ever, and its errors have the token in them.
    """
    name = next((name for name in _NAMES if environment.get(name)), None)
    token = insist_on_token(environment[name], name) if name else None
    return token or insist_on_token(_content(file), str(file))


def insist_on_token(text: str, where: str) -> str | None:
    """The token of a text; None where it has none. Raises InputError for what no request can have."""
    token = text.replace("\r", "").replace("\n", "").strip()
    if not (token.isascii() and token.isprintable()):
        what = "the token of the Hub is none: it has other than printable ASCII"
        raise InputError(Problem(what, where, _HINT))
    return token or None


def _content(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            text = opened.read(_MOST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        what = f"the file of the Hub's token cannot be read: {error.strerror or error}"
        raise InputError(Problem(what, str(file), _HINT)) from error
    if len(text) > _MOST:
        raise InputError(Problem(f"the file of the Hub's token has more than {_MOST} bytes", str(file), _HINT))
    return text.decode("latin-1")
