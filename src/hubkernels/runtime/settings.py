"""What the environment says, by the names of the client and one of ours: the one place of this room that asks it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from hubkernels.errors import InputError, Problem

_ENDPOINT = "https://huggingface.co"
UNPROVED = "HUBKERNELS_ALLOW_UNPROVED"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


@dataclass(frozen=True)
class Settings:
    """cache: folder of the client's. local: folders that stand for kernels, by name.

    unproved: whether what a Hub lists is believed of a pinned commit that it does not give by git.
    """

    endpoint: str
    token: str | None = field(repr=False)
    cache: Path
    offline: bool
    local: Mapping[str, Path]
    unproved: bool


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Asked at each load: a program may set its variables late. Raises InputError for a value that is none."""
    found = os.environ if environment is None else environment
    home = _path(found.get("HF_HOME") or f"{found.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface")
    hub = found.get("HF_HUB_CACHE") or found.get("HUGGINGFACE_HUB_CACHE") or str(home / "hub")
    return Settings(
        endpoint=_endpoint((found.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")),
        token=_token(found, home),
        cache=own_cache(found) or _path(hub),
        offline=_is_true(found.get("HF_HUB_OFFLINE") or found.get("TRANSFORMERS_OFFLINE")),
        local=_local(found.get("LOCAL_KERNELS", "")),
        unproved=_is_true(found.get(UNPROVED)),
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


def _token(environment: Mapping[str, str], home: Path) -> str | None:
    """Sent only where it is meant: without a wish, `HF_HUB_DISABLE_IMPLICIT_TOKEN` leaves it out."""
    if _is_true(environment.get("HF_HUB_DISABLE_IMPLICIT_TOKEN")):
        return None
    text = environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN")
    if not text:
        place = environment.get("HF_TOKEN_PATH")
        try:
            text = (_path(place) if place else home / "token").read_text("utf-8")
        except (OSError, UnicodeError):
            return None
    token = text.replace("\r", "").replace("\n", "").strip()
    if not (token.isascii() and token.isprintable()):
        what = "the token of the Hub is none: it has other than printable ASCII"
        raise InputError(Problem(what, "HF_TOKEN, or the file of `hf auth login`", "hf_..."))
    return token or None


def _local(text: str) -> dict[str, Path]:
    entries = [entry.partition("=") for entry in text.split(":")] if text else []
    wrong = [name for name, equals, _ in entries if not equals]
    if wrong:
        what = f"LOCAL_KERNELS has an entry without a folder: {wrong[0]!r}"
        raise InputError(Problem(what, hint="write ORG/NAME=FOLDER, and a colon between two"))
    return {name: Path(folder) for name, _, folder in entries}
