"""Values that hold a secret do not show it: tracebacks with locals, logs and assertions print what they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from hubkernels.hub.local.links import Links
from hubkernels.hub.sign_key import KeySigner, PublicKey
from hubkernels.runtime.settings import read_settings

SECRET = "hf_s3cret"  # noqa: S105 - of nobody


@pytest.mark.parametrize(
    "value",
    [
        KeySigner(SECRET.encode(), PublicKey(b"")),
        Links(cast("Any", None), SECRET.encode()),
        read_settings({"HF_TOKEN": SECRET, "HF_HOME": str(Path("nowhere"))}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_secret_is_not_in_what_is_printed(value: object) -> None:
    assert SECRET not in repr(value)
