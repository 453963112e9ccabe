"""What a kernel says of itself, read from its Python files and never run: for the card."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hubkernels.hub.public_api import names_of

LAYERS = "layers"
_LAYER_FILES = ("layers.py", "layers/__init__.py")
_NO_PROSE = re.compile(r"\s*(#|```|\[!\[|!\[|<|\||>|---|===)")


@dataclass(frozen=True)
class Function:
    """A name of ``__all__``. signature, summary: None where no file of the kernel defines it as a function."""

    name: str
    signature: str | None = None
    summary: str | None = None


@dataclass(frozen=True)
class Description:
    """about: the first paragraph of the docstring, "" where there is none. layers: names of classes."""

    about: str
    functions: tuple[Function, ...]
    layers: tuple[str, ...]


def describe(files: Mapping[str, bytes]) -> Description:
    """files: the Python files of one variant, by their path in it."""
    trees = {name: tree for name in sorted(files) if (tree := _parse(files[name])) is not None}
    names = names_of(files.get("__init__.py", b"")) or frozenset()
    defined = dict(_functions(trees.values()))
    top = trees.get("__init__.py")
    return Description(
        about=first_paragraph((ast.get_docstring(top) or "") if top else ""),
        functions=tuple(defined.get(name, Function(name)) for name in sorted(names - {LAYERS})),
        layers=_layers(files) if LAYERS in names else (),
    )


def first_paragraph(text: str) -> str:
    """The first paragraph of prose: headings, pictures, code and front matter are none."""
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    body = re.sub(r"^```.*?^```", "", body, flags=re.DOTALL | re.MULTILINE)
    paragraphs = (part.strip() for part in re.split(r"\n\s*\n", body))
    found = next((" ".join(part.split()) for part in paragraphs if part and not _NO_PROSE.match(part)), "")
    return found.encode(errors="replace").decode()  # a string of Python may have halves of a character


def _parse(content: bytes) -> ast.Module | None:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(trees: Iterable[ast.Module]) -> Iterator[tuple[str, Function]]:
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.FunctionDef):
            summary = first_paragraph(ast.get_docstring(node) or "") or None
            yield node.name, Function(node.name, f"{node.name}({_arguments(node.args)})", summary)


def _arguments(arguments: ast.arguments) -> str:
    """As they are written, without types: those are in the docstring, or in the kernel."""
    bare = ast.parse(ast.unparse(arguments).join(("def f(", "): ..."))).body[0]
    for found in ast.walk(bare):
        if isinstance(found, ast.arg):
            found.annotation = None
    return ast.unparse(bare.args) if isinstance(bare, ast.FunctionDef) else ""


def _layers(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """The ``__all__`` of the layers, else their classes whose names are public."""
    content = next((files[name] for name in _LAYER_FILES if name in files), b"")
    listed, tree = names_of(content), _parse(content)
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []
    return tuple(sorted(listed or (name for name in classes if not name.startswith("_"))))
