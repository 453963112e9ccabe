"""CMake's generator expressions in flags, as ``$<$<CXX_COMPILER_ID:MSVC>:/arch:AVX2>``.

Upstream hands the flags of build.toml to CMake, so projects write them. Here they are evaluated for the compiler at
hand; only what asks about compiler, platform, language and configuration has an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

COMPILER_IDS: Mapping[str, str] = {"g++": "GNU", "clang": "Clang"}
"""CMake's name of a compiler family."""

_ESCAPES = {"ANGLE-R": ">", "COMMA": ",", "SEMICOLON": ";", "QUOTE": '"'}
_LOGIC: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "NOT": lambda operands: [_truth(word) for word in operands] == [False],
    "AND": lambda operands: all(_truth(word) for word in operands),
    "OR": lambda operands: any(_truth(word) for word in operands),
    "STREQUAL": lambda operands: len(set(operands)) == 1,
}
_FALSE = frozenset({"", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND"})


class GeneratorError(ValueError):
    """A generator expression that cannot be evaluated here."""


def expand(word: str, family: str) -> tuple[str, ...]:
    """The flags that one word of build.toml stands for: none, itself, or several. family: of the compiler.

    Raises GeneratorError for an expression that is not closed, or asks what only CMake knows.
    """
    if "$<" not in word:
        return (word,)
    answers = {
        "CXX_COMPILER_ID": COMPILER_IDS[family],
        "PLATFORM_ID": "Linux",
        "COMPILE_LANGUAGE": "CXX",
        "CONFIG": "Release",
    }
    text, rest = _text(word, "", answers)
    if rest:
        raise GeneratorError(f"unexpected {rest!r}")
    # A list separator that the expression itself wrote parts flags; an escaped one stays.
    return tuple(flag.replace("\0", ";") for flag in text.split(";") if flag)


def _text(word: str, ends: str, answers: Mapping[str, str]) -> tuple[str, str]:
    """Evaluate up to one of the characters in ``ends`` or the end of the word; also what is left."""
    found = ""
    while word and word[0] not in ends:
        if word.startswith("$<"):
            value, word = _expression(word[2:], answers)
            found += value
        else:
            found, word = found + word[0], word[1:]
    return found, word


def _expression(word: str, answers: Mapping[str, str]) -> tuple[str, str]:
    """Evaluate what follows ``$<``; also what is left after its ``>``."""
    name, rest = _text(word, ":>", answers)
    if rest.startswith(">"):
        return _constant(name, answers), rest[1:]
    operands, rest = _operands(rest[1:], _ends(name), answers)
    if not rest:
        raise GeneratorError("an expression is not closed")
    return _value(name, operands, answers), rest[1:]


def _ends(name: str) -> str:
    """What parts the operands of an expression: the text that a condition guards may hold commas."""
    return ">" if name in {"0", "1"} else ",>"


def _operands(word: str, ends: str, answers: Mapping[str, str]) -> tuple[list[str], str]:
    found = []
    while True:
        operand, word = _text(word, ends, answers)
        found.append(operand)
        if not word.startswith(","):
            return found, word
        word = word[1:]


def _constant(name: str, answers: Mapping[str, str]) -> str:
    if name in _ESCAPES:
        return _ESCAPES[name].replace(";", "\0")
    if name in answers:
        return answers[name]
    raise GeneratorError(f"{name or 'an empty name'} is not known here")


def _value(name: str, operands: Sequence[str], answers: Mapping[str, str]) -> str:
    if name in {"0", "1"}:
        return operands[0] if name == "1" else ""
    if name == "BOOL":
        return _digit(operands[0].upper() not in _FALSE and not operands[0].upper().endswith("-NOTFOUND"))
    if name == "IF" and len(operands) == 3:  # noqa: PLR2004 - a condition and two branches
        return operands[1] if _truth(operands[0]) else operands[2]
    if name == "COMPILE_LANG_AND_ID":
        return _digit(operands[0] == "CXX" and answers["CXX_COMPILER_ID"] in operands[1:])
    if name in _LOGIC:
        return _digit(_LOGIC[name](operands))
    if name in answers:
        return _digit(answers[name] in operands)
    raise GeneratorError(f"{name or 'an empty name'} is not known here")


def _truth(word: str) -> bool:
    if word not in {"0", "1"}:
        raise GeneratorError(f"a condition is 0 or 1, found {word!r}")
    return word == "1"


def _digit(value: bool) -> str:  # noqa: FBT001 - the value itself
    return "1" if value else "0"
