"""docs/cli-reference.md: every verb and option, from the command line itself; `generate-docs` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hubkernels.cli.tree import Option, Verb

_HEAD = """\
# Reference of the command line

`kernel-builder generate-docs > docs/cli-reference.md` writes this file, and a test compares it with the command line.
What the verbs are for is told in [cli.md](cli.md).
"""


def render(verbs: Iterable[Verb]) -> str:
    """The whole reference. Hidden verbs, other names of what is there, are listed at the end."""
    known = tuple(verbs)
    shown = [verb for verb in known if verb.words and not verb.hidden]
    program, other = known[0], [verb for verb in known if verb.hidden]
    parts = [_HEAD, "\n".join(_options(program)), *("\n".join(_section(verb)) for verb in shown)]
    if other:
        names = (f"- `{' '.join(verb.words)}`: {verb.text}" for verb in other)
        parts.append("\n".join(("## Verbs that the help does not list", "", *names, "")))
    return "\n".join(parts)


def _section(verb: Verb) -> Iterator[str]:
    usage = " ".join((*verb.words, *(name for name, _ in verb.arguments)))
    yield from (f"## `{usage}`", "", *_paragraphs(verb.text))
    for name, text in verb.arguments:
        yield from (f"`{name}`: {text}", "")
    yield from _options(verb)


def _paragraphs(text: str) -> Iterator[str]:
    """The help, with its tables as code."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if any("   " in line for line in lines):
            yield from ("```text", *lines, "```", "")
        else:
            yield from (" ".join(lines), "")


def _options(verb: Verb) -> Iterator[str]:
    options = [option for option in verb.options if "--help" not in option.names]
    if options:
        yield from ("| option | meaning |", "|---|---|", *(f"| {_names(o)} | {_meaning(o)} |" for o in options), "")


def _names(option: Option) -> str:
    value = f" {option.value}" if option.value else ""
    return ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in option.names)


def _meaning(option: Option) -> str:
    text = option.text.replace("|", "\\|")
    return text if option.default is None else f"{text} Default: {option.default}."
