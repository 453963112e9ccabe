"""Tables of a card, and texts that others wrote, as no more than text."""

from __future__ import annotations

import re
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def one_line(text: str) -> str:
    """Without line breaks of any kind, and what has no form in UTF-8 or in a picture."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def plain(text: str) -> str:
    """A text that is neither a heading, a link, code nor HTML, wherever in a line it stands.

    Of a bare address pages make a link, too: of a URL, of what begins with www and of one for mail. The last are looked
    for after escapes and entities are resolved, so a comment, which nobody sees or copies, parts them.
    """
    escaped = re.sub(r"(?i)[\\`*\[\]<>#~&]|^[-+=]|:(?=//)|(?<=www)\.", r"\\\g<0>", one_line(text))
    return escaped.replace("@", "@<!-- -->")


def code(text: str) -> str:
    return f"`{one_line(text.replace('`', ' '))}`"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")
