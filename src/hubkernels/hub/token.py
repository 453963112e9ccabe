"""What the Hub's client sends by itself, looked at before it does."""

from __future__ import annotations

import os
from pathlib import Path

from hubkernels.host.token import insist_on_token, read_token
from hubkernels.model.refused import LOG_IN


def hub_token() -> str | None:
    """What the client sends; None where nobody has logged in, or none is to be sent unasked.

    It knows more sources than the two that are looked at. Raises InputError for what is no token.
    """
    from huggingface_hub import constants, get_token  # noqa: PLC0415 - an extra

    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return None
    read_token(os.environ, Path(constants.HF_TOKEN_PATH))
    return insist_on_token(get_token() or "", "HF_TOKEN")


def way_to_write() -> str:
    """What to do where there is no token to write with."""
    from huggingface_hub import constants  # noqa: PLC0415 - an extra

    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return "HF_HUB_DISABLE_IMPLICIT_TOKEN is set, so that none is sent: unset it"
    return f"{LOG_IN}: one with write access"
