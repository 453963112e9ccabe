"""Values that hold a secret do not show it: tracebacks with locals, logs and assertions print what they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from hubkernels.hub.sign_key import KeySigner, PublicKey
from hubkernels.runtime.settings import read_settings

SECRET = "hf_s3cret"  # noqa: S105 - of nobody


def links() -> object:
    pytest.importorskip("starlette", reason="the embedded Hub is not installed")
    from hubkernels.hub.local.links import Links  # noqa: PLC0415 - an extra

    return Links(cast("Any", None), SECRET.encode())


@pytest.mark.parametrize(
    "made",
    [
        lambda: KeySigner(SECRET.encode(), PublicKey(b"")),
        links,
        lambda: read_settings({"HF_TOKEN": SECRET, "HF_HOME": str(Path("nowhere"))}),
    ],
    ids=["key", "links", "settings"],
)
def test_a_secret_is_not_in_what_is_printed(made: Callable[[], object]) -> None:
    assert SECRET not in repr(made())
