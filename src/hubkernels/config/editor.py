"""Edits of a TOML text: what they do not touch, comments among it, stays byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hubkernels.config.positions import KeyPath, Span, locate_spans


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


class TomlEditor:
    """Collects the edits of a valid text, and makes them all at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = locate_spans(text)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.edits: list[_Edit] = []

    def edited(self, start: int = 0, end: int | None = None) -> str:
        """The text, or a part of it, with the edits; of two at one place, the first that was noted comes first."""
        end = len(self.text) if end is None else end
        made, at = "", start
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            if at <= edit.start <= end:
                made += self.text[at : edit.start] + edit.text
                at = edit.end
        return made + self.text[at:end]

    def replace(self, start: int, end: int, text: str) -> None:
        self.edits.append(_Edit(start, end, text))

    def end_of_table(self, path: KeyPath) -> int:
        """Where the next header begins, with the comment lines before it."""
        start = self.spans[path].start
        later = [span.start for span in self.spans.values() if span.value is None and span.start > start]
        end = min(later, default=len(self.text))
        head = self.text[:end]
        while later and (line := head.removesuffix("\n").rpartition("\n")[2]).startswith("#"):
            head = head[: head.rindex(line)]
        return len(head)

    def insert_table(self, end: int, table: str) -> None:
        """Put a table, without the end of its last line, after the one that ends there; a blank line on both sides."""
        at = self.text.find("\n", len(self.text[:end].rstrip())) + 1 or len(self.text)
        before = self.newline if self.text[:at].endswith("\n") else 2 * self.newline
        after = self.newline if end < len(self.text) and at == end else ""
        self.replace(at, at, f"{before}{table}{self.newline}{after}")

    def insert_after(self, path: KeyPath, assignments: Iterable[str]) -> None:
        span = self.spans[path]
        prefix = self.text[span.start : span.leaf]
        if self.is_inline(span):
            self.replace(span.end, span.end, "".join(f", {prefix}{line}" for line in assignments))
            return
        at = self._end_of_line(span.end)
        lines = (f"{self.newline}{self.indent(span)}{prefix}{line}" for line in assignments)
        self.replace(at, at, "".join(lines))

    def rename(self, path: KeyPath, key: str) -> None:
        span = self.spans[path]
        self.replace(span.leaf, span.leaf_end, key)

    def remove(self, path: KeyPath) -> None:
        """Take out an assignment; the comment beside it stays."""
        span = self.spans[path]
        if self.is_inline(span):
            self.edits.append(self._inline_removal(span))
            return
        start = span.start - len(self.indent(span))
        end = self._end_of_line(span.end)
        if self.text[span.end : end].strip():
            self.replace(span.start, end - len(self.text[span.end : end].lstrip()), "")
        else:
            self.replace(start, min(self.text.find("\n", end) + 1 or end, len(self.text)), "")

    def _inline_removal(self, span: Span) -> _Edit:
        """With one of the commas around it."""
        after = self.text[span.end :].lstrip()
        if after.startswith(","):
            rest = after[1:].lstrip()
            return _Edit(span.start, len(self.text) - len(rest), "")
        before = self.text[: span.start].rstrip()
        return _Edit(len(before.removesuffix(",")), span.end, "")

    def is_inline(self, span: Span) -> bool:
        """Whether an assignment stands in a table that is written as a value."""
        return any(
            around.value is not None and around.value < span.start < around.end for around in self.spans.values()
        )

    def indent(self, span: Span) -> str:
        line = self.text[: span.start].rpartition("\n")[2]
        return line if not line.strip() else ""

    def _end_of_line(self, at: int) -> int:
        end = self.text.find("\n", at)
        end = len(self.text) if end < 0 else end
        return end - 1 if self.text[at:end].endswith("\r") else end
