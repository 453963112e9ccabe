"""Errors of the parser in the form of all others."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from hubkernels.errors import Problem


def usage_problem(failure: Any) -> Problem:  # noqa: ANN401 - the parser's class is private to typer
    """What is wrong with a command line, and the nearest option or verb."""
    context = getattr(failure, "ctx", None)
    path = context.command_path if context else "kernel-builder"
    what, words = str(failure.format_message()), _known(failure, context)
    if words is not None:
        what = what.partition(" (Possible")[0].partition(". Did you")[0].partition(" Did you")[0].rstrip("?.")
    hint = _nearest(_tried(failure, what), words or ())
    return Problem(what[:1].lower() + what[1:].rstrip("."), hint=hint or f"`{path} --help` tells what there is")


def _nearest(word: str, known: Sequence[str]) -> str | None:
    """A hint, for which the dashes count for nothing: every option has them."""
    by_name = {name.lstrip("-"): name for name in known}
    name = word.lstrip("-")
    begin = [known for known in by_name if known.startswith(name)] if len(name) == 1 else []
    near = difflib.get_close_matches(name, by_name, n=1) or begin
    return f"did you mean {' or '.join(by_name[each] for each in near)}?" if near else None


def _known(failure: Any, context: Any) -> list[str] | None:  # noqa: ANN401
    """The options or verbs of which one may have been meant."""
    if context is None:
        return None
    if hasattr(failure, "option_name") and type(failure).__name__ == "NoSuchOption":
        return [name for option in context.command.params if not option.hidden for name in option.opts]
    verbs = getattr(context.command, "commands", None)
    return [name for name, verb in verbs.items() if not verb.hidden] if verbs else None


def _tried(failure: Any, what: str) -> str:  # noqa: ANN401
    option = getattr(failure, "option_name", None)
    return str(option) if option else what.rpartition("'")[0].rpartition("'")[2]
