"""Which files go to the store for large files, and which are left out of an upload."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import chain

LARGE_BYTES = 10 * 1024 * 1024
"""From here on a file is large, as on the Hub."""

_BINARY = "*.a *.bin *.dll *.dylib *.gif *.metallib *.png *.pyd *.safetensors *.so *.whl *.zip".split()  # noqa: SIM905
_AS_IT_IS = "* -text\n"  # a clone elsewhere gets the bytes that were published


def first_attributes(*, lfs: bool) -> dict[str, bytes]:
    """The files of a new repository. Without the store, no pattern may name it: git-lfs would miss its pointers."""
    lines = [f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in _BINARY] if lfs else []
    return {".gitattributes": (_AS_IT_IS + "".join(lines)).encode()}


def is_large(path: str, size: int, attributes: str) -> bool:
    """By its size, or by a pattern of .gitattributes."""
    patterns = (line.split()[0] for line in attributes.splitlines() if "filter=lfs" in line.split()[1:])
    return size > 0 and (size >= LARGE_BYTES or any(_matches(path, pattern) for pattern in patterns))


def is_ignored(path: str, ignore: str) -> bool:
    """By the patterns of a .gitignore; the last one that fits decides."""
    ignored = False
    for line in ignore.splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#"):
            wanted = not pattern.startswith("!")
            if _matches_any_part(path, pattern.removeprefix("!")):
                ignored = wanted
    return ignored


def _matches_any_part(path: str, pattern: str) -> bool:
    """Whether a pattern names the file or a folder that it is in."""
    parts = path.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    whole = () if pattern.endswith("/") else (path,)
    return any(_matches(each, pattern.rstrip("/")) for each in chain(above, whole))


def _matches(path: str, pattern: str) -> bool:
    """One with a slash is for the whole path, another for the name alone."""
    anchored = pattern.removeprefix("**/").lstrip("/")
    if "/" in pattern.removeprefix("**/"):
        return fnmatchcase(path, anchored)
    return fnmatchcase(path.rpartition("/")[2], anchored)
