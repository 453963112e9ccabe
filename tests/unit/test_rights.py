"""What a Hub tells of a token, and whether that one plainly may not write."""

from __future__ import annotations

from typing import Any

import pytest

from hubkernels.hub.remote import why_not_writing


def user(role: str = "write", **orgs: str) -> dict[str, Any]:
    told = [{"name": name, "roleInOrg": held} for name, held in orgs.items()]
    return {"type": "user", "name": "someone", "orgs": told, "auth": {"accessToken": {"role": role}}}


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (user(org="write"), None),
        (user(org="admin"), None),
        (user("fineGrained", Org="contributor"), None),
        (user("read", org="admin"), "the token of someone is one to read with"),
        (user(org="read"), "the token of someone has the role read on org"),
        (user(other="admin"), "the token of someone has no role on org"),
        ({**user(), "name": "ORG"}, None),
        ({"type": "org", "name": "org"}, None),
        ({**user(), "orgs": [{"name": "org", "roleInOrg": "read", "resourceGroups": [{"role": "write"}]}]}, None),
        ([], None),
    ],
)
def test_a_token_that_plainly_may_not_write_is_known(who: Any, why: str | None) -> None:  # noqa: ANN401 - any JSON
    assert why_not_writing(who, "org") == why
