"""Tokens: what they are read from, and what they allow."""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from starlette.requests import Request

from hubkernels.errors import EnvironmentLacksError, InputError
from hubkernels.hub.local.accounts import Account, Accounts, parse_tokens, read_tokens, require
from hubkernels.hub.local.answers import Refusal
from hubkernels.hub.local.api import Api
from hubkernels.hub.local.asked import Limits, Site
from hubkernels.hub.local.hub import Hub

NOW = datetime(2027, 1, 1, tzinfo=timezone.utc)


HEADER = "Bearer t"


def of(text: str, token: str = HEADER) -> Account:
    found = Accounts(parse_tokens(text, "test")).of(token, NOW)
    assert found
    return found


def test_who_one_is_is_told_of_one_moment() -> None:
    """A grant that ends between two looks at the clock used to be one without a role, or with that of an owner."""
    looks = iter((NOW - timedelta(seconds=1), *(NOW + timedelta(hours=hour) for hour in range(9))))
    accounts = Accounts(parse_tokens(f"ci:t=org:read@{NOW.isoformat()}", "test"))
    site = Site(Hub(Path()), accounts, Limits(), 0, lambda: next(looks))
    request = Request({"type": "http", "headers": [(b"authorization", HEADER.encode())]})
    told = json.loads(bytes(Api(site).whoami(request).body))
    assert [(org["name"], org["roleInOrg"]) for org in told["orgs"]] == [("org", "read")]
    assert told["auth"]["accessToken"]["role"] == "read"


def test_a_token_may_have_a_name_and_several_grants() -> None:
    account = of("ci:t=org:write, t=another:read,other:u=third:admin")
    assert account.user == "ci"
    assert [account.rank(name, NOW) for name in ("org", "Org", "another", "third")] == [2, 2, 1, 0]
    assert of("t=org:write").user.startswith("user-")
    assert b"Bearer" not in account.digest


def test_a_grant_lapses() -> None:
    text = "t=org:admin@2026-12-31T00:00:00Z,t=org:read@2027-02-01,u=org:write@2026-12-31T23:59:59+00:00"
    assert of(text).rank("org", NOW) == 1
    with pytest.raises(Refusal, match="expired on 2026-12-31"):
        of(text, "Bearer u")


@pytest.mark.parametrize("form", ["Bearer t", "bearer t", "t", f"Basic {base64.b64encode(b'user:t').decode()}"])
def test_a_token_is_read_from_every_form_of_a_header(form: str) -> None:
    assert of("t=org:read", form).user.startswith("user-")


@pytest.mark.parametrize("form", ["Bearer x", "Basic !", "Basic dA==", "Bearer", "Bearer t x", f"Basic {'/w=='}"])
def test_another_header_is_refused(form: str) -> None:
    with pytest.raises(Refusal, match="not known here"):
        of("t=org:read", form)


def test_nobody_is_nobody() -> None:
    accounts = Accounts(parse_tokens("t=org:read", "test"))
    assert accounts.of(None, NOW) is None
    with pytest.raises(Refusal, match="needs a token with the role write on org"):
        require(None, "write", "org", NOW)


def test_a_file_has_a_grant_a_line(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# who may publish\nci:t=org:write  # until further notice\n\nu=org:read\n")
    assert [account.user == "ci" for account in read_tokens(file)] == [True, False]


def test_all_that_is_wrong_is_told_at_once_and_shows_no_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    lines = ("secret", "secret=org", "secret=org:writer", "secret=-:read", "secret=org:read@soon", "secret=org:admin")
    turned = ("org:read=secret", "org:write=secret:x", "org=x:secret", "org=secret!:read", "t=org:read@secret")
    file.write_text("\n".join((*lines, *turned)))
    with pytest.raises(InputError) as caught:
        read_tokens(file)
    text = str(caught.value)
    assert len(caught.value.problems) == 10
    assert "secret" not in text
    for words in (
        f"{file}:1",
        "this is no grant",
        "the form is [USER:]TOKEN=ORG:ROLE[@EXPIRY]",
        "the role is none",
        "read, write, admin",
        "the expiry is no date",
    ):
        assert words in text


def test_a_file_of_grants_is_a_file_and_small(tmp_path: Path) -> None:
    """`--tokens /dev/zero` did not return, as a pipe that nobody writes to would not."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(EnvironmentLacksError, match=f"cannot read {path}"):
            read_tokens(path)
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        read_tokens(tmp_path / "large")


def test_an_entry_of_the_environment_is_told_by_its_number() -> None:
    with pytest.raises(InputError) as caught:
        parse_tokens("t=org:read, ,hf_secret", "environment: TOKENS")
    (problem,) = caught.value.problems
    assert (problem.what, problem.where) == ("this is no grant", "environment: TOKENS: entry 2")
