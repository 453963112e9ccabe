"""What each of git's files in a repository must be: a pipe in the place of one would be waited for, for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG

_PACKS = "objects/pack"
_IN_PACKS = (".pack", ".idx", ".bitmap")


def _may_be_replaced(mode: int) -> bool:
    return not S_ISDIR(mode)


Kind = tuple[Callable[[int], bool], str]
_FOLDER: Kind = (S_ISDIR, "is no folder")
_FILE: Kind = (S_ISREG, "is no plain file")

_KINDS: dict[str, Kind] = {
    "HEAD": (_may_be_replaced, "is a folder"),
    "commondir": _FILE,
    "info": _FOLDER,
    "info/grafts": _FILE,
    "objects": _FOLDER,
    "objects/info": _FOLDER,
    "objects/info/alternates": _FILE,
    "objects/info/commit-graph": _FILE,
    _PACKS: _FOLDER,
    "objects/pack/multi-pack-index": _FILE,
    "shallow": _FILE,
}
"""By name. Those that are missing here are looked at by who reads them: refs, the config, and what one object is in."""


def out_of_place(folder: Path) -> Iterator[tuple[Path, str]]:
    """What stands in a repository in the place of something of another kind, and what it is not."""
    for name, kind in {**_KINDS, **dict.fromkeys(_packs(folder), _FILE)}.items():
        mode = _mode(folder / name)
        if mode is not None and not kind[0](mode):
            yield folder / name, kind[1]


def _packs(folder: Path) -> list[str]:
    try:
        return [f"{_PACKS}/{path.name}" for path in (folder / _PACKS).iterdir() if path.suffix in _IN_PACKS]
    except OSError:  # there are none, or the folder is out of place itself
        return []


def _mode(path: Path) -> int | None:
    """Of what a link leads to, for an operator may have put it elsewhere. 0 of one to nothing, None of nothing."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0 if path.is_symlink() else None
