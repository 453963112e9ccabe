"""What to do next where a Hub refuses, by its status: one sentence for whoever asks it, by whatever client."""

from __future__ import annotations

_UNAUTHORIZED = 401

LOG_IN = "`hf auth login`, or HF_TOKEN; to publish, one with write access"
FORBIDDEN = "the token may not do that: ask an owner of the organization for the right; --create-pr proposes a change"
UNSEEN = "is the name right, and may this token see it? `hf auth whoami` tells whose it is; HF_TOKEN names another"

_UNKNOWN = "this Hub does not know the token that was sent: unset HF_TOKEN for it, or `hf auth logout`, or log in there"

_WAYS_OUT = {
    _UNAUTHORIZED: f"is the name right? What is not public takes a token: {LOG_IN}",
    403: FORBIDDEN,
    404: UNSEEN,
    413: "a file is larger than the Hub takes",
    429: "too many requests: wait a minute and try again",
    507: "the disk of the Hub is full",
}


def way_out(status: int, *, token_was_sent: bool) -> str | None:
    """None for a status that says nothing of what to do."""
    return _UNKNOWN if token_was_sent and status == _UNAUTHORIZED else _WAYS_OUT.get(status)
