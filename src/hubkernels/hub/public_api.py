"""What users of a kernel call: the names of its ``__all__`` and the schemas of its ops, read and not run.

A version branch promises both to whoever loads it, on every variant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

# In a library a schema is a literal, between two zero bytes: name(arguments) -> results.
_ARGUMENTS = rb"[\w\s,.*()\[\]!|?=+\"':-]*"
_SCHEMA = re.compile(rb"(?<=\0)([A-Za-z_]\w*(?:\.\w+)?\(" + _ARGUMENTS + rb"\) ?-> ?[\w\s,()\[\]!?]+)\0")


@dataclass(frozen=True)
class PublicApi:
    """names: None where ``__all__`` is no plain list of texts.

    schemas: None of Python alone, which makes its ops as it runs.
    """

    names: frozenset[str] | None
    schemas: frozenset[str] | None

    def differences(self, promised: PublicApi) -> Iterator[str]:
        """How this differs from what was promised, in words, as far as both tell."""
        yield from _differing("in __all__", self.names, promised.names)
        yield from _differing("among its ops", self.schemas, promised.schemas)


def read_api(init: bytes, library: bytes | None) -> PublicApi:
    """The API of one variant: of its ``__init__.py`` and, where it is compiled, its library."""
    if library is None:
        return PublicApi(names_of(init), None)
    schemas = (" ".join(found.decode().split()) for found in _SCHEMA.findall(library))
    return PublicApi(names_of(init), frozenset(schemas))


def names_of(init: bytes) -> frozenset[str] | None:
    """The texts of ``__all__``; None where it is no plain list of them, or is not there."""
    try:
        body = ast.parse(init).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_all(node)
    ]
    try:
        return frozenset(map(str, ast.literal_eval(values[-1]))) if values else None
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _is_all(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _differing(where: str, now: frozenset[str] | None, promised: frozenset[str] | None) -> Iterator[str]:
    if now is not None and promised is not None:
        yield from (f"{name} is no longer {where}" for name in sorted(promised - now))
        yield from (f"{name} is new {where}" for name in sorted(now - promised))
