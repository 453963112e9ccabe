"""Who may do what: tokens, the organisations that they speak for, and roles there."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from hubkernels.errors import InputError, Problem
from hubkernels.host.files import read_errors, read_regular
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.names import is_name
from hubkernels.model.client import spelled_alike

ROLES = ("read", "write", "admin")
"""Each may do what those before it may. read: private repositories. write: create repositories, commit, branches and
tags. admin: delete repositories, change who sees them."""

FORM = "[USER:]TOKEN=ORG:ROLE[@EXPIRY]"
_GRANT = re.compile(r"(?:([^:=@\s]+):)?([^:=@\s]+)=([^:=@\s]+):([^:=@\s]+)(?:@(\S+))?")
_FILE_MOST = 1 << 20
_INVALID = "Invalid credentials in Authorization header"  # the text that the client compares


@dataclass(frozen=True)
class Grant:
    """A role on one organisation, until a moment or for ever."""

    organisation: str
    role: str
    expires: datetime | None = None


@dataclass(frozen=True)
class Account:
    """A token, by its hash, and what it may."""

    user: str
    digest: bytes
    grants: tuple[Grant, ...]

    def rank(self, organisation: str, now: datetime) -> int:
        """How many roles it has there: 0 is none."""
        key = spelled_alike(organisation)
        held = (g for g in self.valid(now) if spelled_alike(g.organisation) == key)
        return max((ROLES.index(grant.role) + 1 for grant in held), default=0)

    def valid(self, now: datetime) -> tuple[Grant, ...]:
        return tuple(grant for grant in self.grants if grant.expires is None or now < grant.expires)


@dataclass(frozen=True)
class Accounts:
    """Every token, and the organisations whose kernels clients may run without being asked."""

    accounts: tuple[Account, ...] = ()
    trusted: frozenset[str] = frozenset()

    def of(self, authorization: str | None, now: datetime) -> Account | None:
        """Who sends this header; None where there is none. Raises Refusal for a token that is not, or no more, known.

        Every token is compared, and to its end: how long that takes tells nothing.
        """
        if not authorization:
            return None
        digest = _digest(_token(authorization))
        found = [account for account in self.accounts if hmac.compare_digest(account.digest, digest)]
        if not found:
            raise Refusal(401, "this token is not known here: compare HF_TOKEN with the Hub's tokens", title=_INVALID)
        if not found[0].valid(now):
            last = max(grant.expires for grant in found[0].grants if grant.expires)
            raise Refusal(401, f"this token expired on {last.isoformat()}: ask for another one", title=_INVALID)
        return found[0]

    def trusts(self, organisation: str) -> bool:
        return spelled_alike(organisation) in {spelled_alike(name) for name in self.trusted}


def require(account: Account | None, role: str, organisation: str, now: datetime) -> Account:
    """Whoever asks, where they have a role on an organisation. Raises Refusal."""
    if account is None:
        raise Refusal(401, f"this needs a token with the role {role} on {organisation}: set HF_TOKEN")
    rank = account.rank(organisation, now)
    if rank <= ROLES.index(role):
        has = f"the role {ROLES[rank - 1]}" if rank else "no role"
        raise Refusal(403, f"this needs the role {role} on {organisation}; the token of {account.user} has {has} there")
    return account


def _token(authorization: str) -> str:
    """The token of a header: `Bearer TOKEN` of the Hub's clients, or what git sends as a password."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        return rest.strip() if rest else scheme
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def read_tokens(path: Path) -> tuple[Account, ...]:
    """The accounts of a file: a grant a line; what follows a # is a comment. Raises InputError.

    A device or a pipe may have no end, so it is a regular file.
    """
    with read_errors(path):
        if path.is_file() and path.stat().st_size > _FILE_MOST:
            raise InputError(Problem(f"it has more than {_FILE_MOST} bytes: these are no grants", str(path)))
        lines = read_regular(path).decode("utf-8", "replace").splitlines()
    texts = ((text, f"{path}:{n}") for n, line in enumerate(lines, 1) if (text := line.partition("#")[0].strip()))
    return _accounts(texts)


def parse_tokens(text: str, where: str) -> tuple[Account, ...]:
    """The accounts of a text with commas, as an environment variable holds it. Raises InputError."""
    entries = (entry.strip() for entry in text.split(","))
    return _accounts((entry, f"{where}: entry {n}") for n, entry in enumerate(filter(None, entries), 1))


def _accounts(entries: Iterable[tuple[str, str]]) -> tuple[Account, ...]:
    """One account a token, with all of its grants."""
    users: dict[str, str] = {}
    grants: dict[str, list[Grant]] = {}
    problems: list[Problem] = []
    for text, where in entries:
        try:
            user, token, grant = _parse(text, where)
        except InputError as error:
            problems += error.problems
            continue
        if user or token not in users:
            users[token] = user or f"user-{_digest(token).hex()[:8]}"
        grants.setdefault(token, []).append(grant)
    if problems:
        raise InputError(*problems)
    return tuple(Account(users[token], _digest(token), tuple(found)) for token, found in grants.items())


def _parse(text: str, where: str) -> tuple[str | None, str, Grant]:
    """One grant. The messages show nothing of it: they end up in logs, and a token may stand in any place."""
    match = _GRANT.fullmatch(text)
    if match is None:
        raise _wrong("this is no grant", where)
    user, token, organisation, role, expiry = match.groups()
    if role not in ROLES:
        raise _wrong(f"the role is none of {', '.join(ROLES)}", where)
    if not all(map(is_name, filter(None, (user, organisation)))):
        raise _wrong("the user or the organisation is no name", where)
    return user, token, Grant(organisation, role, _moment(expiry, where) if expiry else None)


def _moment(text: str, where: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        what = "the expiry is no date, such as 2027-12-31T00:00:00Z"
        raise _wrong(what, where) from None  # the cause quotes it
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _wrong(what: str, where: str) -> InputError:
    return InputError(Problem(what, where, f"the form is {FORM}"))
