"""What may be the name of a repository, a revision, a file: nothing that leaves its folder, and nothing git refuses."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from dulwich.refs import Ref, check_ref_format

from hubkernels.hub.local.answers import Refusal
from hubkernels.model.client import SHA1_COMMIT, spelled_alike

KINDS = {"kernels": "kernel", "models": "model"}
"""The kinds of repositories: as paths of the API and folders spell them, and as a client's repo_type."""

_PAGES = frozenset({"api", "content", "datasets", "spaces", *KINDS})
"""Owners that paths of the Hub begin with."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_SHORT_OF_GIT = re.compile(r"(?i)(git~1|gi[a-z0-9]{1,6}~[0-9]+)")  # what Windows calls .git and its like
_PART_BYTES, _PATH_BYTES = 255, 1024
_REF_PART_BYTES = 250
"""Of a part of a ref's name: it is a file's, for git beside one that ends in .lock."""


class RepoId(NamedTuple):
    """kind: as `KINDS` spells it in paths."""

    kind: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What is equal for every spelling of one repository."""
        return (self.kind, spelled_alike(self.owner), spelled_alike(self.name))

    @property
    def page(self) -> str:
        """Its path on the Hub: models have no prefix."""
        return str(self) if self.kind == "models" else f"{self.kind}/{self}"


def kind_of(repo_type: object) -> str:
    """The kind that a client calls by its repo_type. Raises Refusal."""
    for kind, name in KINDS.items():
        if repo_type == name or (repo_type is None and kind == "models"):
            return kind
    raise Refusal(400, f"this Hub keeps kernels and models, and no {str(repo_type)[:80]}")


def check_new(repo: RepoId) -> None:
    """Raises Refusal where no repository may be called so."""
    for what, word in (("owner", repo.owner), ("name", repo.name)):
        if not is_name(word):
            rule = "1 to 96 of A-Z a-z 0-9 - _ . without - or . at an end, no -- and .., no .git at the end"
            raise Refusal(400, f"{word!r} cannot be the {what} of a repository; it takes {rule}")
    if repo.owner.lower() in _PAGES:
        raise Refusal(400, f"{repo.owner!r} cannot be the owner of a repository: the Hub's own pages are called so")


def is_name(word: str) -> bool:
    return bool(_NAME.fullmatch(word)) and "--" not in word and ".." not in word and not word.lower().endswith(".git")


def is_commit(revision: str) -> bool:
    return SHA1_COMMIT.fullmatch(revision) is not None


def check_path(path: object) -> str:
    """A file's path in a repository. Raises Refusal for one that could leave it, or that `git fsck` complains of."""
    if not isinstance(path, str):
        raise Refusal(400, f"a path is a text, not {str(path)[:80]}")
    reason = _against_path(path)
    if reason:
        raise Refusal(400, f"{path[:200]!r} cannot be a path in a repository: {reason}")
    return path


def _against_path(path: str) -> str | None:
    if any(unicodedata.category(character) in {"Cc", "Cf", "Cs"} for character in path) or "\\" in path:
        return "it has a backslash, a control character or an invisible one"
    if len(path.encode()) > _PATH_BYTES:
        return f"it is longer than {_PATH_BYTES} bytes"
    return next((reason for part in path.split("/") if (reason := _against_part(part))), None)


def _against_part(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return "a part of it is empty, '.' or '..'"
    if len(part.encode("utf-8", "surrogateescape")) > _PART_BYTES:
        return f"a part of it is longer than {_PART_BYTES} bytes"
    bare = part.split(":", maxsplit=1)[0].rstrip(". ").lower()
    if bare in {".git", ".gitmodules"} or _SHORT_OF_GIT.fullmatch(bare):
        return f"{part!r} is git's own"
    return None


def against_entry(name: str) -> str | None:
    """Of a name in a folder that comes from elsewhere: git keeps more than a client may send, as another encoding."""
    if "/" in name or "\\" in name:
        return "it has a slash or a backslash"
    return _against_part("".join(each for each in name if unicodedata.category(each) != "Cf"))  # as macOS sees it


def check_ref(name: str, what: str) -> str:
    """The name of a branch or a tag, by git's rules. Raises Refusal."""
    bad = (
        is_commit(name)
        or name.startswith(("refs/", "-"))
        or name in {"HEAD", "@"}
        or not name.isprintable()
        or len(name.encode()) > _PART_BYTES
        or not check_ref_format(Ref(f"refs/heads/{name}".encode()))
        or any(_against_part(part) for part in name.split("/"))
    )
    if bad:
        raise Refusal(400, f"{name[:200]!r} cannot be the name of a {what}")
    return name


def is_ref(name: str) -> bool:
    """Whether it is a full name, below refs/, that leads nowhere else."""
    top, _, below = name.partition("/")
    kind, _, rest = below.partition("/")
    spelled = name.encode("utf-8", "replace")
    short = len(spelled) <= 4 * _REF_PART_BYTES and all(len(part) <= _REF_PART_BYTES for part in spelled.split(b"/"))
    known = top == "refs" and kind in {"heads", "tags", "pr"} and bool(rest)
    return known and short and check_ref_format(Ref(spelled))
