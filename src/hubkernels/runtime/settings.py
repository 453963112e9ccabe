"""What the environment says, by the names of the client and one of ours: the one place of this room that asks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hubkernels.errors import InputError, Problem
from hubkernels.host.token import read_token

_ENDPOINT = "https://huggingface.co"
UNPROVED = "HUBKERNELS_ALLOW_UNPROVED"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True)
class Settings:
    """cache: folder of the client's. local: folders that stand for kernels, by name.

    unproved: whether what a Hub lists is believed of a pinned commit that it does not give by git.
    """

    endpoint: str
    cache: Path
    offline: bool
    local: Mapping[str, Path]
    unproved: bool
    environment: Mapping[str, str] = field(repr=False)
    token_file: Path

    @property
    def token(self) -> str | None:
        """None where none is to be sent unasked. Raises InputError for what is none.

        Read when a Hub is asked: what is in the cache loads whatever it is.
        """
        if _is_true(self.environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
            return None
        return read_token(self.environment, self.token_file)


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Asked at each load: a program may set its variables late. Raises InputError for a value that is none."""
    found = os.environ if environment is None else environment
    home = _path(found.get("HF_HOME") or f"{found.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface")
    hub = found.get("HF_HUB_CACHE") or found.get("HUGGINGFACE_HUB_CACHE") or str(home / "hub")
    return Settings(
        endpoint=_endpoint((found.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")),
        cache=own_cache(found) or _path(hub),
        offline=_is_true(found.get("HF_HUB_OFFLINE") or found.get("TRANSFORMERS_OFFLINE")),
        local=_local(found.get("LOCAL_KERNELS", "")),
        unproved=_is_true(found.get(UNPROVED)),
        environment=found,
        token_file=_path(own) if (own := found.get("HF_TOKEN_PATH")) else home / "token",
    )


def own_cache(environment: Mapping[str, str]) -> Path | None:
    """The folder of `KERNELS_CACHE`, the client's cache of kernels; None where there is none beside the Hub's.

    What downloads there expands ``~`` alone, and whoever looks there has to do the same.
    """
    own = environment.get("KERNELS_CACHE")
    return _from_home(Path(own)) if own else None


def _is_true(text: str | None) -> bool:
    return (text or "").upper() in _TRUE


def _path(text: str) -> Path:
    """As a shell would read it: the client expands ``~`` and ``$NAME``."""
    return _from_home(Path(os.path.expandvars(text)))


def _from_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise InputError(Problem(f"nobody's home is {path.parts[0]}", str(path), "write the full path")) from error


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not (is_one and text.isascii() and text.isprintable()) or " " in text:
        what = f"HF_ENDPOINT is no address of a Hub: {text[:200]!r}"
        raise InputError(Problem(what, "environment: HF_ENDPOINT", f"it begins with https://, as {_ENDPOINT}"))
    return text


def _local(text: str) -> dict[str, Path]:
    entries = [entry.partition("=") for entry in text.split(":")] if text else []
    wrong = [name for name, equals, _ in entries if not equals]
    if wrong:
        what = f"LOCAL_KERNELS has an entry without a folder: {wrong[0]!r}"
        raise InputError(Problem(what, hint="write ORG/NAME=FOLDER, and a colon between two"))
    return {name: Path(folder) for name, _, folder in entries}
