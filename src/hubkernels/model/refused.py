"""What to do next where a Hub refuses, by its status: one sentence for whoever asks it, by whatever client."""

from __future__ import annotations

LOG_IN = "`hf auth login`, or HF_TOKEN"
FORBIDDEN = "the token may not do that: ask an owner of the organization for the right"
UNSEEN = "is the name right, and may this token see it? `hf auth whoami` tells whose it is; HF_TOKEN names another"

_OF_A_TOKEN = {
    401: "this Hub does not know the token that was sent: unset HF_TOKEN for it, or `hf auth logout`, or log in there",
    403: FORBIDDEN,
}
"""Where one was sent."""

_WAYS_OUT = {
    401: f"is the name right? What is not public takes a token: {LOG_IN}",
    403: f"no token was sent, and that may take one: {LOG_IN}",
    404: UNSEEN,
    413: "a file is larger than the Hub takes",
    429: "too many requests: wait a minute and try again",
    507: "the disk of the Hub is full",
}


def way_out(status: int, *, token_was_sent: bool) -> str | None:
    """None for a status that says nothing of what to do."""
    return (_WAYS_OUT | _OF_A_TOKEN if token_was_sent else _WAYS_OUT).get(status)
