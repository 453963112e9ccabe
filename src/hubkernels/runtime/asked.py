"""What a caller asks for, and the errors of a kernel that cannot be given: those of the client, by their classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hubkernels.errors import HubRefusedError, InputError, Problem
from hubkernels.model.client import REPO_ID, REPO_RULE, SHA1_COMMIT

_REVISION = re.compile(r"[^\x00-\x20\x7f]{1,200}")


class BadRequestError(InputError, ValueError):
    """What was asked for is no kernel's name, or not one revision."""


class UntrustedError(HubRefusedError, ValueError):
    """The publisher is nobody whom the Hub vouches for."""


class NoVersionError(HubRefusedError, ValueError):
    """The kernel has no such version."""


class NotFoundError(HubRefusedError, FileNotFoundError):
    """No variant fits, or there is none in the cache."""


class NotCachedError(NotFoundError):
    """There is no network, and this spelling is not in the cache."""


@dataclass(frozen=True)
class Asked:
    """name: as it was written."""

    name: str
    revision: str | None
    version: int | None
    trust: bool | Sequence[str]
    backend: str | None
    check_arch: bool

    @property
    def ref(self) -> str:
        if self.revision is None:
            return f"v{self.version}"
        return self.revision.lower() if self.pinned else self.revision

    @property
    def pinned(self) -> bool:
        """In capitals, too: asked for those, a Hub could name any commit."""
        return self.revision is not None and SHA1_COMMIT.fullmatch(self.revision.lower()) is not None

    def refuse_strange(self) -> None:
        """Raises BadRequestError."""
        if (self.revision is None) == (self.version is None):
            what = "A kernel version or revision must be specified, and only one of them"
            hint = "revision= with a commit's 40 hex digits is always the same kernel; version= follows a branch"
            raise BadRequestError(Problem(what, str(self.name), hint))
        if not isinstance(self.name, str) or not REPO_ID.fullmatch(self.name):
            raise BadRequestError(Problem(f"{self.name!r} is no kernel of a Hub", hint=REPO_RULE))
        revision = "v0" if self.revision is None else self.revision
        if not isinstance(revision, str) or not _REVISION.fullmatch(revision) or _leads_out(revision):
            raise BadRequestError(Problem(f"{revision!r} is no revision", self.name))

    def spellings(self) -> tuple[str, ...]:
        """The name as it is written, and the other way: with ``_`` for ``-``."""
        owner, slash, name = self.name.partition("/")
        other = owner + slash + (name.replace("_", "-") if "_" in name else name.replace("-", "_"))
        return tuple(dict.fromkeys((self.name, other)))


def _leads_out(revision: str) -> bool:
    """A branch is a file below the cache, too."""
    return revision.startswith("/") or bool({"", ".", ".."} & set(revision.split("/"))) or "\\" in revision
