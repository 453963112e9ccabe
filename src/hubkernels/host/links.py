"""Links: which of them lead to what a project may give away. One in a pull request can lead to anything here."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

OWN_FILE = "put the file itself there: a link may lead to files of the project's git checkout that are not hidden"


def why_foreign(path: Path, root: Path) -> str | None:
    """How a file is none of a project's own to publish, as what it is: "is a link ..."; None where it is one.

    Packages of one checkout share files. What is hidden in it is not for others: git keeps tokens in ``.git``.
    root: the package's folder.
    """
    place, own = os.path.realpath(path), os.path.realpath(root)  # Path.resolve raises for a loop, before Python 3.13
    if not (PurePath(place).is_relative_to(own) or PurePath(place).is_relative_to(_top(Path(own)))):
        return f"is a link out of the project, to {place}"
    beyond = PurePath(place).relative_to(os.path.commonpath((place, own)))
    return f"is a link to what is hidden: {place}" if any(part.startswith(".") for part in beyond.parts) else None


def checkout_above(folder: Path) -> Path | None:
    """The top of the git checkout that a folder is in, as its path has it, without links; None outside of one."""
    return next((way for way in (folder, *folder.parents) if _is_of_git(way / ".git")), None)


def _is_of_git(place: Path) -> bool:
    """Whether a ``.git`` makes a checkout. git passes over a folder that is none of its own, such as an empty one.

    What is damaged, or cannot be read, counts: it is for git to say so.
    """
    try:
        return not {"HEAD", "objects", "refs"}.isdisjoint(each.name for each in place.iterdir())
    except OSError:  # a file: it names the folder
        return os.path.lexists(place)


def _top(root: Path) -> Path:
    """The checkout that a folder is in; without one, the topmost project above it: archives have no ``.git``."""
    ways = (*reversed(root.parents), root)
    return checkout_above(root) or next((way for way in ways if os.path.lexists(way / "build.toml")), root)
