"""What pip is configured for, read from where pip reads it: to ask pip itself takes half a second."""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from hubkernels.host.files import read_regular

_SECTIONS = ("global", "install")  # of what `pip install` reads
_TRUE = frozenset({"1", "y", "yes", "t", "true", "on"})


def texts(environment: Mapping[str, str]) -> Iterator[str]:
    """All that an answer of pip depends on, but for the index itself: its variables, its files, and constraints."""
    yield from (f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith("PIP_"))
    yield from map(_text, _files(environment))
    for words in said(environment, "constraint"):
        yield from (_text(Path(word.removeprefix("file://"))) for word in words.split())


def said(environment: Mapping[str, str], option: str) -> tuple[str, ...]:
    """What an option is set to, the last one wins: by pip's files, and by its variable."""
    found = [value for path in _files(environment) for value in _values(_text(path), option)]
    return tuple(filter(None, (*found, environment.get(f"PIP_{option.replace('-', '_').upper()}"))))


def without_index(environment: Mapping[str, str]) -> str | None:
    """The setting by which pip asks no index, in words; None where it asks one."""
    last = (said(environment, "no-index") or ("",))[-1]
    if last.lower() not in _TRUE:
        return None
    return "PIP_NO_INDEX" if environment.get("PIP_NO_INDEX") else "no-index in pip's configuration"


def _values(text: str, option: str) -> Iterator[str]:
    parser = configparser.RawConfigParser()
    with contextlib.suppress(configparser.Error):  # pip tells of that itself
        parser.read_string(text)
        yield from (parser.get(name, option) for name in _SECTIONS if parser.has_option(name, option))


def _files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """pip's files, there or not, in the order in which it reads them."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return ()
    home = Path(environment.get("HOME", "/"))
    machine = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    own = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    found = (*(Path(folder, "pip/pip.conf") for folder in machine), Path("/etc/pip.conf"))
    found = (*found, home / ".pip/pip.conf", own / "pip/pip.conf", Path(sys.prefix, "pip.conf"))
    return (*found, Path(named)) if named else found


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode(errors="replace")
    except (OSError, ValueError):
        return ""
