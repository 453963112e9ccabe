"""Which files go to the store for large files, and which are left out of an upload."""

from __future__ import annotations

import re
from fnmatch import translate
from itertools import islice
from typing import NamedTuple

from hubkernels.hub.local.answers import Refusal

LARGE_BYTES = 10 * 1024 * 1024
"""From here on a file is large, as on the Hub."""

_BINARY = "*.a *.bin *.dll *.dylib *.gif *.metallib *.png *.pyd *.safetensors *.so *.whl *.zip".split()  # noqa: SIM905
_WILD = re.compile(r"[*?\[]")
_PATTERNS_MOST = 1000
_RULES_MOST, _RULES_TEXT_MOST = 1000, 64 << 10
_COMPARED_MOST = 16 << 20
"""Characters that rules are held against in one request, each again for every rule: seconds, where it is the worst."""
_AS_IT_IS = "* -text\n"  # a clone elsewhere gets the bytes that were published


def first_attributes(*, lfs: bool) -> dict[str, bytes]:
    """The files of a new repository. Without the store, no pattern may name it: git-lfs would miss its pointers."""
    lines = [f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in _BINARY] if lfs else []
    return {".gitattributes": (_AS_IT_IS + "".join(lines)).encode()}


class Pattern(NamedTuple):
    """One with a slash is for the whole path, another for the name alone."""

    whole: bool
    form: re.Pattern[str]

    def fits(self, path: str) -> bool:
        return self.form.match(self.looked_at(path)) is not None

    def looked_at(self, path: str) -> str:
        return path if self.whole else path.rpartition("/")[2]


def _anchored(text: str) -> tuple[bool, str]:
    """Whether a pattern is for the whole path, and what of it is held against that."""
    below = text.removeprefix("**/")
    return "/" in below, below.lstrip("/")


def _pattern(text: str) -> Pattern:
    whole, rest = _anchored(text)
    return Pattern(whole, re.compile(translate(rest)))


class Large:
    """The patterns of a .gitattributes whose files are large. Names are looked up, however many there are."""

    def __init__(self, attributes: str) -> None:
        found = [line.split()[0] for line in attributes.splitlines() if "filter=lfs" in line.split()[1:]]
        forms = dict.fromkeys(each for each in found if _WILD.search(each))
        self._names = {_anchored(each) for each in found if each not in forms}
        self._patterns = [_pattern(each) for each in islice(forms, _PATTERNS_MOST)]

    def has(self, path: str, size: int) -> bool:
        """By its size, or by a pattern."""
        named = not self._names.isdisjoint({(True, path), (False, path.rpartition("/")[2])})
        return size > 0 and (size >= LARGE_BYTES or named or any(each.fits(path) for each in self._patterns))


class _Rule(NamedTuple):
    """ignores: or takes back. folders: whether it is for folders alone."""

    ignores: bool
    folders: bool
    pattern: Pattern


class Ignored:
    """The rules of a .gitignore; of those that fit a file, or a folder that it is in, the last one decides.

    Whoever has a token sends rules and paths: both are bounded, and so is what is compared. Raises Refusal.
    """

    def __init__(self, text: str) -> None:
        lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
        if len(text) > _RULES_TEXT_MOST or len(lines) > _RULES_MOST:
            what = f"{_RULES_MOST} rules, of {_RULES_TEXT_MOST} characters together,"
            raise Refusal(413, f"{what} are the most that a .gitignore may have")
        self._rules = [_rule(line) for line in lines]
        self._folders: dict[str, int] = {}
        self._left = _COMPARED_MOST

    def has(self, path: str) -> bool:
        last = self._last(path, folder=False)
        parts = path.split("/")
        for depth in range(1, len(parts)):
            last = max(last, self._of_folder("/".join(parts[:depth])))
        return last >= 0 and self._rules[last].ignores

    def _of_folder(self, path: str) -> int:
        if path not in self._folders:
            self._folders[path] = self._last(path, folder=True)
        return self._folders[path]

    def _last(self, path: str, *, folder: bool) -> int:
        """The place of the last rule that fits; -1 where none does."""
        self._left -= sum(len(rule.pattern.looked_at(path)) for rule in self._rules)
        if self._left < 0:
            raise Refusal(413, "so many paths and rules of .gitignore are too many to be compared: ask several times")
        fitting = (
            at for at, rule in enumerate(self._rules) if (folder or not rule.folders) and rule.pattern.fits(path)
        )
        return max(fitting, default=-1)


def _rule(line: str) -> _Rule:
    text = line.removeprefix("!")
    return _Rule(text == line, text.endswith("/"), _pattern(text.rstrip("/")))
