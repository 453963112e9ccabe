"""The command line as a value: what the reference in docs and the completions are made from."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer


@dataclass(frozen=True)
class Option:
    """names: every spelling. value: what stands for its value in texts; None for a flag. default: None where unsaid."""

    names: tuple[str, ...]
    value: str | None
    choices: tuple[str, ...]
    text: str
    default: str | None


@dataclass(frozen=True)
class Verb:
    """words: what calls it, after the program's name. arguments: as they stand in its usage, with what they mean.

    known: words that an argument may be, as far as the command line knows them.
    """

    words: tuple[str, ...]
    text: str
    arguments: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    hidden: bool
    known: tuple[str, ...] = ()


def verbs(app: typer.Typer) -> tuple[Verb, ...]:
    """Every verb, in the order of the help; groups stand before what is below them."""
    return tuple(_walk(typer.main.get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[Verb]:  # noqa: ANN401 - the parser's classes are private
    visible = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    yield Verb(
        words,
        inspect.cleandoc(command.help or "").replace("\b\n", ""),
        tuple((_argument(p), p.help or "") for p in visible if p.param_type_name == "argument"),
        tuple(_option(p) for p in visible if p.param_type_name == "option"),
        command.hidden,
        tuple(choice for p in visible if p.param_type_name == "argument" for choice in _choices(p)),
    )
    for name, below in getattr(command, "commands", {}).items():
        yield from _walk(below, (*words, name))


def _argument(parameter: Any) -> str:  # noqa: ANN401
    name = (parameter.metavar or parameter.name.upper()).strip("[].")
    name = f"{name}" if parameter.required else f"[{name}]"
    return name if parameter.nargs == 1 else f"{name}..."


def _option(parameter: Any) -> Option:  # noqa: ANN401
    names = (*parameter.opts, *parameter.secondary_opts)
    ordered = tuple(sorted(names, key=lambda name: not name.startswith("--")))
    choices = () if parameter.is_flag else _choices(parameter)
    value = None if parameter.is_flag else parameter.metavar or "|".join(choices) or ordered[0].lstrip("-").upper()
    return Option(ordered, value, choices, parameter.help or "", _default(parameter.default))


def _choices(parameter: Any) -> tuple[str, ...]:  # noqa: ANN401
    descriptor = getattr(parameter, "type_descriptor", None)  # newer typers; older ones have a type with choices
    if descriptor is None:
        return tuple(getattr(parameter.type, "choices", ()))
    annotation = descriptor.annotation
    return tuple(get_args(annotation)) if get_origin(annotation) is Literal else ()


def _default(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
        return None
    return "here" if value == Path() else str(value)
